"""Tests of an engine's counts: appends, records, bytes, rolls, flushes, cleanings, recoveries, replicas in sync."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

from tests.doubles.engines import TINY_SEGMENTS, append_lines, engine_on
from tests.doubles.records import encode, records
from tests.doubles.replicated import Replicated
from tests.doubles.several_disks import break_disk
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.counts.engine_counts import BUCKETS, OTHERS, Durations, EngineCounts
from topicfs.storage.errors import StorageError
from topicfs.storage.manager import open_engine
from topicfs.storage.model import Isolation, Offset


def appended(counts: EngineCounts, topic: str) -> tuple[int, int, int, int]:
    """Return the numbers of appends, batches, records and bytes."""
    one = counts.by_topic()[topic]
    return (
        one.small_appends + one.larger_appends,
        one.small_appends + one.batches,
        one.records,
        one.bytes_appended,
    )


def test_each_way_of_an_append_is_counted_once(engine):
    """Each append is counted once, whether it is small or large, and whether it is of a client or of this process.

    A refused append is not counted.
    """
    partition = engine.create_topic("orders").partitions()[0]
    size = 0
    for text in ("a\n", "b\nc\n", "d" * 5000 + "\n"):
        (batch,) = encode_lines(text.encode(), timestamp=1_700_000_000_000)
        size += len(batch)
        partition.append(batch, encoded_here=True)
    append_lines(partition, "e\nf\n")
    assert (4, 4, 6, partition.summary().log_bytes) == appended(engine.counts, "orders")
    assert partition.summary().log_bytes > size
    with pytest.raises(StorageError):
        partition.append(bytearray(b"no batch at all" * 10))
    assert 4 == appended(engine.counts, "orders")[0]


def test_bytes_that_readers_were_given_are_counted(engine):
    """The bytes of a batch are counted each time the batch is read."""
    partition = engine.create_topic("orders").partitions()[0]
    append_lines(partition, "a\nb\n")
    size = partition.summary().log_bytes
    for _ in range(2):
        partition.read(Offset(0), max_bytes=1 << 20)
    partition.read(Offset(2), max_bytes=1 << 20, isolation=Isolation.READ_UNCOMMITTED)
    assert 2 * size == engine.counts.by_topic()["orders"].reads.size_bytes


def test_rolls_and_flushes_are_counted(engine):
    """Each roll is counted. A flush of a log is counted once, and only if there is something to sync."""
    partition = engine.create_topic("orders", overrides=TINY_SEGMENTS).partitions()[0]
    for number in range(8):
        append_lines(partition, f"{number}" * 60 + "\n")
    assert len(partition.segments()) - 1 == engine.counts.rolls > 0
    before = sum(engine.counts.flushes.buckets)
    partition.sync()
    partition.sync()
    assert before + 1 == sum(engine.counts.flushes.buckets)


def test_a_cleaning_is_counted_with_what_it_made_free(engine, clock):
    """A cleaning is counted with the bytes that it freed."""
    overrides = {**TINY_SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    partition = engine.create_topic("prices", overrides=overrides).partitions()[0]
    for number in range(12):
        partition.append(encode(records([b"%d" % number * 40], key=b"k", timestamp=clock())))
    before = partition.summary().log_bytes
    engine.maintain_now(clock())
    assert 1 == engine.counts.cleanings
    assert before - partition.summary().log_bytes == engine.counts.cleaned_bytes > 0


def test_logs_that_were_not_closed_in_order_are_counted_as_recovered():
    """If a log is recovered after an unclean stop, the recovery is counted with the bytes that it removed.

    A cleanly closed log is not recovered, and so is not counted.
    """
    disk = SimulatedDisk()
    append_lines(engine_on(disk).create_topic("orders").partitions()[0], "a\n")
    torn = Path("/data/orders-0/00000000000000000000.log")
    file = disk.open(torn)
    file.pwrite(b"torn", file.size())
    again = engine_on(disk)
    assert (1, 4) == (again.counts.recoveries, again.counts.recovery_bytes_cut)
    again.close()
    assert 0 == engine_on(disk).counts.recoveries


def test_replicas_that_fall_out_of_sync_and_come_back_are_counted():
    """Each replica that leaves or joins the ISR is counted.

    An append of a client is counted once, however many replicas get it.
    """
    two = Replicated()
    two.engine.create_topic("orders")
    two.append("a\nb\n")
    assert (1, 1, 2) == appended(two.engine.counts, "orders")[:3]
    break_disk(two.disk(2))
    two.append("c\n")
    assert (1, 0) == (two.engine.counts.isr_shrinks, two.engine.counts.isr_expands)
    assert (False, 1) == (two.partition().summary().offline, two.partition().summary().missing_replicas)


def test_beyond_the_bound_topics_are_counted_together():
    """Topics beyond `max_topics` are counted together as OTHERS."""
    counts = EngineCounts(max_topics=2)
    for number, name in enumerate(("a", "b", "c", "d"), 1):
        counts.topic(name).records += number
    assert {"a": 1, "b": 2, OTHERS: 7} == {name: one.records for name, one in counts.by_topic().items()}


def test_no_sum_goes_back_when_a_topic_is_deleted(engine):
    """The counts of a deleted topic are added to OTHERS, and a new topic of its name starts at 0."""
    append_lines(engine.create_topic("orders").partitions()[0], "a\nb\n")
    engine.delete_topic("orders")
    append_lines(engine.create_topic("orders").partitions()[0], "c\n")
    assert (2, 1) == (appended(engine.counts, OTHERS)[2], appended(engine.counts, "orders")[2])


def test_durations_are_counted_by_powers_of_two():
    """Durations are counted in buckets of powers of two.

    A negative duration is in the first bucket. A duration that is too long for the other buckets is in the last
    bucket.
    """
    durations = Durations()
    for nanoseconds in (-1, 0, 1, 2, 3, 4, 1 << 60):
        durations.note(nanoseconds)
    expected = [2, 1, 2, 1, *[0] * (BUCKETS - 5), 1]
    assert expected == durations.buckets


def test_threads_lose_no_count(tmp_path: Path):
    """Concurrent appends to partitions of one topic are all counted."""
    engine = open_engine(tmp_path / "data")
    partitions = engine.create_topic("orders", partitions=4).partitions()

    def write(number: int) -> None:
        for _ in range(500):
            append_lines(partitions[number], "a\nb\n")

    threads = [Thread(target=write, args=(number,)) for number in partitions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (2000, 2000, 4000) == appended(engine.counts, "orders")[:3]
    engine.close()
