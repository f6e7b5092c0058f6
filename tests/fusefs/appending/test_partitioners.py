"""Which partition a record goes to."""

from __future__ import annotations

import pytest

from topicfs.fusefs.appending.partitioners import (
    BATCH_SIZE,
    KafkaPartitioner,
    KeyedValue,
    OwnPartitioner,
    RoundRobinPartitioner,
    partitioner_factory,
)
from topicfs.storage.errors import InvalidConfigError, InvalidRecordError
from topicfs.storage.partitioning import murmur2, partition_of_key


def signed(number: int) -> int:
    """The same 32 bits as Java's int."""
    return number - 2**32 if number >= 2**31 else number


@pytest.mark.parametrize(
    ("key", "digest"),
    [(b"", 275646681), (b"21", -973932308), (b"foobar", -790332482), (b"abc", 479470107)],
)
def test_the_golden_hashes(key: bytes, digest: int):
    """Row 150: golden values of Kafka's own murmur2."""
    assert signed(murmur2(key)) == digest


def test_a_key_always_goes_to_the_partition_of_its_hash():
    """As every Kafka producer has it: toPositive(murmur2) modulo the number of partitions."""
    chosen = KafkaPartitioner().for_records([KeyedValue(b"21", b""), KeyedValue(b"abc", b"")], 7)

    assert [(2**31 - 973932308) % 7, 479470107 % 7] == chosen


def test_without_keys_one_partition_is_kept_for_a_batch():
    """Sticky: small writes go to one partition until a batch's size has passed, then to the next choice."""
    picks = iter([2, 0, 1])
    partitioner = KafkaPartitioner(pick=lambda partitions: next(picks))

    chosen = [partitioner.for_unkeyed(BATCH_SIZE // 2, 3) for _ in range(5)]

    assert [2, 2, 0, 0, 1] == chosen


def test_the_sticky_partition_is_one_that_exists():
    """What was chosen among many is not kept where there are fewer, as in another topic of the same name."""
    partitioner = KafkaPartitioner(pick=lambda partitions: partitions - 1)
    partitioner.for_unkeyed(1, 5)

    assert 1 == partitioner.for_unkeyed(1, 2)


def test_without_keys_a_partition_without_a_leader_is_left_out():
    """Unless none has one; a partition that loses its leader is left at once. Keys go where they always go."""
    partitioner = KafkaPartitioner(pick=lambda count: count - 1)
    assert 2 == partitioner.for_unkeyed(1, 3)
    assert 1 == partitioner.for_unkeyed(1, 3, lambda number: number != 2)
    records = [KeyedValue(b"k", b"v"), KeyedValue(None, b"v")]
    assert [partition_of_key(b"k", 3), 0] == partitioner.for_records(records, 3, lambda number: number == 0)
    assert 2 == partitioner.for_unkeyed(1, 3, lambda _: False)


def test_keyless_records_among_keyed_ones_stay_together():
    """In one write the keyless ones share the sticky partition, whatever their values are."""
    partitioner = KafkaPartitioner(pick=lambda partitions: 1)

    chosen = partitioner.for_records(
        [KeyedValue(None, b"x"), KeyedValue(b"abc", b"y"), KeyedValue(None, None)], 2
    )

    assert [1, 479470107 % 2, 1] == chosen


def test_round_robin_deals_record_by_record_over_writes():
    """The turn goes on where the last write ended."""
    partitioner = RoundRobinPartitioner()
    record = KeyedValue(b"k", b"v")

    assert partitioner.for_unkeyed(100, 3) is None
    assert [[0, 1], [2, 0]] == [partitioner.for_records([record] * count, 3) for count in (2, 2)]


def by_length(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
    """A user's partitioner."""
    return len(value or b"") % partitions


def test_a_function_of_the_users_is_found_by_name():
    """`module:function` gets topic, key, value and the number of partitions."""
    partitioner = partitioner_factory(f"{__name__}:by_length")("orders")

    assert [1, 0] == partitioner.for_records([KeyedValue(None, b"four"), KeyedValue(None, None)], 3)


@pytest.mark.parametrize("name", ["murmur", "os:no_such_thing", "no_such_module:f", "os:sep"])
def test_a_name_that_is_no_partitioner_is_refused(name: str):
    """At the mount's start, not at the first record."""
    with pytest.raises(InvalidConfigError, match=name):
        partitioner_factory(name)


@pytest.mark.parametrize("answer", [-1, 3, "0", None])
def test_an_answer_that_is_no_partition_refuses_the_record(answer: object):
    """Nothing goes astray for a bad function."""
    partitioner = OwnPartitioner("orders", lambda *_: answer)  # type: ignore[arg-type, return-value]

    with pytest.raises(InvalidRecordError):
        partitioner.for_records([KeyedValue(None, b"")], 3)


def test_a_function_that_fails_refuses_the_record():
    """Its exception is the reason."""

    def failing(*_: object) -> int:
        raise KeyError("customer")

    with pytest.raises(InvalidRecordError, match="customer"):
        OwnPartitioner("orders", failing).for_records([KeyedValue(None, b"")], 3)
