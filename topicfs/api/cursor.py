"""Reading on from an offset, and waiting for more: what following a topic and reading as a member have in common."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping

from topicfs.api.bounds import Place, Where, offset_of, parsed
from topicfs.api.records import Record, chunks
from topicfs.formats.records import RecordRange
from topicfs.fusefs.forms import VALUES
from topicfs.fusefs.selectors import LastN, Single
from topicfs.fusefs.views.measure import Source
from topicfs.storage.engine import Cancel, Partition
from topicfs.storage.model import Isolation, Offset

POLL_SECONDS = 0.2
"""Time between two looks at files that another process writes: nobody tells of changes there."""


class Cursor:
    """Reads one partition on and on. One caller at a time."""

    def __init__(self, partition: Partition, offset: Offset, isolation: Isolation) -> None:
        self.source = Source(partition, VALUES, isolation, partition.cuts)
        self.go_to(offset)

    def go_to(self, offset: Offset) -> None:
        """Go on from an offset."""
        self.next_offset = offset
        """Offset of the next record to be read."""
        self.source = self.source._replace(cuts=self.source.partition.cuts)
        self._chunks: Iterator[list[Record]] = iter(())
        self._end = offset

    def next(self) -> list[Record]:
        """Return the records that come next, some hundred or thousand; none if there are none yet.

        Raises SegmentDeletedError if they were deleted, or if an unclean election lost records that were read.
        """
        partition, isolation = self.source.partition, self.source.isolation
        while True:
            records = next(self._chunks, None)
            if records is not None:
                self.next_offset = Offset(records[-1].offset + 1)
                return records
            self.next_offset = max(
                self.next_offset, self._end
            )  # Behind markers and gaps, which show nothing.
            partition.find_bounds()
            self.source.check(self.next_offset)
            self._end = partition.visible_end(isolation)
            if self.next_offset >= self._end:
                return []
            wanted = RecordRange(partition, self.next_offset, self._end)
            self._chunks = chunks(wanted, isolation)


class News:
    """Waits for what listeners report: new records, new partitions, another assignment."""

    def __init__(self, *, polls: bool) -> None:
        """Prepare to wait. With `polls` each wait ends after a moment, because nobody reports changes."""
        self._polls = polls
        self._event = threading.Event()
        self.signal = self._event.set

    def begin(self) -> None:
        """Forget what was reported before: the caller looks at everything now."""
        self._event.clear()

    def wait(self, seconds: float | None) -> None:
        """Wait until something is reported, at most `seconds`."""
        if self._polls:
            seconds = POLL_SECONDS if seconds is None else min(seconds, POLL_SECONDS)
        self._event.wait(seconds)


class Follower:
    """Yields the records of partitions, and those that are appended later."""

    def __init__(
        self, partitions: Callable[[], Mapping[int, Partition]], isolation: Isolation, *, polls: bool
    ) -> None:
        """Take what returns the partitions as of now: those of a topic may become more."""
        self._partitions = partitions
        self._isolation = isolation
        self._news = News(polls=polls)
        self._cursors: dict[int, Cursor] = {}
        self._cancels: list[Cancel] = []

    def records(self, start: Where, timeout: float | None) -> Iterator[Record]:
        """Yield records from `start` on; end if none came for `timeout` seconds. Raises StorageError after a deletion."""
        return self._records(parsed(start), timeout)

    def _records(self, start: Place | None, timeout: float | None) -> Iterator[Record]:
        try:
            self._begin(start)
            waited_from = time.monotonic()
            while True:
                self._news.begin()
                idle = True
                for cursor in list(self._cursors.values()):
                    for record in cursor.next():
                        idle = False
                        yield record
                if not idle:
                    waited_from = time.monotonic()
                elif not self._take_more():
                    left = None if timeout is None else timeout + waited_from - time.monotonic()
                    if left is not None and left <= 0:
                        return
                    self._news.wait(left)
        finally:
            for cancel in self._cancels:
                cancel()

    def _begin(self, start: Place | None) -> None:
        partitions = self._partitions()
        if isinstance(start, Single | LastN) and len(partitions) > 1:
            raise ValueError("an offset counts in one partition: name one, as in topic[0].follow(start=42)")
        for number, partition in partitions.items():
            partition.find_bounds()
            self._follow(number, partition, offset_of(partition, start, self._isolation))

    def _take_more(self) -> bool:
        """Follow the partitions that are new; return whether there are some."""
        new = {number: one for number, one in self._partitions().items() if number not in self._cursors}
        for number, partition in new.items():
            partition.find_bounds()
            self._follow(number, partition, partition.log_start_offset)
        return bool(new)

    def _follow(self, number: int, partition: Partition, offset: Offset) -> None:
        self._cursors[number] = Cursor(partition, offset, self._isolation)
        self._cancels.append(partition.listen(self._news.signal))
