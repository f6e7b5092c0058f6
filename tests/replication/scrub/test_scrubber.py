"""Tests of when a scrub is due, how it continues after an interruption, and how it treats single copies."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from tests.doubles.damage import flip
from tests.doubles.engines import append_lines
from tests.doubles.manual_clock import ManualClock
from topicfs.replication import EmbeddedEngine, open_engine
from topicfs.replication.scrub.findings import ScrubFinding
from topicfs.replication.scrub.scrubber import (
    MILLISECONDS_AN_HOUR,
    ScrubPosition,
    read_position,
    write_position,
)
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.names import LEADER_EPOCHS, SCRUB
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.duties.schedule import SCRUB_DELAY_MS, SCRUB_PERIOD_MS
from topicfs.storage.log.life import Event
from topicfs.storage.manager import Machine

FILES = NativeFileSystem()
HOURS = 24


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(tmp_path, clock):
    """An engine of two topics, each with a few segments, on a real disk."""
    config = EngineConfig(
        scrub_interval_hours=HOURS,
        topic_defaults=TopicConfig(
            internal_segment_bytes=500, index_interval_bytes=100, segment_index_bytes=1200
        ),
    )
    found = open_engine(tmp_path / "data", config=config, machine=Machine(clock=clock))
    for name in ("alpha", "beta"):
        topic = found.create_topic(name)
        for number in range(20):
            append_lines(topic.partitions()[0], f"line {number} {'x' * 40}\n")
    yield found
    found.close()


def position(tmp_path: Path) -> ScrubPosition | None:
    return read_position(FILES, tmp_path / "data")


def interrupt(tmp_path: Path, partition: str = "beta-0", **fields: object) -> None:
    """Save the position of an interrupted scrub of all partitions."""
    begun = ScrubPosition(**{"began": 1, "partition": partition, "offset": 8, "whole": True, **fields})
    write_position(FILES, tmp_path / "data", begun)


def scrub(engine: EmbeddedEngine, advance: Callable[[int], object] = lambda _: None) -> list[ScrubFinding]:
    """Scrub all partitions; return the findings."""
    found: list[ScrubFinding] = []
    assert engine.scrubber.run(advance=advance, tell=found.append)
    return found


def wait_for_scrub(engine: EmbeddedEngine) -> None:
    """Wait until the scrub's thread has ended."""
    thread = engine.scrubber._thread
    if thread is not None:
        thread.join(60)
        assert not thread.is_alive()


def test_the_first_scrub_is_due_an_interval_after_the_first_look(engine, clock, tmp_path):
    """A new directory is scrubbed after one interval. The interval's start is saved, so a restart does not reset it."""
    clock.now += SCRUB_DELAY_MS
    engine.maintenance(clock())
    began = clock()
    assert ScrubPosition(began, ended=began) == position(tmp_path)
    clock.now += HOURS * MILLISECONDS_AN_HOUR - 1
    engine.maintenance(clock())
    assert engine.scrub is None
    clock.now += SCRUB_PERIOD_MS
    engine.maintenance(clock())
    wait_for_scrub(engine)
    assert engine.scrub is not None
    ended = position(tmp_path)
    assert ended is not None
    assert ended.ended is not None
    assert ended.ended >= began + HOURS * MILLISECONDS_AN_HOUR


def test_a_scrub_that_is_being_started_is_waited_for_by_the_close(engine, clock, monkeypatch):
    """A close waits even for a scrub that a duty is just starting."""
    failures = []

    def close() -> None:
        try:
            engine.scrubber.stop()
        except RuntimeError as error:
            failures.append(error)

    closing = Thread(target=close)

    class Starting(Thread):
        """A thread whose start waits while another thread closes the engine."""

        def start(self) -> None:
            closing.start()
            closing.join(0.05)  # Long enough for a close that does not wait.
            super().start()

    monkeypatch.setattr("topicfs.replication.scrub.scrubber.Thread", Starting)
    for hours in (0, HOURS):
        clock.advance(hours * MILLISECONDS_AN_HOUR)
        engine.scrubber.maintain(clock(), HOURS)
    closing.join()
    assert [] == failures
    assert not engine.scrubber._thread.is_alive()


def test_the_duty_opens_no_partition(engine, clock, tmp_path):
    """The duty skips unopened partitions, because otherwise thousands of partitions would stay open.

    A requested scrub reads all partitions.
    """
    engine.close()
    config = EngineConfig(scrub_interval_hours=HOURS)
    again = open_engine(tmp_path / "data", config=config, max_opened_at_start=0, machine=Machine(clock=clock))
    again.topics()["beta"].partitions()[0]
    assert again.scrubber.run(only_open=True)
    assert [0, 1] == [len(again.topics()[name].opened()) for name in ("alpha", "beta")]
    one = again.scrubber.counts.read_bytes
    assert again.scrubber.run()
    assert [1, 1] == [len(again.topics()[name].opened()) for name in ("alpha", "beta")]
    assert 3 * one == again.scrubber.counts.read_bytes
    again.close()


def test_with_the_interval_0_no_scrub_is_due(engine, clock, tmp_path):
    """With the interval 0 no scrub is ever due, and no file is written."""
    engine.scrubber.maintain(clock(), 0)
    assert position(tmp_path) is None


def test_an_interrupted_scrub_continues_where_it_was(engine, tmp_path):
    """A resumed scrub does not read again the partitions before the saved position."""
    interrupt(tmp_path, topic_id=engine.topic("beta").topic_id)
    assert engine.scrubber.run()
    whole = sum(one.partitions()[0].status().log_bytes for one in engine.topics().values())
    assert 0 < engine.scrubber.counts.read_bytes < whole / 2
    done = position(tmp_path)
    assert done is not None
    assert (1, True) == (done.began, done.ended is not None)


def test_a_topic_created_again_is_scrubbed_from_its_front(engine, tmp_path):
    """A topic that was created again is scrubbed from its start. The saved position belongs to the former topic."""
    interrupt(tmp_path, topic_id=engine.topic("beta").topic_id)
    engine.delete_topic("beta")
    log = engine.create_topic("beta").partitions()[0]
    for number in range(20):
        append_lines(log, f"line {number} {'x' * 40}\n")
    assert engine.scrubber.run()
    assert log.status().log_bytes == engine.scrubber.counts.read_bytes


def test_the_duty_continues_any_scrub_and_a_full_scrub_only_a_full_one(engine, tmp_path):
    """The duty continues any scrub. A full scrub continues only a full scrub: the duty's scrubs skip partitions."""
    whole = sum(one.partitions()[0].status().log_bytes for one in engine.topics().values())
    for given, only_open, reads_all in ((True, True, False), (False, True, False), (False, False, True)):
        interrupt(tmp_path, whole=given, damaged=2)
        before = engine.scrubber.counts.read_bytes
        assert engine.scrubber.run(only_open=only_open)
        assert reads_all == (engine.scrubber.counts.read_bytes - before == whole)
        done = position(tmp_path)
        assert done is not None
        assert (not only_open, 0 if reads_all else 2) == (done.whole, done.damaged)


def test_a_stopped_scrub_saves_its_position(engine, tmp_path):
    """Closing the engine stops the scrub after its current step, and the scrub's position is saved."""
    assert not engine.scrubber.run(advance=lambda _: engine.scrubber._stopping.set())
    stopped = position(tmp_path)
    assert stopped is not None
    assert ("alpha-0", None) == (stopped.partition, stopped.ended)


def test_a_scrub_can_begin_at_the_front(engine, tmp_path):
    """A scrub can be started from the first partition although the previous scrub was interrupted."""
    interrupt(tmp_path)
    engine.scrubber.restart()
    total = engine.scrubber.total_bytes()
    assert engine.scrubber.run()
    assert total == engine.scrubber.counts.read_bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        '{"version": 2}',
        '{"version": 1, "began": "x"}',
        "\x00\xff",
        '{"version": 1, "began": 1}',
    ],
)
def test_a_position_that_cannot_be_read_is_none(engine, tmp_path, text):
    """A scrub whose saved position cannot be read begins with the first partition."""
    (tmp_path / "data" / SCRUB).write_text(text, encoding="latin-1")
    assert position(tmp_path) is None
    assert engine.scrubber.run()


def test_a_position_of_a_topic_that_is_gone_is_passed(engine, tmp_path):
    """If the topic of the saved position was deleted, the scrub continues with the next topic in order."""
    interrupt(tmp_path, "beaver-0")
    assert engine.scrubber.run()
    beta = engine.topic("beta").partitions()[0]
    assert beta.status().log_bytes == engine.scrubber.counts.read_bytes


def test_damage_without_a_replica_is_reported_and_left(engine):
    """The engine warns of damage in a partition without replicas, and checks the batches after the damage."""
    log = engine.topic("alpha").partitions()[0]
    path = log.chain.segments[0].log.path
    before = path.read_bytes()
    batch = log.chain.segments[0].find_batch(1, log.chain.segments[0].size)
    assert batch is not None
    for at in (batch.position + 65, log.chain.segments[0].size - 3):
        flip(path, at, 64)
    found = scrub(engine)
    assert [batch.position, None] == [found[0].finding.position, found[0].healed_from]
    assert 2 == len(found) == engine.scrubber.counts.damaged
    assert any("checksum" in line for line in engine.warnings)
    assert before != path.read_bytes()


def test_an_index_without_a_replica_is_made_again(engine):
    """The index is rebuilt from the batches, and the log does not change."""
    log = engine.topic("alpha").partitions()[0]
    for kind in (".index", ".timeindex"):
        path = log.chain.segments[0].log.path.with_suffix(kind)
        before = path.read_bytes()
        flip(path, 2, 64)
        assert ["its batches"] == [one.healed_from for one in scrub(engine)]
        assert before == path.read_bytes()


def test_a_topic_that_is_deleted_meanwhile_is_no_damage(engine, clock):
    """A topic that was deleted after the scrub had listed it does not count as damaged."""

    def delete(_: int) -> None:
        if "beta" in engine.topics():
            engine.delete_topic("beta")
            clock.advance(120_000)
            engine._look_after_directories(clock())

    assert ([], 0) == (scrub(engine, delete), engine.scrubber.damaged)


def test_a_scrub_that_is_asked_for_begins_at_the_front_and_is_reported(engine, tmp_path):
    """A requested scrub of a serving engine begins with the first partition, even after an interrupted scrub."""
    interrupt(tmp_path, offset=0)
    assert "state idle" == engine.scrubber.report()[0]
    engine.scrubber.start()
    asked_for = engine.scrubber._asked_for
    assert asked_for is not None
    asked_for.join(60)
    state, counts, damaged = engine.scrubber.report()
    logs = [topic.partitions()[0].parts.state.log_bytes() for topic in engine.topics().values()]
    assert ("state idle", "damaged 0") == (state, damaged)
    assert f"scrub read_bytes {sum(logs)} batches_healed 0 files_healed 0 damaged 0" == counts


def test_a_partition_that_cannot_be_read_to_its_end_is_left(engine):
    """A partition that cannot be read to its end is named and counted, and the other partitions are scrubbed."""
    log = engine.topic("alpha").partitions()[0]
    epochs = log.directory / LEADER_EPOCHS
    epochs.unlink(missing_ok=True)
    epochs.mkdir()
    found = scrub(engine)
    (line,) = map(str, found)
    assert line.startswith(f"alpha-0: not scrubbed to its end: {epochs}: position 0: a directory")
    assert (1, 1) == (engine.scrubber.damaged, engine.scrubber.counts.damaged)
    assert engine.scrubber.counts.read_bytes == engine.topic("beta").partitions()[0].parts.state.log_bytes()
    epochs.rmdir()


def test_a_partition_that_went_offline_is_left(engine):
    """A partition that goes offline before or during its scrub is skipped."""
    log = engine.topic("alpha").partitions()[0]
    for advance in (lambda _: log.parts.life.note(Event.FAIL, "the disk is gone"), lambda _: None):
        found = scrub(engine, advance)
        assert ([log.directory], 1) == ([one.finding.file for one in found], engine.scrubber.damaged)
        assert "the disk is gone" in found[0].finding.cause


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_is_deleted_while_it_is_read_is_no_damage(engine, again):
    """A topic that is deleted during its scrub is not reported as damaged, even if a new topic has its name."""

    def delete(_: int) -> None:
        if alpha is engine.topics().get("alpha"):
            engine.delete_topic("alpha")
            if again:
                engine.create_topic("alpha")
            raise OSError(errno.EIO, "the files are gone")

    alpha = engine.topics()["alpha"]
    assert ([], 0) == (scrub(engine, delete), engine.scrubber.damaged)
