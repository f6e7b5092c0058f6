"""Invariants of any coordinator, under random members, timeouts, commits, refused appends and crashes.

Every request is answered once. A position is the last acknowledged one. A crash keeps what is in the log. After all
clients have stopped sending, every member is forgotten.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.doubles.group_coordinator import RANGE, REBALANCE_MS, ROUND_ROBIN, SESSION_MS, Coordination, G
from topicfs.coordination.groups.group import COMPLETING, EMPTY, PREPARING, STABLE
from topicfs.coordination.groups.requests import Code, JoinAnswer, SyncAnswer
from topicfs.coordination.membership import Position
from topicfs.coordination.records.group_records import OFFSET_COMMIT_TYPES, read_committed_offset
from topicfs.storage.model import Offset, TopicPartition

OFFERS = [(RANGE,), (RANGE, ROUND_ROBIN), (ROUND_ROBIN, RANGE)]
FOREVER_MS = 20 * 60_000


class Client:
    """A present or future member: its id, its generation, and the answers for which it waits."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self.members: tuple[str, ...] = ()
        self.joins: list[list[JoinAnswer]] = []
        self.syncs: list[list[SyncAnswer]] = []

    def read_answers(self) -> None:
        """Read the answers, exactly one for each request."""
        for answers in self.joins:
            assert len(answers) <= 1
            for answer in answers:
                if answer.code is Code.MEMBER_ID_REQUIRED:
                    self.member_id = answer.member_id
                elif answer.code is Code.NONE:
                    self.member_id, self.generation = answer.member_id, answer.generation
                    self.leads = answer.leader == answer.member_id and not answer.skip_assignment
                    self.members = tuple(one.member_id for one in answer.members)
                else:
                    self.member_id, self.generation = "", -1
        self.joins = [one for one in self.joins if not one]
        assert all(len(one) <= 1 for one in self.syncs)
        self.syncs = [one for one in self.syncs if not one]


class CoordinatorModel(RuleBasedStateMachine):
    """The clients, their acknowledged positions, and the coordinator."""

    def __init__(self) -> None:
        super().__init__()
        self.all = Coordination()
        self.clients = [Client(None), Client(None), Client(None), Client("one"), Client("two")]
        self.positions: dict[TopicPartition, int] = {}
        self.generation = 0

    who = st.integers(0, 4)

    def client(self, which: int) -> Client:
        found = self.clients[which]
        found.read_answers()
        return found

    @rule(which=who, offer=st.sampled_from(OFFERS), version=st.sampled_from([3, 8, 9]), forget=st.booleans())
    def join(self, which: int, offer: tuple[object, ...], version: int, forget: bool) -> None:
        """Let a client join, perhaps twice. A restarted static member may join with another id."""
        client = self.client(which)
        if forget and client.instance_id is not None:
            client.member_id, client.generation = "", -1
        answers = self.all.join(
            client.member_id, instance_id=client.instance_id, protocols=offer, version=version
        )
        # If one member sent two requests, the coordinator answers the later one.
        client.joins = [answers]

    @rule(which=who)
    def sync(self, which: int) -> None:
        client = self.client(which)
        mine = {one: one.encode() for one in client.members} if client.leads else {}
        client.syncs = [
            self.all.sync(client.member_id, client.generation, mine, instance_id=client.instance_id)
        ]

    @rule()
    def cooperate(self) -> None:
        """Let all clients join and sync as the coordinator's answers require."""
        for _ in range(2):
            for which in range(len(self.clients)):
                self.join(which, OFFERS[0], 9, False)
        self.wait(0)
        for which in range(len(self.clients)):
            self.sync(which)

    @rule(which=who)
    def heartbeat(self, which: int) -> None:
        client = self.client(which)
        code = self.all.coordinator.heartbeat(G, client.member_id, client.generation, client.instance_id)
        alive = code in (Code.NONE, Code.REBALANCE_IN_PROGRESS)
        assert alive == (
            G in self.all.coordinator.groups
            and client.member_id in self.all.group.members
            and client.generation == self.all.group.generation
        )

    @rule(which=who)
    def leave(self, which: int) -> None:
        client = self.client(which)
        if client.member_id and G in self.all.coordinator.groups:
            self.all.leave(client.member_id)
            assert client.member_id not in self.all.group.members

    @rule(which=who, partition=st.integers(0, 3), offset=st.integers(0, 1000), member=st.booleans())
    def commit(self, which: int, partition: int, offset: int, member: bool) -> None:
        client = self.client(which)
        place = TopicPartition("t", partition)
        fields: dict[str, object] = {}
        if member:
            fields = {
                "member_id": client.member_id,
                "generation": client.generation,
                "instance_id": client.instance_id,
            }
        before = None if G not in self.all.coordinator.groups else self.all.group.state
        positions = {place: Position(offset)}
        answer = self.all.commit(positions=positions, **fields)
        if answer == {place: Code.NONE}:
            assert before is not COMPLETING
            self.positions[place] = offset

    @rule(milliseconds=st.sampled_from([0, 1, SESSION_MS // 2, SESSION_MS, REBALANCE_MS, FOREVER_MS]))
    def wait(self, milliseconds: int) -> None:
        self.all.advance(milliseconds)

    @precondition(lambda self: self.all.refuse is None)
    @rule()
    def refuse_appends(self) -> None:
        self.all.refuse = Code.NOT_COORDINATOR

    @precondition(lambda self: self.all.refuse is not None)
    @rule()
    def take_appends(self) -> None:
        self.all.refuse = None

    @rule()
    def crash(self) -> None:
        """Load the log into a new coordinator, which must have acknowledged positions and the last written group."""
        after = Coordination(ids=self.all.ids)
        after.clock.now = self.all.clock.now
        last = {"generation": 0}
        for at, (kind, _key, value) in enumerate(self.all.written()):
            after.log.append(self.all.log[at])
            if kind not in OFFSET_COMMIT_TYPES:
                assert value is not None
                last = dict(value)
                after.coordinator.replay(G, value)
            else:
                self._replay_position(after, at)
        if after.offsets.groups() and G not in after.coordinator.groups:
            after.coordinator.new_group(G)
        self.all = after
        after.coordinator.loaded()
        if G in after.coordinator.groups:
            assert last["generation"] == after.group.generation <= self.generation
            self.generation = after.group.generation
        for client in self.clients:
            client.joins, client.syncs = [], []

    @staticmethod
    def _replay_position(after: Coordination, at: int) -> None:
        key, value = after.log[at]
        assert value is not None
        position = read_committed_offset(key, value)
        assert position is not None
        after.offsets.take(position, Offset(at))

    @invariant()
    def positions_are_those_acknowledged(self) -> None:
        assert self.positions == {
            place: one.position.offset for place, one in self.all.offsets.committed(G).items()
        }

    @invariant()
    def the_group_is_consistent(self) -> None:
        if G not in self.all.coordinator.groups:
            return
        group = self.all.group
        assert group.generation >= self.generation
        self.generation = group.generation
        members = set(group.members)
        assert (group.leader in members) if members else group.leader is None
        assert not group.pending & members
        assert group.pending_sync <= members
        assert set(group.static.values()) == {one for one in members if group.members[one].instance_id}
        assert (group.state is EMPTY) <= (not members)
        assert group.state in (EMPTY, PREPARING) or members
        assert all(one.member_id == name for name, one in group.members.items())
        if group.state is not PREPARING:
            assert not any(one.join_reply for one in group.members.values())
        if group.state is not COMPLETING:
            assert not any(one.sync_reply for one in group.members.values())
        if group.state is STABLE:
            assert all(
                one.assignment in (b"", one.member_id.encode()) or one.instance_id
                for one in group.members.values()
            )

    def teardown(self) -> None:
        """Stop all clients, and wait until all requests are answered and all members are forgotten."""
        self.all.refuse = None
        for _ in range(3):
            self.all.advance(FOREVER_MS)
        for client in self.clients:
            client.read_answers()
            assert ([], []) == (client.joins, client.syncs)
        if G in self.all.coordinator.groups:
            group = self.all.group
            assert (EMPTY, {}, set()) == (group.state, group.members, group.pending)
        assert self.all.coordinator.timers.next_due() is None


TestCoordinatorModel = CoordinatorModel.TestCase
TestCoordinatorModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
