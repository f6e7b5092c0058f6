"""How a stream goes on: what is new, how much of it a trigger takes, and what became of partitions meanwhile."""

from __future__ import annotations

import logging

from pipeline.errors import DataLossError
from pipeline.source.planning import OffsetRange, count_new, limit_offsets, must_wait
from pipeline.source.reading import Source
from pipeline.source.slices import Task
from storage.model import TopicPartition

_LOGGER = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]
"""The next offset a partition."""


class Following:
    """One streaming query's way through its source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._final: Offsets | None = None
        self._last_trigger_ms: int | None = None
        self.latest: Offsets = {}
        """Where the partitions ended when they were last looked at."""

    def close(self) -> None:
        self._source.close()

    def begin(self) -> Offsets:
        """Where a query without a checkpoint begins."""
        partitions = self._source.partitions()
        start = self._source.start(partitions)
        for one in partitions:
            if start[one] > self._source.latest(one) or start[one] < self._source.earliest(one):
                start[one] = self._source.checked(OffsetRange(one, start[one], start[one])).start_offset
        return start

    def advance(self, known: Offsets, *, most: int | None, now_ms: int) -> Offsets:
        """Where the next batch ends: `known` if there is nothing to do yet.

        `most` offsets at most; new partitions are begun at their earliest. A partition that is gone is kept where it
        was: that is told when the batch is planned.
        """
        end = self._look(known)
        start = self._with_new(known, end)
        options = self._source.options
        begun = self._last_trigger_ms is not None  # The first batch waits for nothing.
        if (
            begun
            and self._final is None
            and must_wait(
                new_offsets=count_new(start, end),
                min_offsets=options.min_offsets_per_trigger,
                waited_ms=now_ms - (self._last_trigger_ms or 0),
                max_delay_ms=options.max_trigger_delay_ms,
            )
        ):
            return known
        self._last_trigger_ms = now_ms
        return end if most is None else limit_offsets(start, end, most)

    def stop_at_latest(self) -> None:
        """Read what is there now and nothing that comes later."""
        self._final = None
        self._final = self._look({})

    def _look(self, known: Offsets) -> Offsets:
        """The ends as they are now, or as they were when the query was told to stop there; never behind `known`."""
        if self._final is None:
            self._source.refresh()
            partitions = self._source.partitions(must_exist=False)
            self.latest = {one: self._source.latest(one) for one in partitions}
            ends = self.latest
        else:
            ends = self._final
        return known | {one: max(end, known.get(one, end)) for one, end in ends.items()}

    def _with_new(self, known: Offsets, end: Offsets) -> Offsets:
        return {one: known[one] if one in known else self._source.earliest(one) for one in end}

    def tasks(self, start: Offsets, end: Offsets) -> list[Task]:
        """What lies between two states (DataLossError, StorageError, OSError)."""
        self._source.refresh()
        present = set(self._source.partitions(must_exist=False))
        self._tell_gone(sorted({one for one in start | end if one not in present}))
        ranges = []
        for one, stop in sorted(end.items()):
            if one in present:
                begin = start[one] if one in start else self._begin_new(one)
                ranges.append(self._checked(OffsetRange(one, begin, stop)))
        return self._source.tasks(ranges)

    def _begin_new(self, partition: TopicPartition) -> int:
        earliest = self._source.earliest(partition)
        if earliest:
            self._tell(f"{partition}: is new, and its first records are gone: it begins at {earliest}")
        return earliest

    def _checked(self, wanted: OffsetRange) -> OffsetRange:
        if wanted.end_offset < wanted.start_offset:
            self._tell(
                f"{wanted.partition}: the stream was at {wanted.start_offset}, now it ends at {wanted.end_offset}"
            )
            return wanted._replace(end_offset=wanted.start_offset)
        return self._source.checked(wanted) if wanted.size else wanted

    def _tell_gone(self, gone: list[TopicPartition]) -> None:
        if gone:
            self._tell(f"{', '.join(map(str, gone))}: gone since the stream read there")

    def _tell(self, what: str) -> None:
        if self._source.options.fail_on_data_loss:
            raise DataLossError(f"{what}; failOnDataLoss=false goes on without")
        _LOGGER.warning("%s", what)
