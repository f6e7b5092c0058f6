"""Tests that compare a queue with a model, with random members, clocks, restarts and full disks."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.doubles.engines import append_lines, engine_on
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.coordination.share_groups import Acknowledgement, RecordName
from topicfs.coordination.shares.group import QueueSession
from topicfs.storage.errors import RecordNotHeldError
from topicfs.storage.model import Offset

ACCEPT, RELEASE, REJECT, RENEW = Acknowledgement
LOCK, LIMIT = 30_000, 3
MEMBERS = st.integers(0, 2)


@dataclass
class Known:
    """The model's state of a record."""

    count: int = 0
    """Number of deliveries that ended by an acknowledgement, a close or the end of the lease."""
    holder: int | None = None
    lease_end: int = 0
    end: str = ""
    """`accepted` or `rejected` if the record is done, otherwise ""."""


@dataclass
class Model:
    records: list[Known] = field(default_factory=list)

    def give_back(self, one: Known) -> None:
        one.holder = None
        one.count += 1
        if one.count >= LIMIT:
            one.end = "rejected"

    def expire(self, now: int) -> None:
        for one in self.records:
            if one.holder is not None and one.lease_end <= now:
                self.give_back(one)


class QueueAgainstModel(RuleBasedStateMachine):
    """Compares a queue of one partition and three members with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.disk, self.clock = SimulatedDisk(), ManualClock()
        self.model = Model()
        self.sessions: dict[int, QueueSession] = {}
        self.engine = engine_on(self.disk, clock=self.clock)
        for name in ("__consumer_offsets", "__share_group_state", "orders"):
            self.engine.create_topic(name, partitions=1)
        self.engine.share_groups.create("g")
        self.group.alter({"share.delivery.count.limit": str(LIMIT)})

    @property
    def group(self):
        return self.engine.share_groups.group("g")

    def session(self, member: int) -> QueueSession:
        if member not in self.sessions:
            self.sessions[member] = self.group.open(["orders"], holder=str(member))
        return self.sessions[member]

    @rule(lines=st.integers(1, 6))
    def append(self, lines: int) -> None:
        append_lines(self.engine.partition("orders", 0), "job\n" * lines)
        self.model.records += [Known() for _ in range(lines)]

    @rule(member=MEMBERS, most=st.integers(1, 4))
    def take(self, member: int, most: int) -> None:
        session = self.session(member)
        taken = session.take_some(most)
        self.model.expire(self.clock.now)
        free = [at for at, one in enumerate(self.model.records) if one.holder is None and not one.end]
        assert bool(free) == bool(taken)
        assert len(taken) <= most
        for leased in taken:
            one = self.model.records[leased.record_name.offset]
            assert leased.record_name.offset in free
            assert one.count + 1 == leased.delivery_count
            one.holder, one.lease_end = member, self.clock.now + LOCK
            assert one.lease_end == leased.lease_end

    @precondition(lambda self: self.model.records)
    @rule(member=MEMBERS, word=st.sampled_from(Acknowledgement), fails=st.booleans(), data=st.data())
    def say(self, member: int, word: Acknowledgement, fails: bool, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, len(self.model.records) - 1))
        one = self.model.records[offset]
        session = self.session(member)
        self.model.expire(self.clock.now)
        if fails and word is not RENEW:
            self.engine.maintenance(self.clock())  # Writes the changes that expired leases made.
            self.disk.fail("pwrite", number=errno.ENOSPC, suffix=".log")
        try:
            session.acknowledge({RecordName("orders", 0, Offset(offset)): word})
        except RecordNotHeldError:
            assert one.holder != member
        except OSError:
            assert fails
            assert one.holder == member
        else:
            assert one.holder == member
            self._said(one, word)
        self.disk.heal()

    def _said(self, one: Known, word: Acknowledgement) -> None:
        if word is RENEW:
            one.lease_end = self.clock.now + LOCK
        elif word is RELEASE:
            self.model.give_back(one)
        else:
            one.holder, one.count = None, one.count + 1
            one.end = "accepted" if word is ACCEPT else "rejected"

    @rule(milliseconds=st.sampled_from([1, LOCK // 2, LOCK]))
    def wait(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    @rule()
    def maintain(self) -> None:
        self.engine.maintenance(self.clock())
        self.model.expire(self.clock.now)

    @rule(member=MEMBERS)
    def leave(self, member: int) -> None:
        """Close a member, which releases its records.

        Such a release increases the delivery count, just as the end of a lock does.
        """
        session = self.sessions.pop(member, None)
        if session is not None:
            session.close()
            for one in self.model.records:
                if one.holder == member:
                    self.model.give_back(one)

    @rule(killed=st.booleans())
    def restart(self, killed: bool) -> None:
        """Restart the engine. A close releases held records, and a kill forgets that they were delivered."""
        if killed:
            self.engine.maintenance(self.clock())
            self.model.expire(self.clock.now)
            self.disk.crash(keep=1.0)
        else:
            self.engine.close()
        for one in self.model.records:
            if one.holder is not None and not killed:
                self.model.give_back(one)
            one.holder = None
        self.sessions.clear()
        self.engine = engine_on(self.disk, clock=self.clock)

    @invariant()
    def what_is_shown_is_so(self) -> None:
        if not self.sessions or any(
            one.holder is not None and one.lease_end <= self.clock.now for one in self.model.records
        ):
            return  # The next call notices expired leases.
        held = {one.record_name.offset: int(one.holder) for one in self.group.in_flight("orders")}
        assert {at: one.holder for at, one in enumerate(self.model.records) if one.holder is not None} == held
        rejected = {one.record_name.offset for one in self.group.rejected("orders")}
        assert {at for at, one in enumerate(self.model.records) if one.end == "rejected"} == rejected
        lag = sum(1 for one in self.model.records if not one.end)
        assert lag == sum(one.lag for one in self.group.positions("orders"))

    def teardown(self) -> None:
        """Check that each unfinished record is delivered once more, and after that nothing is delivered."""
        for member in list(self.sessions):
            self.leave(member)
        self.model.expire(self.clock.now)
        expected = [at for at, one in enumerate(self.model.records) if not one.end]
        session = self.session(0)
        given = []
        while (leased := session.take()) is not None:
            given.append(leased.record_name.offset)
            session.acknowledge({leased.record_name: ACCEPT})
        assert expected == sorted(given)
        self.engine.close()


TestQueueAgainstModel = QueueAgainstModel.TestCase
TestQueueAgainstModel.settings = settings(max_examples=40, stateful_step_count=30)
