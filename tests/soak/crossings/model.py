"""A partition as a list of records, and the rules by which one of them may be missing. Nothing here knows of files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product

from tests.soak.crossings.producers import Producers
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.model import Isolation, Offset, Record, Timestamp


@dataclass(eq=False)
class Batch:
    """A batch as its producer sent it, and where it is."""

    records: list[Record]
    """Their offsets count from 0; a marker has one, which readers do not see."""
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    commit: bool | None = None
    """Of a marker: how its transaction ended."""
    base_offset: int = -1
    outcome: bool | None = None
    """Of a transaction's data: True after its commit, False after its abort."""

    @property
    def is_marker(self) -> bool:
        return self.commit is not None

    @property
    def is_committed(self) -> bool:
        return not self.transactional or self.outcome is True

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.records)

    @property
    def largest_timestamp(self) -> int:
        return max(record.timestamp for record in self.records)


@dataclass(eq=False)
class Kept:
    """A record of the log, and what may have become of it."""

    record: Record
    batch: Batch
    cleanable: bool = False
    """True if a compaction may have seen it."""
    horizon: float = math.inf
    """Earliest time at which a compaction may remove it if its value is null."""
    gone: bool = False
    """True if it was seen to be missing."""


@dataclass(eq=False)
class PartitionModel:
    """A partition's acknowledged records, and the bounds that follow from them."""

    name: str
    start: int = 0
    durable_start: int = 0
    """A log start that no kill takes back."""
    end: int = 0
    batches: list[Batch] = field(default_factory=list)
    """All that were written, the deleted ones too."""
    kept: dict[int, Kept] = field(default_factory=dict)
    """Records of clients by offset, from the durable log start on."""
    producers: Producers = field(default_factory=Producers)
    in_flight: list[Batch] = field(default_factory=list)
    """Batches of the append that a kill interrupts."""
    append_time: int | None = None
    """The time that the log gives to the records in flight; None: they keep their own."""
    requested_start: int | None = None
    """Target of the DeleteRecords that a kill interrupts."""
    retained: Retained | None = None
    """The retention that is being applied, or that a kill interrupts."""
    gone: int = 0
    """Number of records that compaction took."""
    last_pass: float = -math.inf
    """Latest time at which a compaction may have run."""

    # Writing.

    def place(self, batch: Batch, append_time: int | None) -> None:
        """Put a batch at the end of the log."""
        batch.base_offset = self.end
        batch.records = [
            record._replace(
                offset=Offset(self.end + index),
                timestamp=record.timestamp if append_time is None else Timestamp(append_time),
            )
            for index, record in enumerate(batch.records)
        ]
        self.batches.append(batch)
        self.end = batch.end_offset
        if batch.is_marker:
            self._end_transaction(batch)
        else:
            self.kept |= {record.offset: Kept(record, batch) for record in batch.records}
        self.producers.apply(batch)

    def _end_transaction(self, marker: Batch) -> None:
        for batch in self.batches:
            undecided = batch.transactional and not batch.is_marker and batch.outcome is None
            if undecided and batch.producer_id == marker.producer_id:
                batch.outcome = marker.commit

    def resolve_append(self, log_end: int) -> None:
        """Take the batches of an interrupted append that are in the log, which are its first ones."""
        for batch in self.in_flight:
            if self.end < log_end:
                self.place(batch, self.append_time)
        self.in_flight = []
        assert self.end == log_end, f"{self.name}: ends at {log_end}, {self.end} was acknowledged"

    # Bounds.

    def possible_stable_offsets(self, start: int, *, loaded: bool) -> set[int]:
        """Return the possible last stable offsets of a log that starts at `start`.

        There are several only if the log may have forgotten a transaction, whose first records were deleted; `loaded`: another
        engine loaded it from there.
        """
        options = []
        for since, certain in self.producers.open_since():
            here = [
                batch.base_offset
                for batch in self.batches
                if batch.transactional and batch.outcome is None and not batch.is_marker
                if batch.base_offset >= max(since, self.durable_start)
            ]
            from_start = start if loaded else self.durable_start
            later = [one for one in here if one >= start]
            fewer = () if certain and since >= from_start else (*here[:1], *later[:1], self.end)
            options.append({max(since, start), *(max(one, start) for one in fewer)})
        return {min((self.end, *combination)) for combination in product(*options)}

    # Reading.

    def visible(self, start: int, end: int, isolation: Isolation) -> Iterator[tuple[int, Kept]]:
        """Yield what a reader may see in [start, end)."""
        for offset in range(start, end):
            one = self.kept.get(offset)
            if one and (isolation is Isolation.READ_UNCOMMITTED or one.batch.is_committed):
                yield offset, one

    def compare(
        self, found: Iterable[Record], start: int, end: int, isolation: Isolation, *, active_base: int
    ) -> None:
        """Compare what a reader got from [start, end) with what may be there (AssertionError)."""
        expected = dict(self.visible(start, end, isolation))
        last = -1
        for record in found:
            assert record.offset > last, f"{self.name}: offset {record.offset} after {last}"
            last = record.offset
            one = expected.pop(record.offset, None)
            assert one is not None, f"{self.name}: {isolation.value} shows offset {record.offset}: {record}"
            assert one.record == record, f"{self.name}: {one.record} was written, found {record}"
            assert not one.gone, f"{self.name}: offset {record.offset} was gone and came back"
        for offset, one in expected.items():
            if not one.gone:
                self._explain(offset, one, active_base)
                one.gone = True
                self.gone += 1

    def _explain(self, offset: int, one: Kept, active_base: int) -> None:
        where = f"{self.name}: offset {offset} is missing: {one.record}"
        assert one.cleanable, f"{where}: no compaction can have seen it"
        assert offset < active_base, f"{where}: it is in the active segment, from {active_base} on"
        assert self._may_be_compacted(offset, one), f"{where}: it is the newest of its key"

    def _may_be_compacted(self, offset: int, one: Kept) -> bool:
        return one.cleanable and (
            one.batch.outcome is False
            or one.record.key is None
            or self._newest_cleanable(one.record.key) > offset
            or (one.record.value is None and one.horizon <= self.last_pass)
        )

    def _newest_cleanable(self, key: bytes) -> int:
        return max(
            (
                offset
                for offset, one in self.kept.items()
                if one.cleanable and one.record.key == key and one.batch.is_committed
            ),
            default=-1,
        )

    # What the engine does by itself.

    def before_cleaning(self, config: TopicConfig, now: int, stable_offset: int) -> None:
        """Mark what a compaction at `now` may see."""
        if not config.compacts:
            return
        self.last_pass = max(self.last_pass, now)
        lag = config.min_compaction_lag_ms
        for offset, one in self.kept.items():
            if offset < stable_offset:
                timestamp = one.record.timestamp
                one.cleanable = one.cleanable or lag == 0 or timestamp < 0 or timestamp <= now - lag
                if one.cleanable and one.record.value is None:
                    one.horizon = min(one.horizon, now + config.delete_retention_ms)

    def move_start(self, start: int, log_bytes: int) -> None:
        """Take a log start that a pass of retention, or an interrupted change, may have left (AssertionError)."""
        if self.requested_start is not None and start <= self.requested_start:
            self.start = max(start, self.start)
            return
        removed = [(offset, self.kept[offset]) for offset in range(self.start, start) if offset in self.kept]
        for offset, one in removed:
            if not one.gone and not self._may_be_compacted(offset, one):
                assert self.retained is not None, f"{self.name}: log start {self.start} became {start}"
                assert self.retained.allows(one.record, log_bytes, newest=removed[-1][1].record), (
                    f"{self.name}: log start {self.start} became {start} with {log_bytes} bytes left, "
                    f"{self.retained} keeps {one.record}"
                )
        self.start = max(start, self.start)

    def keep_start(self, durable: int) -> None:
        """Take note that no kill takes back a log start of `durable`; what is below is gone for good."""
        if durable > self.durable_start:
            self.durable_start = durable
            self.kept = {offset: one for offset, one in self.kept.items() if offset >= durable}

    def reload(self, start: int, now: int, expiration_ms: int) -> None:
        """Take note that the log was loaded again, and begins at `start`."""
        assert self.durable_start <= start, (
            f"{self.name}: starts at {start}, {self.durable_start} was on disk"
        )
        self.start = start
        self.producers.reload(start, now, expiration_ms)

    def check_retention(self, segments: list[tuple[int, int]], config: TopicConfig, now: int) -> None:
        """Check that the oldest of the segments, [base, end) each, is not one that had to go (AssertionError)."""
        if not config.deletes or config.compacts or config.retention_ms < 0:
            return
        base, end = segments[0]
        times = [batch.largest_timestamp for batch in self.batches if base <= batch.base_offset < end]
        if times and max(times) >= 0:
            age = now - max(times)
            assert age <= config.retention_ms, f"{self.name}: segment {base} is {age} ms old and still there"


@dataclass(frozen=True)
class Retained:
    """The values that one retention pass decides by."""

    config: TopicConfig
    now: int

    def __str__(self) -> str:
        config = self.config
        return (
            f"{config.cleanup_policy} at {self.now}: {config.retention_ms} ms, {config.retention_bytes} bytes"
        )

    def allows(self, record: Record, log_bytes: int, *, newest: Record) -> bool:
        """Return whether it may delete records up to `newest`, `record` among them, and leave `log_bytes`.

        What is too large goes first; of what is left then, what is too old goes, too.
        """
        config = self.config
        if not config.deletes:
            return False
        if self._is_too_old(record):
            return True
        enough = config.compacts or log_bytes >= config.retention_bytes or self._is_too_old(newest)
        return config.retention_bytes >= 0 and enough

    def _is_too_old(self, record: Record) -> bool:
        # A segment without any timestamp goes by the time of its file.
        age = self.now - record.timestamp
        return 0 <= self.config.retention_ms and (record.timestamp < 0 or age > self.config.retention_ms)
