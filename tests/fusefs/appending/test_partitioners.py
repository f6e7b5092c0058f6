"""The partitioners, which choose the partition of each record."""

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
    """Return the 32 bits of `number` as Java's signed int."""
    return number - 2**32 if number >= 2**31 else number


@pytest.mark.parametrize(
    ("key", "digest"),
    [(b"", 275646681), (b"21", -973932308), (b"foobar", -790332482), (b"abc", 479470107)],
)
def test_the_golden_hashes(key: bytes, digest: int):
    """Row 150: murmur2 returns the values that Kafka's unit tests expect."""
    assert signed(murmur2(key)) == digest


def test_a_key_always_goes_to_the_partition_of_its_hash():
    """The partition of a key is toPositive(murmur2(key)) modulo the number of partitions, as in Kafka's producers."""
    chosen = KafkaPartitioner().for_records([KeyedValue(b"21", b""), KeyedValue(b"abc", b"")], 7)

    assert [(2**31 - 973932308) % 7, 479470107 % 7] == chosen


def test_without_keys_one_partition_is_kept_for_a_batch():
    """Records without keys go to one partition until BATCH_SIZE bytes are written, and then to another partition."""
    picks = iter([2, 0, 1])
    partitioner = KafkaPartitioner(pick=lambda partitions: next(picks))

    chosen = [partitioner.for_unkeyed(BATCH_SIZE // 2, 3) for _ in range(5)]

    assert [2, 2, 0, 0, 1] == chosen


def test_the_sticky_partition_is_one_that_exists():
    """If a topic has no partition with the number of the sticky partition, another partition is chosen."""
    partitioner = KafkaPartitioner(pick=lambda partitions: partitions - 1)
    partitioner.for_unkeyed(1, 5)

    assert 1 == partitioner.for_unkeyed(1, 2)


def test_without_keys_a_partition_without_a_leader_is_left_out():
    """If possible, records without keys go to partitions with a leader. A key's partition is independent of leaders."""
    partitioner = KafkaPartitioner(pick=lambda count: count - 1)
    assert 2 == partitioner.for_unkeyed(1, 3)
    assert 1 == partitioner.for_unkeyed(1, 3, lambda number: number != 2)
    records = [KeyedValue(b"k", b"v"), KeyedValue(None, b"v")]
    assert [partition_of_key(b"k", 3), 0] == partitioner.for_records(records, 3, lambda number: number == 0)
    assert 2 == partitioner.for_unkeyed(1, 3, lambda _: False)


def test_keyless_records_among_keyed_ones_stay_together():
    """In one write, all records without keys go to the sticky partition, even between records with keys."""
    partitioner = KafkaPartitioner(pick=lambda partitions: 1)

    chosen = partitioner.for_records(
        [KeyedValue(None, b"x"), KeyedValue(b"abc", b"y"), KeyedValue(None, None)], 2
    )

    assert [1, 479470107 % 2, 1] == chosen


def test_round_robin_deals_record_by_record_over_writes():
    """Round robin assigns each record to the next partition, and continues across writes."""
    partitioner = RoundRobinPartitioner()
    record = KeyedValue(b"k", b"v")

    assert partitioner.for_unkeyed(100, 3) is None
    assert [[0, 1], [2, 0]] == [partitioner.for_records([record] * count, 3) for count in (2, 2)]


def by_length(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
    """A user's partitioner that chooses the partition by the length of the value."""
    return len(value or b"") % partitions


def test_a_function_of_the_users_is_found_by_name():
    """A partitioner is found by its name `module:function`, and called with topic, key, value and partition count."""
    partitioner = partitioner_factory(f"{__name__}:by_length")("orders")

    assert [1, 0] == partitioner.for_records([KeyedValue(None, b"four"), KeyedValue(None, None)], 3)


@pytest.mark.parametrize("name", ["murmur", "os:no_such_thing", "no_such_module:f", "os:sep"])
def test_an_unknown_partitioner_is_refused(name: str):
    """An unknown partitioner is refused when it is created, so that the mount fails at its start."""
    with pytest.raises(InvalidConfigError, match=name):
        partitioner_factory(name)


@pytest.mark.parametrize("answer", [-1, 3, "0", None])
def test_an_invalid_partition_of_a_users_function_refuses_the_record(answer: object):
    """If a user's function returns anything but an existing partition, the record is refused."""
    partitioner = OwnPartitioner("orders", lambda *_: answer)  # type: ignore[arg-type, return-value]

    with pytest.raises(InvalidRecordError):
        partitioner.for_records([KeyedValue(None, b"")], 3)


def test_a_function_that_fails_refuses_the_record():
    """If a user's function raises an exception, the record is refused, and the exception is the reason."""

    def failing(*_: object) -> int:
        raise KeyError("customer")

    with pytest.raises(InvalidRecordError, match="customer"):
        OwnPartitioner("orders", failing).for_records([KeyedValue(None, b"")], 3)
