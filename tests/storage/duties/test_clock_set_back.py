"""Tests that no duty waits ten days after the clock was set back by ten days."""

from __future__ import annotations

from tests.doubles.engines import append_lines, listing
from tests.doubles.logs import filled

TEN_DAYS_MS = 10 * 24 * 3600 * 1000


def test_deleted_segments_go_after_their_delay():
    """The delay of a deletion counts from the first check after the clock was set back.

    So a reader keeps the deleted files for at least the whole delay.
    """
    on_disk = filled(6, file_delete_delay_ms=1000)
    on_disk.log.replacer.delete_oldest_segments(1, "test")
    on_disk.clock.advance(-TEN_DAYS_MS)
    assert [] == on_disk.log.replacer.remove_deleted_files(on_disk.clock())
    on_disk.clock.advance(999)
    assert [] == on_disk.log.replacer.remove_deleted_files(on_disk.clock())
    on_disk.clock.advance(1)
    assert on_disk.log.replacer.remove_deleted_files(on_disk.clock())
    assert [] == on_disk.temporary_files()


def test_deleted_partitions_go_after_their_topics_delay(disk, engine, clock):
    """A deleted partition is removed after its topic's own delay, even if this delay is longer than the default."""
    engine.create_topic("t", overrides={"file.delete.delay.ms": "90000"})
    engine.delete_topic("t")
    clock.advance(-TEN_DAYS_MS)
    engine.maintenance(clock())
    clock.advance(89_000)
    engine.maintenance(clock())
    assert 1 == sum(name.endswith("-delete") for name in listing(disk))
    clock.advance(1_000)
    engine.maintenance(clock())
    assert 0 == sum(name.endswith("-delete") for name in listing(disk))
    engine.close()


def test_unflushed_records_are_due(engine, clock):
    """If the last flush appears to be in the future, a flush by flush.ms is due immediately."""
    log = engine.create_topic("t", overrides={"flush.ms": "1000"}).partitions()[0]
    append_lines(log, "a\n")
    log.appender.flush_if_due(clock())
    assert 0 == log.recovery_point
    clock.advance(-TEN_DAYS_MS)
    log.appender.flush_if_due(clock())
    assert 1 == log.recovery_point
    engine.close()
