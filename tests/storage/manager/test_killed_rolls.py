"""Tests that a process or machine that fails during a roll leaves no segment with a wrong index.

The index of an active segment has unused slots of zeros. If these zeros were read as entries, the newest record would
seem to be of 1970. Retention would then delete the segment, and lookups by time would skip it.
"""

from __future__ import annotations

import pytest

from tests.doubles.engines import QUIET, TINY_SEGMENTS, append_lines, engine_on, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.manual_flusher import ManualFlusher
from tests.doubles.mortal_disk import End, MortalDisk, dies, every_step
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.engine import Partition
from topicfs.storage.manager import LogManager
from topicfs.storage.model import Timestamp

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
CONFIG = QUIET._replace(topic_defaults=TopicConfig(segment_index_bytes=1200, index_interval_bytes=64))
"""Settings with which small segments have several index entries."""


class Topic:
    """An engine with a topic of one partition, and a clock that advances with each record."""

    def __init__(self, seed: int = 0) -> None:
        self.disk = MortalDisk(seed=seed)
        self.clock = ManualClock()
        self.flusher = ManualFlusher()
        self.engine = self._open()
        self.engine.create_topic("orders", overrides={**TINY_SEGMENTS, "retention.ms": str(HOUR_MS)})
        self.written: list[tuple[int, str]] = []
        """Time and value of each record, including the record that was being appended at the kill."""

    def _open(self) -> LogManager:
        return engine_on(self.disk, clock=self.clock, config=CONFIG, flusher=self.flusher)

    @property
    def partition(self) -> Partition:
        return self.engine.partition("orders", 0)

    def append(self) -> None:
        """Append one record whose timestamp is the clock's time."""
        self.clock.advance(1000)
        value = f"record {len(self.written)}"
        self.written.append((self.clock.now, value))
        append_lines(self.partition, value + "\n", timestamp=self.clock.now)

    def append_and_flush(self) -> None:
        """Append, flush the segments that the roll passed to the flusher, and write the checkpoint."""
        self.append()
        self.flusher.run()
        self.engine.maintain_now(self.clock())

    def checkpoint(self) -> None:
        """Flush all records and write the checkpoint."""
        self.partition.sync()
        self.engine.maintain_now(self.clock())

    def roll(self) -> None:
        """Append until the log rolls."""
        before = len(self.partition.segments())
        while len(self.partition.segments()) == before:
            self.append()

    def until_nearly_full(self) -> None:
        """Append until the next append will roll."""
        sizes = [self.partition.segments()[-1].size_bytes]
        while True:
            self.append()
            size = self.partition.segments()[-1].size_bytes
            if size + (size - sizes[-1]) > int(TINY_SEGMENTS["internal.segment.bytes"]):
                return
            sizes.append(size)

    def reopen(self) -> None:
        self.flusher = ManualFlusher()
        self.engine = self._open()
        left = len(read_lines(self.partition))
        assert read_lines(self.partition) == [value for _, value in self.written[:left]]
        del self.written[left:]


def check(topic: Topic) -> None:
    """Check that lookups by time find all records, each segment has its largest time, and retention deletes nothing."""
    for offset, (time, value) in enumerate(topic.written):
        found = topic.partition.offset_for_timestamp(Timestamp(time))
        assert found is not None, f"{value} is not found by its time"
        assert (offset, time) == (found.offset, found.timestamp)
    for segment in topic.partition.segments():
        inside = [time for time, _ in topic.written[segment.base_offset : segment.end_offset]]
        assert max(inside, default=segment.largest_timestamp) == segment.largest_timestamp
    topic.engine.maintain_now(topic.clock())
    assert [value for _, value in topic.written] == read_lines(topic.partition)


@pytest.mark.parametrize("end", End, ids=str)
@pytest.mark.parametrize("start", ["after a checkpoint", "after a clean start", "without a flush"])
def test_a_roll_that_ends_at_any_step(start: str, end: End) -> None:
    """After a kill at any step of a roll, flushed records are found by time and kept, and appends continue."""
    for steps in every_step():
        topic = Topic(seed=steps)
        topic.roll()
        topic.until_nearly_full()
        if start == "after a clean start":
            topic.engine.close()
            topic.reopen()
        elif start == "after a checkpoint":
            topic.checkpoint()
        appended = len(topic.written)
        safe = 0 if start == "without a flush" and end is not End.KILL else appended
        died = dies(topic.disk, topic.append_and_flush, steps)
        end.of(topic.disk)
        topic.reopen()
        assert len(topic.written) >= safe, f"after {steps} steps"
        check(topic)
        topic.roll()
        topic.checkpoint()
        topic.engine.close()
        topic.reopen()
        check(topic)
        if not died:
            break
    assert steps > 3
