"""Continues reading from an offset and waits for more records, for followers of a topic and for group members."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

from topicfs.api.bounds import ParsedBound, Where, offset_of, parsed
from topicfs.api.records import Record, chunks
from topicfs.formats.records import RecordRange
from topicfs.fusefs.forms import VALUES
from topicfs.fusefs.selectors import LastN, Single
from topicfs.fusefs.views.measure import Source
from topicfs.storage.engine import Partition
from topicfs.storage.model import Isolation, Offset

FILE_POLL_SECONDS = 0.2
"""Time between two checks of files that another process writes: that process sends no notifications."""


class Cursor:
    """Reads one partition continuously. Not thread-safe."""

    def __init__(self, partition: Partition, offset: Offset, isolation: Isolation) -> None:
        self.source = Source(partition, VALUES, isolation, partition.cuts)
        self.go_to(offset)

    def go_to(self, offset: Offset) -> None:
        self.next_offset = offset
        self.source = self.source._replace(cuts=self.source.partition.cuts)
        self._chunks: Iterator[list[Record]] = iter(())
        self._end = offset

    def next(self) -> list[Record]:
        """Return the next records, some hundreds or thousands; empty if there are none yet.

        Raises SegmentDeletedError if the next records were deleted, or if an unclean election lost records that were
        read.
        """
        partition, isolation = self.source.partition, self.source.isolation
        while True:
            records = next(self._chunks, None)
            if records is not None:
                self.next_offset = Offset(records[-1].offset + 1)
                return records
            # Skip markers and gaps, which show nothing.
            self.next_offset = max(self.next_offset, self._end)
            partition.find_bounds()
            self.source.check(self.next_offset)
            self._end = partition.visible_end(isolation)
            if self.next_offset >= self._end:
                return []
            wanted = RecordRange(partition, self.next_offset, self._end)
            self._chunks = chunks(wanted, isolation)


class News:
    """Waits for notifications of new records, new partitions, or another assignment."""

    def __init__(self, *, polls: bool) -> None:
        """Prepare the first wait. If `polls`, each wait is short, because nobody sends notifications."""
        self._polls = polls
        self._event = threading.Event()
        self.signal = self._event.set

    def begin(self) -> None:
        """Forget earlier notifications. Call this before looking for new records, so that no notification is missed."""
        self._event.clear()

    def wait(self, seconds: float | None) -> None:
        """Wait for a notification, at most `seconds`."""
        if self._polls:
            seconds = FILE_POLL_SECONDS if seconds is None else min(seconds, FILE_POLL_SECONDS)
        self._event.wait(seconds)


def follow(
    partitions: Callable[[], Mapping[int, Partition]],
    start: Where,
    isolation: Isolation,
    *,
    timeout: float | None,
    polls: bool,
) -> Iterator[Record]:
    """Yield records from `start` on, and records appended later; end if no record arrives for `timeout` seconds.

    `partitions` returns the partitions at the time of each call. Raises StorageError after the topic was deleted.
    """
    return _followed(partitions, parsed(start), isolation, timeout, News(polls=polls))


def _followed(
    partitions: Callable[[], Mapping[int, Partition]],
    start: ParsedBound | None,
    isolation: Isolation,
    timeout: float | None,
    news: News,
) -> Iterator[Record]:
    cursors: dict[int, Cursor] = {}
    with ExitStack() as listening:

        def begin(found: Mapping[int, Partition], place: ParsedBound | None) -> None:
            for number, partition in found.items():
                partition.find_bounds()
                cursors[number] = Cursor(partition, offset_of(partition, place, isolation), isolation)
                listening.callback(partition.listen(news.signal))

        found = partitions()
        if isinstance(start, Single | LastN) and len(found) > 1:
            raise ValueError("an offset applies to one partition: use topic[0].follow(start=42)")
        begin(found, start)
        waited_from = time.monotonic()
        while True:
            news.begin()
            idle = True
            for cursor in cursors.values():
                for record in cursor.next():
                    idle = False
                    yield record
            if not idle:
                waited_from = time.monotonic()
                continue
            new = {number: one for number, one in partitions().items() if number not in cursors}
            begin(new, None)
            if not new:
                left = None if timeout is None else timeout + waited_from - time.monotonic()
                if left is not None and left <= 0:
                    return
                news.wait(left)
