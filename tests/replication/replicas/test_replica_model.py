"""A model of replicated partitions: after any failure, kill or power loss acknowledged records are stored once.

Lines are appended while disks fail, fill up and come back, leaders are elected, and the engine is killed or loses
power. A line whose append raised may be stored or not. A line whose append returned is stored once and in order;
after all disks lose power this holds only if the line was flushed.
"""

from __future__ import annotations

import errno
from contextlib import suppress

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.doubles.replicated import Replicated
from tests.doubles.several_disks import break_disk
from topicfs.storage.errors import StorageError


class ReplicaModel(RuleBasedStateMachine):
    """A state machine of the engine and the list of lines that the engine must have stored."""

    def __init__(self) -> None:
        super().__init__()
        self.acknowledged: list[str] = []
        self.flushed = 0
        """Number of lines, counted from the first, that are on every disk that was in sync."""
        self.unknown: set[str] = set()
        """Lines whose append raised."""
        self.broken: set[int] = set()
        self.number = 0

    @initialize(disks=st.integers(2, 3), min_in_sync=st.integers(1, 2), seed=st.integers(0, 1000))
    def begin(self, disks: int, min_in_sync: int, seed: int) -> None:
        self.disks = disks
        self.all = Replicated(disks, replicas=disks, seed=seed, internal_segment_bytes=700)
        self.all.engine.create_topic("orders", overrides={"min.insync.replicas": str(min_in_sync)})

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        lines = [f"line {self.number + n}" for n in range(count)]
        self.number += count
        try:
            self.all.append("".join(f"{line}\n" for line in lines))
        except (OSError, StorageError):
            self.unknown |= set(lines)
        else:
            self.acknowledged += lines

    @rule()
    def sync(self) -> None:
        try:
            self.all.partition().sync()
        except (OSError, StorageError):
            return
        self.flushed = len(self.acknowledged)

    @rule(number=st.integers(1, 3), full=st.booleans())
    def fail(self, number: int, full: bool) -> None:
        if number > self.disks or number in self.broken:
            return
        self.broken.add(number)
        if full:
            for operation in ("pwrite", "write_bytes"):
                self.all.disk(number).fail(operation, number=errno.ENOSPC, times=1_000_000)
        else:
            break_disk(self.all.disk(number))

    @precondition(lambda self: self.broken)
    @rule(data=st.data())
    def heal(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.broken)))
        self.broken.discard(number)
        self.all.disk(number).heal()

    @rule()
    def maintain(self) -> None:
        self.all.forget_failures()
        self.all.clock.advance(1000)
        self.all.engine.maintenance(self.all.clock())

    @rule()
    def catch_up(self) -> None:
        self.all.forget_failures()
        self.all.engine.catch_up()

    @rule()
    def elect_preferred(self) -> None:
        with suppress(OSError, StorageError):
            self.all.engine.elect_preferred()

    @rule(how=st.sampled_from(["kill", "close", "power"]))
    def restart(self, how: str) -> None:
        if how == "close":
            with suppress(OSError, StorageError):
                self.all.engine.close()
        if how == "power":
            for disk in self.all.disks.disks.values():
                disk.crash()
            lost = self.acknowledged[self.flushed :]
            self.acknowledged = self.acknowledged[: self.flushed]
            self.unknown |= set(lost)
        try:
            self.all.open()
        except (OSError, StorageError):
            for number in self.broken:
                self.all.disk(number).heal()
            self.broken.clear()
            self.all.open()

    @invariant()
    def what_was_acknowledged_is_there_once(self) -> None:
        if not hasattr(self, "all") or self.all.leader() is None:
            return
        partition = self.all.partition()
        bounds = partition.offsets()
        if partition.leader is not None and bounds.high_watermark == bounds.log_end_offset:
            self.check()

    def check(self) -> None:
        found = self.all.lines()
        assert len(found) == len(set(found)), found
        assert self.acknowledged == [line for line in found if line not in self.unknown], found

    def teardown(self) -> None:
        if not hasattr(self, "all"):
            return
        for number in self.broken:
            self.all.disk(number).heal()
        for _ in range(3):
            self.maintain()
            self.catch_up()
        assert self.all.leader() is not None
        assert tuple(range(1, self.disks + 1)) == self.all.in_sync()
        self.check()
        logs = [
            {name: data for name, data in self.all.files(n).items() if name.endswith(".log")}
            for n in range(1, self.disks + 1)
        ]
        assert all(logs[0] == other for other in logs)


TestReplicas = ReplicaModel.TestCase
TestReplicas.settings = settings(
    max_examples=20, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
