"""One group of the classic protocol: members, state, and votes on the assignor (kafka-coordinators.md#groups)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from topicfs.coordination.groups import requests
from topicfs.coordination.membership import GroupState
from topicfs.coordination.records.consumer_protocol import SUBSCRIPTION, read_versioned
from topicfs.coordination.records.group_records import write_group
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.model import NO_TIMESTAMP, Timestamp
from topicfs.storage.partitioning import hash_map_order

CONSUMER = "consumer"
"""The protocol type of groups of consumers."""

EMPTY, PREPARING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE
COMPLETING, STABLE, DEAD = GroupState.COMPLETING_REBALANCE, GroupState.STABLE, GroupState.DEAD

_FROM = {
    EMPTY: (PREPARING,),
    PREPARING: (STABLE, COMPLETING, EMPTY),
    COMPLETING: (PREPARING,),
    STABLE: (COMPLETING,),
    DEAD: tuple(GroupState),
}
"""For each state, the states from which a group may enter it."""


@dataclass(slots=True, kw_only=True, eq=False)
class GroupMember:
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[requests.Protocol, ...]
    reader: str = ""
    heartbeats: bool = True
    assignment: bytes = b""
    is_new: bool = False
    """True until the member's first join has been answered."""
    join_reply: requests.JoinReply | None = None
    """The reply to a waiting join, called when the join phase ends; None if no join is waiting."""
    sync_reply: requests.SyncReply | None = None
    """The reply to a waiting sync, called when the member's assignment is known; None if no sync is waiting."""

    @property
    def offers(self) -> frozenset[str]:
        """The names of the assignors that the member offers."""
        return frozenset(one.name for one in self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        return next((one.metadata for one in self.protocols if one.name == protocol), b"")

    def wait_for_join(self, reply: requests.JoinReply) -> None:
        """Keep the reply to a join. An earlier join that is still waiting is ended: its client has given up on it."""
        if self.heartbeats:
            code = requests.Code.REBALANCE_IN_PROGRESS
            self.answer_join(requests.JoinAnswer(code=code, member_id=self.member_id))
        self.join_reply = reply

    def wait_for_sync(self, reply: requests.SyncReply) -> None:
        """Keep the reply to a sync. An earlier sync that is still waiting is ended, as in `wait_for_join`."""
        if self.heartbeats:
            self.answer_sync(requests.SyncAnswer(requests.Code.REBALANCE_IN_PROGRESS))
        self.sync_reply = reply

    def answer_join(self, answer: requests.JoinAnswer) -> None:
        reply, self.join_reply = self.join_reply, None
        if reply is not None:
            reply(answer)

    def answer_sync(self, answer: requests.SyncAnswer) -> bool:
        """Answer the member's waiting sync. Return False if no sync is waiting."""
        reply, self.sync_reply = self.sync_reply, None
        if reply is not None:
            reply(answer)
        return reply is not None

    @property
    def waits(self) -> bool:
        """True if a join or a sync is waiting, which shows that the member is alive. Always False for a new member."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)


@dataclass(slots=True, kw_only=True, eq=False)
class Group:
    """A group in memory. The class writes nothing to the log: its callers decide what is written, and when."""

    name: str
    state_since: Timestamp
    state: GroupState = EMPTY
    previous_state: GroupState = EMPTY
    generation: int = 0
    protocol_type: str | None = None
    """None until a member joins."""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, GroupMember] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    """Member ids that the coordinator has given out and that no member has joined with yet."""
    pending_sync: set[str] = field(default_factory=set)
    """Ids of members of this generation that have not asked for their assignment yet."""
    static: dict[str, str] = field(default_factory=dict)
    """The member id of each static member, by instance id."""
    member_added: bool = False
    """True if a member joined during the initial delay."""
    subscribed: frozenset[str] | None = None
    """The topics that all members together subscribe to; None if unknown, or if the members are not consumers."""
    _common: frozenset[str] | None = None
    """The assignors that all members offer; None if not computed yet."""
    _late: str | None = None
    """The id of a member that had not joined at the last call of `all_joined`; None if all had joined."""

    def move_to(self, state: GroupState, now: Timestamp) -> None:
        assert self.state in _FROM[state], f"{self.name}: from {self.state} to {state}"
        self.previous_state, self.state, self.state_since = self.state, state, now

    def in_state(self, *states: GroupState) -> bool:
        return self.state in states

    # Members.

    def add(self, member: GroupMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
            self._common = member.offers
        elif self._common is not None:
            self._common &= member.offers
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)
        if self.leader is None:
            self.leader = member.member_id
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> GroupMember | None:
        """Remove a member, or a member id that nobody has joined with. If the leader is removed, another one leads."""
        self.pending.discard(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._common = None
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.in_map_order()), None)
        return member

    def replace_static(self, instance_id: str, old_id: str, new_id: str) -> GroupMember:
        """Move a static member to a new id, with its assignment and leadership. Later requests with `old_id` fail."""
        member = self.members.pop(old_id)
        member.answer_join(requests.JoinAnswer(code=requests.Code.FENCED_INSTANCE_ID, member_id=old_id))
        member.answer_sync(requests.SyncAnswer(requests.Code.FENCED_INSTANCE_ID))
        member.member_id = new_id
        self.members[new_id] = member
        self.static[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_sync:
            self.pending_sync.discard(old_id)
            self.pending_sync.add(new_id)
        return member

    def check_member(self, member_id: str, instance_id: str | None) -> GroupMember:
        """Return the member. Raises RequestError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is None:
                raise requests.RequestError(requests.Code.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise requests.RequestError(requests.Code.FENCED_INSTANCE_ID)
        found = self.members.get(member_id)
        if found is None:
            raise requests.RequestError(requests.Code.UNKNOWN_MEMBER_ID)
        return found

    @property
    def waiting_to_join(self) -> int:
        return sum(member.join_reply is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        if self.pending:
            return False
        late = None if self._late is None else self.members.get(self._late)
        if late is None or late.join_reply is not None:
            # Remember the last missing member: members mostly rejoin in order, so this one stays missing
            # longest.
            missing = (one for one in reversed(self.members) if self.members[one].join_reply is None)
            self._late = next(missing, None)
        return self._late is None

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """If the leader has not joined, let the first joined member lead. Return whether a joined member leads."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_reply is not None:
            return True
        joined = next((one for one in self.in_map_order() if self.members[one].join_reply is not None), None)
        if joined is not None:
            self.leader = joined
        return joined is not None

    def in_map_order(self) -> Iterator[str]:
        """Yield the member ids in the order of a Java HashMap, which is the order in a broker's records."""
        return iter(hash_map_order(self.members))

    def joined_members(self) -> tuple[requests.JoinedMember, ...]:
        """Return all members, as the join answer to the leader lists them."""
        return tuple(
            requests.JoinedMember(
                one, self.members[one].instance_id, self.members[one].metadata(self.protocol)
            )
            for one in self.in_map_order()
        )

    # Protocols.

    def common_protocols(self) -> frozenset[str]:
        """Return the names of the assignors that all members offer."""
        if self._common is None:
            offers = {member.offers for member in self.members.values()}
            self._common = frozenset.intersection(*offers) if offers else frozenset()
        return self._common

    def set_protocols(self, member: GroupMember, protocols: tuple[requests.Protocol, ...]) -> None:
        """Replace the assignors that `member` offers."""
        before, member.protocols = member.offers, protocols
        if member.offers != before:
            self._common = None

    def supports(self, protocol_type: str, protocols: Iterable[requests.Protocol]) -> bool:
        """Return whether a member that offers `protocols` can join."""
        names = {one.name for one in protocols}
        if self.state is EMPTY:
            return bool(protocol_type and names)
        return protocol_type == self.protocol_type and bool(names & self.common_protocols())

    def select_protocol(self) -> str:
        """Return the assignor with the most votes. On a tie the first in the iteration order of a Java HashMap wins."""
        candidates = self.common_protocols()
        votes = Counter(
            next(one.name for one in member.protocols if one.name in candidates)
            for member in self.members.values()
        )
        return max(hash_map_order(votes), key=lambda name: votes[name])

    # Generations and records.

    def next_generation(self, now: Timestamp) -> None:
        self.generation += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol = self.select_protocol()
            self.move_to(COMPLETING, now)
        else:
            self.protocol = None
            self.move_to(EMPTY, now)
        self.subscribed = self._subscribed()

    def _subscribed(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(read_versioned(SUBSCRIPTION, member.metadata(self.protocol))["topics"])
        except CorruptBatchError:
            return None
        return frozenset(topics)

    def subscribes_to(self, topic: str) -> bool:
        return self.subscribed is not None and topic in self.subscribed

    def record(self, assignments: Mapping[str, bytes] | None = None) -> requests.KeyValue:
        """Return the group's record. `assignments`, if given, replaces the assignments stored in the members."""
        members = [self.members[one] for one in self.in_map_order()]
        return write_group(
            self.name,
            {
                "protocolType": self.protocol_type or "",
                "generation": self.generation,
                "protocol": self.protocol,
                "leader": self.leader,
                "currentStateTimestamp": self.state_since,
                "members": [
                    {
                        "memberId": one.member_id,
                        "groupInstanceId": one.instance_id,
                        "clientId": one.client_id,
                        "clientHost": one.client_host,
                        "rebalanceTimeout": one.rebalance_timeout_ms,
                        "sessionTimeout": one.session_timeout_ms,
                        "subscription": one.metadata(self.protocol),
                        "assignment": one.assignment
                        if assignments is None
                        else assignments.get(one.member_id, b""),
                    }
                    for one in members
                ],
            },
        )

    @classmethod
    def from_record(cls, name: str, fields: Mapping[str, object]) -> Group:
        """Return the group that a record's `fields` describe: in state Stable if it has members, else Empty."""
        stamp = fields.get("currentStateTimestamp", NO_TIMESTAMP)
        assert isinstance(stamp, int)
        group = cls(name=name, state_since=Timestamp(stamp))
        group._fill(fields)
        return group

    def _fill(self, fields: Mapping[str, object]) -> None:
        members, protocol, leader = fields["members"], fields["protocol"], fields["leader"]
        kind, generation = str(fields["protocolType"]), fields["generation"]
        assert isinstance(members, list)
        assert isinstance(generation, int)
        self.generation = generation
        self.protocol_type = kind or None
        self.protocol = None if protocol is None else str(protocol)
        for each in members:
            self.add(
                GroupMember(
                    member_id=each["memberId"],
                    instance_id=each.get("groupInstanceId"),
                    client_id=each["clientId"],
                    client_host=each["clientHost"],
                    rebalance_timeout_ms=each.get("rebalanceTimeout", each["sessionTimeout"]),
                    session_timeout_ms=each["sessionTimeout"],
                    heartbeats=each["sessionTimeout"] != requests.NO_SESSION_MS,
                    protocols=(requests.Protocol(self.protocol or "", each["subscription"]),),
                    assignment=each["assignment"],
                ),
                kind,
            )
        self.leader = None if leader is None else str(leader)
        if self.members:
            self.state = STABLE
        self.subscribed = self._subscribed()
