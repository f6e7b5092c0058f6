"""The records that the directories of the test must have."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.restarts.places import PARTITIONS, RETAINED, Batches, Held, batches_in, held
from topicfs.coordination.engine import Engine
from topicfs.storage.codec.columns import decode
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Isolation, Offset, TopicPartition

_MISSING = re.compile(r"offsets (\d+) to (\d+) are missing")

Disks = Mapping[Path, Mapping[TopicPartition, Held]]
"""The records in each data directory."""


def read_disks(paths: Iterable[Path], at: Mapping[Path, Path]) -> Disks:
    """Read all logs; `at` has the current path of each directory whose disk is away."""
    return {
        path: {partition: held(batches_in(at.get(path, path), partition)) for partition in PARTITIONS}
        for path in paths
    }


@dataclass
class Expectation:
    """The appended records, by partition and value."""

    acknowledged: dict[TopicPartition, Held] = field(
        default_factory=lambda: {partition: {} for partition in PARTITIONS}
    )
    """Records whose append returned or that a reader got."""
    uncertain: set[bytes] = field(default_factory=set)
    """Records whose append failed, so that they may or may not exist."""
    deleted_below: dict[TopicPartition, int] = field(default_factory=dict)
    """For each partition, the offset below which records may be deleted."""
    apart: dict[TopicPartition, set[bytes]] = field(default_factory=dict)
    """Acknowledged records that no present directory has, because the directories that have them are missing."""
    surplus: dict[TopicPartition, set[Path]] = field(default_factory=dict)
    """Directories whose copy of a partition is not a replica. After a fork or the loss of `topicfs.replicas`, no
    other directory knows the copy.
    """
    told: dict[TopicPartition, dict[Path, int]] = field(default_factory=dict)
    """For partitions whose recorded log start was lost in a directory: the log starts that all directories had
    recorded before the loss.
    """
    replaced: bool = False
    """True after the replacement of a disk that may have had the only in-sync replica."""
    saved: int = 0
    """Number of records that exist only in files that `resolve` saved."""
    destroyed: int = 0
    """Number of records whose last copies the test damaged or threw away."""

    def forget_destroyed(self, disks: Disks) -> None:
        """Forget records that are on no disk, because the test removed them."""
        for partition, records in self.acknowledged.items():
            there = _union(disks, partition)
            for value in [value for value in records if value not in there]:
                del records[value]
                self.destroyed += 1

    def elected_unclean(self, partition: TopicPartition, start: int) -> None:
        """Forget a partition's records after an unclean election. The new leader's log began at `start`."""
        self.acknowledged[partition].clear()
        self.deleted_below[partition] = max(self.deleted_below.get(partition, 0), start)

    def compare_start(
        self, engine: Engine, before: Disks, serving: Collection[Path], *, settled: bool
    ) -> None:
        """Compare what an engine shows after a start with the earlier contents of the disks. Raises AssertionError.

        `settled` is true if replicas have caught up since the start.
        """
        for partition in PARTITIONS:
            self.apart[partition] = set()
            replicas = engine.partition(*partition).status().replicas
            self.surplus[partition] = set(serving) - {Path(one.place) for one in replicas}
            every = len(serving) == len(before) and not self.replaced
            shown = self._read(engine, partition, every=every)
            if shown is None:
                continue
            start, end = engine.partition(*partition).offsets()[:2]
            offsets = set(shown.values())
            for value, offset in self.acknowledged[partition].items():
                if value in shown or self._may_be_deleted(partition, offset, start):
                    continue
                self.apart[partition].add(value)
                missing = self._says_missing(engine, partition, offset)
                if missing and not settled:
                    continue  # An out-of-sync replica may have the record and will copy it to the other replicas.
                having = [path.name for path in serving if value in before[path][partition]]
                if missing:  # A damaged replica that cannot catch up keeps the record.
                    replicas = engine.partition(*partition).status().replicas
                    having = [one.place for one in replicas if one.in_sync and Path(one.place).name in having]
                assert not having, (
                    f"{partition}: {value!r} at {offset} is not shown [{start}, {end}), though {having} had it"
                )
                assert missing or not start <= offset < end or offset in offsets, (
                    f"{partition}: offset {offset} of [{start}, {end}) is neither shown nor reported as missing; "
                    f"warnings: {engine.warnings}"
                )

    def compare(self, engine: Engine) -> None:
        """Compare what a running engine shows with the expected records. Raises AssertionError."""
        for partition in PARTITIONS:
            shown = self._read(engine, partition, every=False)
            if shown is None:
                continue
            start = engine.partition(*partition).offsets().log_start_offset
            for value, offset in self.acknowledged[partition].items():
                assert (
                    value in shown
                    or value in self.apart[partition]
                    or self._may_be_deleted(partition, offset, start)
                    or self._says_missing(engine, partition, offset)
                ), f"{partition}: {value!r} at {offset} is not shown from {start} on"

    def compare_disks(self, before: Disks, after: Disks, saved: Collection[bytes]) -> None:
        """Check that each acknowledged record is on a disk or was saved. Raises AssertionError."""
        for partition, records in self.acknowledged.items():
            surplus = self.surplus.get(partition, set())
            earlier = _union({path: one for path, one in before.items() if path not in surplus}, partition)
            now = _union(after, partition)
            for value, offset in list(records.items()):
                if value in now:
                    continue
                if value in saved:
                    del records[value]
                    self.saved += 1
                elif value in earlier:
                    deleted = offset < self.deleted_below.get(partition, 0) or partition == RETAINED
                    assert deleted, f"{partition}: {value!r} at {offset} is gone from all disks"

    def _says_missing(self, engine: Engine, partition: TopicPartition, offset: int) -> bool:
        """Return whether the status reports an offset as missing."""
        return any(offset in offsets for offsets in named_missing(engine, partition))

    def _may_be_deleted(self, partition: TopicPartition, offset: int, start: int) -> bool:
        # After a fork, one of the two copies may have deleted the record.
        return (partition == RETAINED and offset < start) or offset < self.deleted_below.get(partition, 0)

    def _least_start(self, engine: Engine, partition: TopicPartition) -> int:
        """Return the highest log start that loses no record that must be kept.

        It follows from the log starts that the in-sync replicas know.
        """
        limit = self.deleted_below.get(partition, 0)
        known = self.told.get(partition)
        if known is None:
            return limit
        replicas = engine.partition(*partition).status().replicas
        return max(limit, min(known[Path(one.place)] for one in replicas if one.in_sync))

    def _read(self, engine: Engine, partition: TopicPartition, *, every: bool) -> Held | None:
        """Return the visible records, or None if the partition is offline; if `every` is true, it must be online."""
        found = engine.partition(*partition)
        state = found.status().state
        if state != "online":
            assert not every, f"{partition}: {state}: {found.status().offline}"
            return None
        start = found.offsets().log_start_offset
        limit = self._least_start(engine, partition)
        assert (
            partition == RETAINED
            or start <= limit
            or all(self._says_missing(engine, partition, offset) for offset in range(limit, start))
        ), f"{partition}: starts at {start}, not {limit} at most"
        shown: Held = {}
        known = self.acknowledged[partition]
        try:
            records = self._read_records(engine, partition)
        except OSError:
            assert not every
            return None  # The only disk of the partition is failing.
        for value, offset in records:
            assert value not in shown, f"{partition}: {value!r} at {shown[value]} and {offset}"
            shown[value] = offset
            if value in self.uncertain:
                self.uncertain.discard(value)
                known[value] = offset
            assert known.get(value) in (None, offset), (
                f"{partition}: {value!r} at {offset}, not {known[value]}"
            )
            known[value] = offset
        return shown

    def _read_records(self, engine: Engine, name: TopicPartition) -> list[tuple[bytes, int]]:
        """Read all records, and check that the engine has reported each unreadable record as missing.

        Raises AssertionError, OSError.
        """
        partition, found = engine.partition(*name), []
        offset = start = partition.offsets().log_start_offset
        while True:
            try:
                fetched = partition.read(offset, max_bytes=1 << 20, isolation=Isolation.READ_UNCOMMITTED)
            except CorruptionError as error:
                assert self._says_missing(engine, name, offset), f"{name}: {offset} cannot be read: {error}"
                offset = Offset(offset + 1)
                continue
            if not len(fetched.data):
                return found
            for columns in decode(fetched.data):
                found += [
                    (record.value or b"", int(record.offset)) for record in columns if record.offset >= start
                ]
            offset = fetched.next_offset


def named_missing(engine: Engine, partition: TopicPartition) -> list[range]:
    """Return the offsets that the status reports as missing in in-sync replicas."""
    ranges = _MISSING.findall(engine.partition(*partition).status().missing or "")
    return [range(int(first), int(last) + 1) for first, last in ranges]


def compare_replicas(
    logs: Mapping[str, Batches], partition: TopicPartition, start: int, missing: Sequence[range]
) -> None:
    """Check that in-sync replicas have the same batches from the log start on, except those in `missing`.

    Raises AssertionError.
    """
    (first, batches), *others = logs.items()
    for name, other in others:
        ours = {base: data for base, data in batches.items() if base >= start}
        theirs = {base: data for base, data in other.items() if base >= start}
        differ = sorted(base for base in ours | theirs if ours.get(base) != theirs.get(base))
        differ = [base for base in differ if not any(base in offsets for offsets in missing)]
        assert not differ, f"{partition}: {first} and {name} are in sync, and differ at {differ}"


def _union(disks: Disks, partition: TopicPartition) -> set[bytes]:
    return {value for held_there in disks.values() for value in held_there[partition]}
