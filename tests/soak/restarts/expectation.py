"""The records that must be there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from storage.engine import Engine
from storage.model import Isolation, TopicPartition
from tests.interop.ours import read_records
from tests.soak.restarts.places import Batches, Held, batches_in, held

PLAIN = (TopicPartition("plain", 0), TopicPartition("plain", 1))
RETAINED = TopicPartition("retained", 0)
"""Its oldest records go when it grows too large."""
PARTITIONS = (*PLAIN, RETAINED)

Disks = Mapping[Path, Mapping[TopicPartition, Held]]
"""The records that each data directory holds."""


def read_disks(paths: Iterable[Path], at: Mapping[Path, Path]) -> Disks:
    """Read all logs; `at` has the present paths of directories whose disks are away."""
    return {
        path: {partition: held(batches_in(at.get(path, path), partition)) for partition in PARTITIONS}
        for path in paths
    }


@dataclass
class Expectation:
    """The records that were appended, by partition and value."""

    acknowledged: dict[TopicPartition, Held] = field(
        default_factory=lambda: {partition: {} for partition in PARTITIONS}
    )
    """Their append returned, or a reader was given them."""
    uncertain: set[bytes] = field(default_factory=set)
    """Their append did not return: they are there or not."""
    deleted_below: dict[TopicPartition, int] = field(default_factory=dict)
    """Offsets below these may be gone."""
    apart: dict[TopicPartition, set[bytes]] = field(default_factory=dict)
    """Acknowledged records that this run does not show, because it goes on without directories that have them."""
    replaced: bool = False
    """True once a disk was thrown away: it may have been the only one with a replica in sync."""
    saved: int = 0
    """Records that are only in files that `resolve` saved."""
    destroyed: int = 0
    """Records whose last copies were damaged or thrown away."""

    def forget_destroyed(self, disks: Disks) -> None:
        """Expect no record any more that is on no disk: the test removed it."""
        for partition, records in self.acknowledged.items():
            there = _union(disks, partition)
            for value in [value for value in records if value not in there]:
                del records[value]
                self.destroyed += 1

    def compare_start(self, engine: Engine, before: Disks, serving: Collection[Path]) -> None:
        """Compare what an engine shows after a start with what was on the disks before (AssertionError)."""
        for partition in PARTITIONS:
            self.apart[partition] = set()
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
                having = [path.name for path in serving if value in before[path][partition]]
                assert not having, (
                    f"{partition}: {value!r} at {offset} is not shown [{start}, {end}), though {having} had it"
                )
                if start <= offset < end and offset not in offsets:
                    reported = [line for line in engine.warnings if str(partition) in line]
                    assert reported, (
                        f"{partition}: nothing says that offset {offset} of [{start}, {end}) is missing; "
                        f"warnings: {engine.warnings}"
                    )

    def compare(self, engine: Engine) -> None:
        """Compare what an engine shows while it runs (AssertionError)."""
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
                ), f"{partition}: {value!r} at {offset} is not shown from {start} on"

    def compare_disks(self, before: Disks, after: Disks, saved: Collection[bytes]) -> None:
        """Check that no acknowledged record is lost: each is on a disk, or was saved (AssertionError)."""
        for partition, records in self.acknowledged.items():
            earlier, now = _union(before, partition), _union(after, partition)
            for value, offset in list(records.items()):
                if value in now:
                    continue
                if value in saved:
                    del records[value]
                    self.saved += 1
                elif value in earlier:
                    deleted = offset < self.deleted_below.get(partition, 0) or partition == RETAINED
                    assert deleted, f"{partition}: {value!r} at {offset} is gone from all disks"

    def _may_be_deleted(self, partition: TopicPartition, offset: int, start: int) -> bool:
        # Of two that went on independently one may have deleted it.
        return (partition == RETAINED and offset < start) or offset < self.deleted_below.get(partition, 0)

    def _read(self, engine: Engine, partition: TopicPartition, *, every: bool) -> Held | None:
        """Return the records that are shown; None if the partition is offline, which it may be without `every` directory."""
        found = engine.partition(*partition)
        state = found.status().state
        if state != "online":
            assert not every, f"{partition}: {state}: {found.status().offline}"
            return None
        start = found.offsets().log_start_offset
        limit = self.deleted_below.get(partition, 0)
        assert partition == RETAINED or start <= limit, f"{partition}: starts at {start}, not {limit} at most"
        shown: Held = {}
        known = self.acknowledged[partition]
        try:
            records = list(read_records(found, Isolation.READ_UNCOMMITTED))
        except OSError:
            assert not every
            return None  # Its only disk fails.
        for record in records:
            value, offset = record.value or b"", int(record.offset)
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


def compare_replicas(logs: Mapping[str, Batches], partition: TopicPartition, start: int) -> None:
    """Replicas that are in sync have the same batches from the log start on (AssertionError)."""
    (first, batches), *others = logs.items()
    for name, other in others:
        ours = {base: data for base, data in batches.items() if base >= start}
        theirs = {base: data for base, data in other.items() if base >= start}
        differ = sorted(base for base in ours | theirs if ours.get(base) != theirs.get(base))
        assert not differ, f"{partition}: {first} and {name} are in sync, and differ at {differ}"


def _union(disks: Disks, partition: TopicPartition) -> set[bytes]:
    return {value for held_there in disks.values() for value in held_there[partition]}
