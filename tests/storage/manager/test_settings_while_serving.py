"""Tests that topics, duties and replicas of a running engine use new settings immediately."""

from __future__ import annotations

import pytest

from tests.doubles.compacted_log import keyed_batch
from tests.doubles.engines import QUIET, TINY_SEGMENTS, append_lines, engine_on, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.replicated import Replicated
from tests.doubles.several_disks import break_disk
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.log.log import Log
from topicfs.storage.manager import LogManager

LINE = "x" * 50 + "\n"
"""A line. Three of these lines, each in its own batch, fill a tiny segment."""


@pytest.fixture
def engine(disk: SimulatedDisk, clock: ManualClock) -> LogManager:
    """An engine with nine records in tiny segments, none of them old enough for retention."""
    engine = engine_on(disk, clock=clock)
    engine.create_topic("t", overrides=TINY_SEGMENTS)
    engine.create_topic("own", overrides={**TINY_SEGMENTS, "retention.bytes": "-1"})
    for topic in ("t", "own"):
        for _ in range(9):
            append_lines(engine.partition(topic, 0), LINE, timestamp=clock())
    return engine


def with_defaults(config: EngineConfig, **settings: int | str | tuple[str, ...]) -> EngineConfig:
    return config._replace(topic_defaults=config.topic_defaults._replace(**settings))


def test_retention_goes_by_the_new_defaults(engine: LogManager, clock: ManualClock):
    """Retention uses the new defaults at its next run. A topic's own settings override the defaults."""
    engine.reconfigure(with_defaults(QUIET, retention_bytes=300))
    clock.advance(400_000)
    engine.maintenance(clock())
    assert len(read_lines(engine.partition("t", 0))) < 9
    assert 9 == len(read_lines(engine.partition("own", 0)))


def test_a_shorter_period_is_due_that_much_earlier(engine: LogManager, clock: ManualClock):
    """A shorter period counts from the time of the change, not from the start of the old period."""
    clock.advance(31_000)
    engine.maintenance(clock())
    engine.reconfigure(with_defaults(QUIET, retention_bytes=300)._replace(retention_check_interval_ms=1_000))
    clock.advance(1_000)
    engine.maintenance(clock())
    assert len(read_lines(engine.partition("t", 0))) < 9


def test_a_log_gets_the_settings_of_its_topic(engine: LogManager):
    """A log gets its topic's new settings, even a log that is created later."""
    engine.reconfigure(with_defaults(QUIET, flush_ms=7))
    made = engine.create_topic("later")
    for topic in (engine.topic("t"), made):
        (log,) = topic.partitions().values()
        assert isinstance(log, Log)
        assert (7, 7) == (topic.config.flush_ms, log.config.flush_ms)


def test_compaction_can_be_switched_off_and_on(disk: SimulatedDisk, clock: ManualClock):
    """log.cleaner.enable switches compaction off and on."""
    engine = engine_on(disk, clock=clock)
    overrides = {**TINY_SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    partition = engine.create_topic("c", overrides=overrides).partitions()[0]
    for _ in range(9):
        partition.append(keyed_batch((b"key", b"x" * 50)))
    engine.reconfigure(QUIET._replace(cleaner_enable=False))
    clock.advance(60_000)
    engine.maintenance(clock())
    assert 9 == len(read_lines(partition))
    engine.reconfigure(QUIET)
    clock.advance(60_000)
    engine.maintenance(clock())
    assert len(read_lines(partition)) < 9


def test_an_override_that_no_longer_fits_is_passed_over_with_a_warning(engine: LogManager):
    """An override that contradicts the new defaults is skipped with a warning, as at a start."""
    engine.alter_config("t", {"min.compaction.lag.ms": "5000"})
    engine.reconfigure(with_defaults(QUIET, max_compaction_lag_ms=1_000))
    assert any("t: setting ignored" in line for line in engine.warnings)
    assert 9 == len(read_lines(engine.partition("t", 0)))


def test_overrides_that_need_each_other_stay():
    """Overrides that are valid together stay, even if one override alone would contradict the new default."""
    engine = engine_on(SimulatedDisk())
    engine.create_topic("t", overrides={"min.compaction.lag.ms": "1000", "max.compaction.lag.ms": "2000"})
    engine.reconfigure(with_defaults(QUIET, max_compaction_lag_ms=500))
    config = engine.topic("t").config
    assert (1000, 2000) == (config.min_compaction_lag_ms, config.max_compaction_lag_ms)
    assert () == engine.warnings


def test_a_failing_directory_keeps_new_settings_from_no_other(monkeypatch: pytest.MonkeyPatch):
    """If a directory fails while settings are changed, all other directories get the new settings at once.

    The failed directory gets the settings when it returns.
    """
    three = Replicated(3, replicas=3)
    three.engine.create_topic("orders")
    first, second, third = three.engine._replica_dirs
    reconfigure = first.engine.reconfigure

    def reconfigure_as_the_next_one_fails(config: EngineConfig) -> None:
        reconfigure(config)
        second.fail("failed")

    monkeypatch.setattr(first.engine, "reconfigure", reconfigure_as_the_next_one_fails)
    three.engine.reconfigure(with_defaults(three.config, retention_bytes=300))
    assert 300 == third.engine.topic("orders").config.retention_bytes
    three.bring_back(2)
    assert 300 == second.engine.topic("orders").config.retention_bytes


def test_all_replicas_get_new_settings():
    """All replicas get the settings: the leader, the followers, and a replica that returns later."""
    two = Replicated()
    two.engine.create_topic("orders")
    break_disk(two.disk(2))
    two.append("a\n")
    two.engine.reconfigure(with_defaults(two.config, retention_bytes=300, min_insync_replicas=2))
    assert 300 == two.engine.topic("orders").config.retention_bytes
    two.bring_back(2)
    for member in two.engine._replica_dirs.serving:
        assert 300 == member.engine.topic("orders").config.retention_bytes
    assert 2 == two.partition().config.min_insync_replicas


def test_settings_that_are_read_only_at_the_start_wait(engine: LogManager, disk: SimulatedDisk):
    """The node ID and the expiration of producers change only at the next start."""
    engine.reconfigure(QUIET._replace(node_id=9, producer_id_expiration_ms=1))
    assert (1, 86_400_000) == (
        engine._directories.config.node_id,
        engine._directories.config.producer_id_expiration_ms,
    )


def test_a_read_only_engine_shows_new_settings(engine: LogManager, disk: SimulatedDisk):
    """A read-only engine shows the new settings and writes nothing."""
    engine.close()
    looking = engine_on(disk.read_only_view())
    before = disk.tree()
    looking.reconfigure(with_defaults(QUIET, retention_bytes=300))
    assert 300 == looking.topic("t").config.retention_bytes
    looking.close()
    assert before == disk.tree()
