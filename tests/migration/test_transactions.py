"""Tests of the transactions of a stopped broker or daemon.

A takeover completes the transactions that the broker has decided, and reports the others. A handover refuses decided
transactions that lack markers.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.doubles import handover
from tests.doubles.handover import DATA, LOG_DIR, OwnCluster, StoppingDisk, contents, prepared_disk, served
from tests.doubles.manual_clock import ManualClock
from tests.doubles.producing import batch
from tests.doubles.records import NOW
from topicfs.coordination.engine import Engine
from topicfs.coordination.groups.requests import OffsetCommitRequest
from topicfs.coordination.groups.runtime.service import EmbeddedGroups
from topicfs.coordination.membership import Position
from topicfs.coordination.transactions.coordinator import TransactionCoordinator
from topicfs.coordination.transactions.state_records import write_key, write_state
from topicfs.coordination.transactions.transaction import Status, Transaction
from topicfs.migration import takeover
from topicfs.migration.handover import Handover
from topicfs.replication import open_engine
from topicfs.storage.codec.columns import decode_each
from topicfs.storage.codec.control import ControlType, EndTransactionMarker, encode_marker
from topicfs.storage.codec.records import encode
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.names import TRANSACTION_STATE
from topicfs.storage.errors import StorageError
from topicfs.storage.model import Offset, ProducerId, Record, Timestamp, TopicPartition
from topicfs.storage.producers.append import Origin
from topicfs.storage.producers.progress import own

pytestmark = pytest.mark.slow

CONFIG = EngineConfig(recovery_threads=1, topic_defaults=TopicConfig(segment_index_bytes=1200))
PRODUCER = ProducerId(7)
PLACES = (TopicPartition("orders", 0), TopicPartition("orders", 1))


@pytest.fixture(autouse=True)
def _small_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep indexes small: with 10 MiB for each of a hundred partitions, a disk in memory would need gigabytes."""
    monkeypatch.setattr(handover, "CONFIG", CONFIG)
    monkeypatch.setattr(takeover, "open_engine", partial(open_engine, config=CONFIG))


def left(status: Status, *, version: int = 2, directory: Path = LOG_DIR) -> StoppingDisk:
    """Return the disk of a broker that stopped while a transaction had the status `status`.

    No partition has a marker of this transaction.
    """
    disk, _ = prepared_disk(directory)
    with served(disk, directory) as engine:
        for place in PLACES:
            engine.partition(*place).append(
                batch(b"sold", producer_id=PRODUCER, producer_epoch=0, base_sequence=0, transactional=True)
            )
        groups = engine.groups
        assert isinstance(groups, EmbeddedGroups)
        places = frozenset(
            {*PLACES, TopicPartition("__consumer_offsets", groups.coordinator_partition("g").number)}
        )
        groups.commit_in_transaction(
            OffsetCommitRequest(group="g", positions={PLACES[0]: Position(3)}), PRODUCER, 0
        )
        is_bumped = version == 2 and status is not Status.ONGOING
        state = Transaction(PRODUCER, int(is_bumped), 60_000, status, places, version=version)
        states = [write_state(one) for one in (state._replace(status=Status.ONGOING, epoch=0), state)]
        records = [
            Record(Offset(at), Timestamp(0), write_key("tx"), value) for at, value in enumerate(states)
        ]
        engine.create_topic(TRANSACTION_STATE).partitions()[0].append(encode(records))
    return disk


class Found(NamedTuple):
    lines: list[str]
    """The lines that the takeover printed about transactional ids."""
    values: list[str]
    """Committed values of the producer, after a coordinator has started."""
    position: int | None
    is_stable: bool
    """True if no transaction is open."""


def take(disk: StoppingDisk) -> list[str]:
    """Take the broker's directory over; return the lines about transactional ids."""
    return [line for line in handover.taken(disk) if "transaction" in line]


def complete(engine: Engine) -> None:
    """Complete the decided transactions, as the coordinator of a daemon does at its start."""
    assert isinstance(engine.groups, EmbeddedGroups)
    coordinator = TransactionCoordinator(engine, engine.groups, EngineConfig(), ManualClock(NOW))
    coordinator.maintain()
    coordinator.close()


def taken(disk: StoppingDisk) -> Found:
    """Take over twice, and serve the data directory."""
    lines = take(disk)
    assert [] == take(disk)
    with served(disk, DATA) as engine:
        complete(engine)
        values, is_stable = [], True
        for place in PLACES:
            partition = engine.partition(*place)
            fetched = partition.read(Offset(16), max_bytes=1 << 20)  # The log had 16 records before.
            for columns in decode_each(fetched.data, aborted=fetched.aborted):
                values += [one.value.decode() for one in columns if one.value == b"sold"]
            is_stable &= partition.offsets().last_stable_offset == partition.offsets().log_end_offset
        position = engine.groups.positions("g").committed.get(PLACES[0])
    return Found(lines, values, None if position is None else position.offset, is_stable)


@pytest.mark.parametrize("version", [0, 2])
def test_a_committed_transaction_is_taken_over_whole(version: int) -> None:
    """A takeover completes a transaction in state PrepareCommit, although no partition has a marker of the transaction.

    All records and positions of the transaction become visible.
    """
    line = "transactional id tx: topicfs serve commits its transaction over orders-0, orders-1"
    assert Found([line], ["sold", "sold"], 3, True) == taken(left(Status.PREPARE_COMMIT, version=version))


@pytest.mark.parametrize("status", [Status.PREPARE_ABORT, Status.ONGOING])
def test_other_transactions_are_aborted(status: Status) -> None:
    """If a transaction was not committed, none of its records and positions become visible.

    The transaction is aborted, so readers of committed records can read on.
    """
    line = "transactional id tx: topicfs serve aborts its transaction over orders-0, orders-1"
    assert Found([line], [], None, True) == taken(left(status))


def test_a_transactional_id_that_is_in_use_is_left_alone() -> None:
    """If the data directory already has the transactional id, the state of this id is not overwritten."""
    disk = left(Status.PREPARE_COMMIT)
    with served(disk, DATA) as engine:
        other = Transaction(ProducerId(8), 0, 60_000, Status.EMPTY)
        record = Record(Offset(0), Timestamp(0), write_key("tx"), write_state(other))
        engine.create_topic(TRANSACTION_STATE).partitions()[0].append(encode([record]))
    [line] = take(disk)
    assert "transactional id tx: is known here" in line


@pytest.mark.parametrize("marked", [(), PLACES])
def test_a_handover_needs_the_markers_of_a_committed_transaction(marked: tuple[TopicPartition, ...]) -> None:
    """A handover is refused if the daemon was killed between the decision to commit and the last marker.

    Without its marker the position would be lost, and a copier would copy the same records again. After a daemon has
    written the markers, records and positions are handed over.
    """
    disk = left(Status.PREPARE_COMMIT, version=0, directory=DATA)
    with served(disk, DATA) as engine:
        for place in marked:
            marker = encode_marker(
                EndTransactionMarker(ControlType.COMMIT, 0),
                timestamp=NOW,
                producer_id=PRODUCER,
                producer_epoch=0,
            )
            own(engine.partition(*place)).append(marker, origin=Origin.COORDINATOR)
    cluster = OwnCluster(disk)
    given = partial(
        Handover, [DATA], [LOG_DIR], report=lambda _: None, files=disk, with_open_transactions=True
    )
    with pytest.raises(StorageError, match="transactional id tx: its transaction is committed, but"):
        given().prepare(cluster)
    assert {} == cluster.known
    with served(disk, DATA) as engine:
        complete(engine)
    given().prepare(cluster)
    given().place()
    assert {"g": {PLACES[0]: Position(Offset(3))}} == cluster.groups
    assert contents(disk, DATA)[PLACES[0]] == contents(disk, LOG_DIR)[PLACES[0]]


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_a_directory_that_lacks_a_partition_of_a_coordinator_is_refused(topic: str) -> None:
    """If our directory lacks a partition of a coordinator's topic, the takeover is refused before it changes anything."""
    disk = left(Status.ONGOING)
    with served(disk, DATA) as engine:
        engine.create_topic(topic, partitions=3)
    lost = DATA / f"{topic}-1"
    for entry in disk.list_directory(lost):
        disk.unlink(lost / entry.name)
    disk.remove_directory(lost)
    before = disk.tree()
    with pytest.raises(StorageError, match=f"some partitions of {topic} are not here"):
        take(disk)
    assert before == disk.tree()
