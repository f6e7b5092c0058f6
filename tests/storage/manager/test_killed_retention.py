"""Tests that a kill or power loss during retention loses no kept record and brings back no deleted record.

A round of retention is a roll, the move of the log start, the renames to `.deleted`, the checkpoints and, after
file.delete.delay.ms, the unlinks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.doubles.engines import DATA, TINY_SEGMENTS, append_lines, engine_on, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.manual_flusher import ManualFlusher
from tests.doubles.mortal_disk import End, MortalDisk, dies, every_step
from topicfs.storage.disk.names import parse_segment_file
from topicfs.storage.engine import Partition
from topicfs.storage.manager import LogManager
from topicfs.storage.model import Offset

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
DELAY_MS = 60_000
OLD, YOUNG = 7, 5
RECORDS = OLD + YOUNG


class Topic:
    """A flushed and checkpointed partition whose first records are two hours older than the other records."""

    def __init__(self, seed: int, overrides: dict[str, str]) -> None:
        self.disk = MortalDisk(seed=seed)
        self.clock = ManualClock()
        self.flusher = ManualFlusher()
        self.engine = self._open()
        self.engine.create_topic("orders", overrides={**TINY_SEGMENTS, "file.delete.delay.ms": str(DELAY_MS)})
        for number in range(RECORDS):
            if number == OLD:
                self.clock.advance(2 * HOUR_MS)
            append_lines(self.partition, value(number) + "\n", timestamp=self.clock.now)
        self.told = 0
        """The log start that the last `delete_records` has returned."""
        self.partition.sync()
        self.flusher.run()
        self.engine.maintain_now(self.clock())
        self.engine.alter_config("orders", overrides)

    def _open(self) -> LogManager:
        return engine_on(self.disk, clock=self.clock, flusher=self.flusher)

    @property
    def partition(self) -> Partition:
        return self.engine.partition("orders", 0)

    def delete_records(self, before: int) -> None:
        """Delete records as a write to the mount's `start` does: the start is on disk when the call returns."""
        self.told = self.partition.delete_records(Offset(before))
        self.engine.keep_log_starts()

    def round(self) -> None:
        """Run retention, and unlink the files after the delay."""
        self.engine.maintain_now(self.clock())
        self.flusher.run()
        self.clock.advance(DELAY_MS)
        self.engine.maintain_now(self.clock())

    def reopen(self) -> None:
        self.flusher = ManualFlusher()
        self.engine = self._open()

    def names(self) -> set[str]:
        return {entry.name for entry in self.disk.list_directory(DATA / "orders-0")}


def value(number: int) -> str:
    return f"record {number:03d}"


def by_time(topic: Topic) -> None:
    """Let retention delete the older records."""


def all_by_time(topic: Topic) -> None:
    """Let retention delete all records, which rolls the log."""
    topic.clock.advance(2 * HOUR_MS)


def by_log_start(topic: Topic) -> None:
    """Move the log start into a segment."""
    topic.delete_records(5)


def by_log_start_at_a_segment(topic: Topic) -> None:
    """Move the log start to the base offset of a segment.

    After the older segments are removed, this offset is the lowest offset in the file names. The engine is opened
    again, so that only the removal of the older segments is left to do.
    """
    topic.delete_records(6)
    topic.engine.close()
    topic.reopen()


def up_to_a_promised_start(topic: Topic) -> None:
    """Move the log start to an offset that retention by age will pass later."""
    topic.delete_records(2)


def all_by_log_start(topic: Topic) -> None:
    """Move the log start to the end, where an empty segment replaces the others."""
    topic.delete_records(RECORDS)


@dataclass(frozen=True)
class Case:
    """A reason for retention to delete segments."""

    overrides: dict[str, str]
    prepare: Callable[[Topic], None]
    start: int
    """The log start after a round of retention."""

    def topic(self, seed: int) -> Topic:
        topic = Topic(seed, self.overrides)
        self.prepare(topic)
        return topic


AGE = {"retention.ms": str(HOUR_MS)}
CASES = {
    "by time": Case(AGE, by_time, 6),
    "all by time": Case(AGE, all_by_time, RECORDS),
    "by size": Case({"retention.bytes": "500"}, by_time, 3),
    "by log start": Case({}, by_log_start, 5),
    "by log start at a segment": Case({}, by_log_start_at_a_segment, 6),
    "all by log start": Case({}, all_by_log_start, RECORDS),
    "by time beyond a log start": Case(AGE, up_to_a_promised_start, 6),
}


def check(topic: Topic, case: Case, where: str) -> None:
    """Check that no record from the log start on is lost, and that the start is in the allowed range."""
    assert topic.partition.offline_reason is None, where
    offsets = topic.partition.offsets()
    assert topic.told <= offsets.log_start_offset <= case.start, where
    assert RECORDS == offsets.log_end_offset, where
    assert [value(number) for number in range(offsets.log_start_offset, RECORDS)] == read_lines(
        topic.partition
    ), where


def check_finished(topic: Topic, case: Case, where: str) -> None:
    """Check that the next round completes the first round and leaves no other files."""
    topic.round()
    assert case.start == topic.partition.offsets().log_start_offset, where
    check(topic, case, where)
    assert () == topic.engine.warnings, where
    bases = {segment.base_offset for segment in topic.partition.segments()}
    for name in topic.names():
        parsed = parse_segment_file(name)
        if parsed is None:
            # The next write of this small file overwrites its temporary file.
            assert name.removesuffix(".tmp") in {"leader-epoch-checkpoint", "partition.metadata"}, where
        elif not name.endswith(".snapshot"):
            assert (parsed.base_offset in bases, "") == (True, parsed.state.value), f"{where}: {name}"


@pytest.mark.parametrize("end", End, ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_retention_killed_at_any_step_loses_nothing(case: Case, end: End) -> None:
    """After a kill or power loss at any step no kept record is lost and the start never moves back.

    The next round deletes what the interrupted round left.
    """
    for steps in every_step():
        topic = case.topic(steps)
        died = dies(topic.disk, topic.round, steps)
        where = f"after {steps} steps"
        end.of(topic.disk)
        topic.reopen()
        check(topic, case, where)
        check_finished(topic, case, where)
        append_lines(topic.partition, "new\n", timestamp=topic.clock.now)
        assert RECORDS == topic.partition.offsets().log_end_offset - 1, where
        topic.engine.close()
        topic.reopen()
        assert case.start == topic.partition.offsets().log_start_offset, where
        assert "new" == read_lines(topic.partition)[-1], where
        if not died:
            break
    assert steps > 5
