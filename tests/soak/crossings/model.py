"""A model of a partition without files: a list of records, and the rules by which records may be missing."""

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
    """A batch as its producer sent it, and its base offset."""

    records: list[Record]
    """Records with offsets from 0 on. A marker has one record, which readers do not see."""
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    commit: bool | None = None
    """For a marker: True for a commit, False for an abort."""
    base_offset: int = -1
    outcome: bool | None = None
    """For a transaction's data: True after its commit, False after its abort, None while it is open."""

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
    """A record of the log, and whether it may be missing."""

    record: Record
    batch: Batch
    cleanable: bool = False
    """True if a compaction may have processed the record."""
    horizon: float = math.inf
    """Earliest time at which compaction may remove the record if its value is null."""
    gone: bool = False
    """True if the record was found missing."""


@dataclass(eq=False)
class PartitionModel:
    """A partition's acknowledged records, and the offsets that follow from them."""

    name: str
    start: int = 0
    durable_start: int = 0
    """A log start that is on disk, so that a kill cannot lower it."""
    end: int = 0
    batches: list[Batch] = field(default_factory=list)
    """All batches ever written, including deleted ones."""
    kept: dict[int, Kept] = field(default_factory=dict)
    """Clients' records by offset, from the durable log start on."""
    producers: Producers = field(default_factory=Producers)
    in_flight: list[Batch] = field(default_factory=list)
    """Batches of the append in progress, which a kill may interrupt."""
    append_time: int | None = None
    """The time that the log gives to the records in progress; None if the records keep their own times."""
    requested_start: int | None = None
    """Target of the DeleteRecords in progress, which a kill may interrupt."""
    retained: Retained | None = None
    """The retention in progress, which a kill may interrupt."""
    gone: int = 0
    """Number of records that compaction removed."""
    last_pass: float = -math.inf
    """Latest time at which a compaction may have run."""

    # Appends.

    def place(self, batch: Batch, append_time: int | None) -> None:
        """Append a batch to the model."""
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
        """Append as many batches of an interrupted append as the log end `log_end` shows."""
        for batch in self.in_flight:
            if self.end < log_end:
                self.place(batch, self.append_time)
        self.in_flight = []
        assert self.end == log_end, f"{self.name}: ends at {log_end}, {self.end} was acknowledged"

    # Offsets.

    def possible_stable_offsets(self, start: int, *, loaded: bool) -> set[int]:
        """Return the possible last stable offsets of a log that starts at `start`.

        Several are possible only if the log may have forgotten a transaction because its first records were deleted.
        `loaded` is true if an engine has loaded the log with this start.
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

    # Reads.

    def visible(self, start: int, end: int, isolation: Isolation) -> Iterator[tuple[int, Kept]]:
        """Yield the records that a reader may see in [start, end)."""
        for offset in range(start, end):
            one = self.kept.get(offset)
            if one and (isolation is Isolation.READ_UNCOMMITTED or one.batch.is_committed):
                yield offset, one

    def compare(
        self, found: Iterable[Record], start: int, end: int, isolation: Isolation, *, active_base: int
    ) -> None:
        """Compare a reader's records in [start, end) with those that may be there. Raises AssertionError."""
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

    # Duties.

    def before_cleaning(self, config: TopicConfig, now: int, stable_offset: int) -> None:
        """Mark the records that a compaction at `now` may process."""
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
        """Accept a log start that retention or an interrupted change may have set. Raises AssertionError."""
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
        """Note that the log start `durable` is on disk, so that lower records never come back."""
        if durable > self.durable_start:
            self.durable_start = durable
            self.kept = {offset: one for offset, one in self.kept.items() if offset >= durable}

    def reload(self, start: int, now: int, expiration_ms: int) -> None:
        """Note that the log was loaded again and begins at `start`."""
        assert self.durable_start <= start, (
            f"{self.name}: starts at {start}, {self.durable_start} was on disk"
        )
        self.start = start
        self.producers.reload(start, now, expiration_ms)

    def check_retention(self, segments: list[tuple[int, int]], config: TopicConfig, now: int) -> None:
        """Check that retention left no old segment at the beginning. Raises AssertionError.

        `segments` are ranges [base, end).
        """
        if not config.deletes or config.compacts or config.retention_ms < 0:
            return
        base, end = segments[0]
        times = [batch.largest_timestamp for batch in self.batches if base <= batch.base_offset < end]
        if times and max(times) >= 0:
            age = now - max(times)
            assert age <= config.retention_ms, f"{self.name}: segment {base} is {age} ms old and still there"


@dataclass(frozen=True)
class Retained:
    """The settings and the time on which a retention pass bases its decisions."""

    config: TopicConfig
    now: int

    def __str__(self) -> str:
        config = self.config
        return (
            f"{config.cleanup_policy} at {self.now}: {config.retention_ms} ms, {config.retention_bytes} bytes"
        )

    def allows(self, record: Record, log_bytes: int, *, newest: Record) -> bool:
        """Return whether retention may delete `record` and all records up to `newest`, and leave `log_bytes` bytes.

        Deletion by size comes first, then deletion by age.
        """
        config = self.config
        if not config.deletes:
            return False
        if self._is_too_old(record):
            return True
        enough = config.compacts or log_bytes >= config.retention_bytes or self._is_too_old(newest)
        return config.retention_bytes >= 0 and enough

    def _is_too_old(self, record: Record) -> bool:
        # The age of a segment without timestamps is that of its file's modification time.
        age = self.now - record.timestamp
        return 0 <= self.config.retention_ms and (record.timestamp < 0 or age > self.config.retention_ms)
