"""Records of `__transaction_state` have the bytes that Kafka 4.3.1 writes for the same states."""

from __future__ import annotations

from pathlib import Path

import pytest

from topicfs.coordination.transactions.state_records import read_name, read_state, write_key, write_state
from topicfs.coordination.transactions.transaction import Status, Transaction
from topicfs.storage.codec.columns import decode
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.model import ProducerId, Timestamp, TopicPartition

VECTORS = Path(__file__).parents[2] / "vectors/kafka/log-dirs"
T = Timestamp(1_700_000_000_000)
ID = ProducerId(1000)
EMPTY = Transaction(ID, 0, 60_000, updated=T, previous_producer_id=ID)
ONGOING = EMPTY._replace(
    status=Status.ONGOING,
    partitions=frozenset({TopicPartition("t", 0)}),
    updated=Timestamp(T + 1),
    started=Timestamp(T + 1),
    version=2,
)
COMPLETE = ONGOING._replace(
    status=Status.COMPLETE_COMMIT, epoch=1, partitions=frozenset(), updated=Timestamp(T + 3)
)
EXHAUSTED = ONGOING._replace(epoch=32767, status=Status.PREPARE_COMMIT, next_producer_id=ProducerId(2000))
GOLDEN = [
    (EMPTY, "000100000000000003e800000000ea6000000000018bcfe56800ffffffffffffffff01000800000000000003e8"),
    (
        ONGOING,
        (
            "000100000000000003e800000000ea60010202740200000000000000018bcfe568010000018bcfe5680102000800000000000003e8"
            "02020002"
        ),
    ),
    (
        COMPLETE,
        "000100000000000003e800010000ea6004010000018bcfe568030000018bcfe5680102000800000000000003e802020002",
    ),
    (
        EXHAUSTED,
        (
            "000100000000000003e87fff0000ea60020202740200000000000000018bcfe568010000018bcfe5680103000800000000000003e8"
            "010800000000000007d002020002"
        ),
    ),
]
SEVERAL = (
    "000100000000000003e800000000ea600106026103000000000000000700057a7a2d3903000000000000000700097061796d656e74730300"
    "0000000000000700076f726465727303000000070000000000135f5f636f6e73756d65725f6f666673657473030000000000000007000000"
    "018bcfe568010000018bcfe5680102000800000000000003e802020002"
)
"""The state, as Kafka's TransactionLog writes it, of a transaction with the partitions 0 and 7 of five topics."""


@pytest.mark.parametrize(("state", "golden"), GOLDEN, ids=["empty", "ongoing", "complete", "exhausted"])
def test_golden_states(state: Transaction, golden: str) -> None:
    """Each state is encoded to the bytes that Kafka writes, and these bytes are decoded to the state."""
    assert golden == write_state(state).hex()
    assert state == read_state(bytes.fromhex(golden))


def test_partitions_have_the_order_of_javas_hash_tables() -> None:
    """A state is written with its topics and partitions in the order in which a broker writes them."""
    names = ("orders", "payments", "__consumer_offsets", "a", "zz-9")
    partitions = frozenset(TopicPartition(name, number) for name in names for number in (0, 7))
    assert SEVERAL == write_state(ONGOING._replace(partitions=partitions)).hex()


def test_a_brokers_records_are_written_again_as_they_are() -> None:
    """Every record of a real broker's `__transaction_state` is read, and written with the same bytes."""
    found = 0
    for file in sorted(VECTORS.glob("__transaction_state-*/*.log")):
        for record in (one for columns in decode(file.read_bytes()) for one in columns):
            assert record.key is not None
            name = read_name(record.key)
            assert name is not None
            assert record.key == write_key(name)
            if record.value is not None:
                assert record.value == write_state(read_state(record.value))
            found += 1
    assert found > 100


def test_unknown_records() -> None:
    """A record with an unknown type of key is skipped. An unknown version or status is an error."""
    assert read_name(b"\0\7abc") is None
    golden = bytes.fromhex(GOLDEN[0][1])
    for damaged in (b"\0\2" + golden[2:], golden[:16] + b"\7" + golden[17:], b"\0"):
        with pytest.raises(CorruptBatchError):
            read_state(damaged)
