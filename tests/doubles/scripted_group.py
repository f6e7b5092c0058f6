"""A group with one member. A test sets the partitions that the member holds, and checks the member's calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future

from tests.doubles.no_groups import NoGroups
from topicfs.coordination import membership
from topicfs.storage.config.group import GroupConfig, OffsetReset
from topicfs.storage.engine import Cancel, Listeners
from topicfs.storage.model import Offset, TopicPartition


def orders(number: int) -> TopicPartition:
    """Return the partition `number` of the topic `orders`."""
    return TopicPartition("orders", number)


class ScriptedMember:
    """A `coordination.membership.Membership` that a test controls."""

    def __init__(self, listener: Callable[[], None], number: int = 1) -> None:
        self.member_id = f"cat-7-{number}"
        self.now = membership.MemberPartitions(generation=1)
        self.said: list[str] = []
        """The calls so far, in order, such as `commit orders-0 5`, `give up orders-0` or `leave`."""
        self.committed: dict[TopicPartition, int] = {}
        self.failing: Exception | None = None
        """The error that every commit raises, if any."""
        self.unanswered: list[Future[None]] = []
        self.answers = True
        self.undecided: tuple[TopicPartition, ...] = ()
        """Assigned partitions that the member does not hold yet, because a transaction may still change their
        position.
        """
        self._listener = listener

    def held(self) -> membership.MemberPartitions:
        return self.now

    def assign(self, *numbers: int, **positions: int) -> None:
        """Let the member hold partitions of `orders`; `p0=5` is the group's position in partition 0."""
        known = {
            orders(int(name[1:])): membership.CommittedPosition(Offset(offset))
            for name, offset in positions.items()
        }
        partitions = frozenset(map(orders, numbers))
        self.now = membership.MemberPartitions(
            generation=self.now.generation + 1, partitions=partitions, positions=known
        )
        self._listener()

    def want_back(self, *numbers: int) -> None:
        self.now = self.now._replace(wanted_back=frozenset(map(orders, numbers)))
        self._listener()

    def lose(self, error: Exception) -> None:
        self.now = membership.MemberPartitions(generation=self.now.generation, lost=error)
        self._listener()

    def commit(
        self, positions: Mapping[TopicPartition, membership.Position], *, at_once: bool = False
    ) -> Future[None]:
        del at_once
        future: Future[None] = Future()
        if self.failing is not None:
            future.set_exception(self.failing)
            return future
        for partition, position in positions.items():
            self.committed[partition] = position.offset
            self.said.append(f"commit {partition.topic}-{partition.partition} {position.offset}")
        if self.answers:
            future.set_result(None)
        else:
            self.unanswered.append(future)
        return future

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            if partition in self.now.wanted_back:
                self.said.append(f"give up {partition.topic}-{partition.partition}")
                self.now = self.now._replace(
                    partitions=self.now.partitions - {partition},
                    wanted_back=self.now.wanted_back - {partition},
                )

    def leave(self) -> Future[None]:
        self.said.append("leave")
        future: Future[None] = Future()
        future.set_result(None)
        return future


class ScriptedGroups(NoGroups):
    """A `coordination.membership.Groups` with only the methods that an open file needs."""

    def __init__(self) -> None:
        super().__init__("a test's")
        self.present = GroupConfig()
        self.members: list[ScriptedMember] = []
        self.state = membership.GroupState.STABLE
        self.elsewhere: tuple[TopicPartition, ...] = ()
        """Partitions that another member of the group holds."""
        self.admits = True
        """False if a new member has to wait for a rebalance."""
        self._listeners = Listeners()

    def config(self, group: str) -> GroupConfig:  # type: ignore[override]
        del group
        return self.present

    def reset(self, kind: str, milliseconds: int = 0) -> None:
        self.present = self.present._replace(auto_offset_reset=OffsetReset(kind, "", milliseconds))

    def join(  # type: ignore[override]
        self,
        group: str,
        subscription: membership.Subscription,
        *,
        client_id: str,
        reader: str = "",
        listener: Callable[[], None],
    ) -> ScriptedMember:
        del group, subscription, client_id, reader
        self.members.append(ScriptedMember(listener, len(self.members) + 1))
        if not self.admits:
            self.members[-1].now = membership.MemberPartitions()
        return self.members[-1]

    def describe(self, group: str) -> membership.GroupDescription:  # type: ignore[override]
        held = {one.member_id: (*one.now.partitions, *one.undecided) for one in self.members}
        members = [
            membership.MemberDescription(
                member_id=member_id,
                instance_id=None,
                client_id="c",
                host="/127.0.0.1",
                partitions=tuple(sorted(partitions)),
            )
            for member_id, partitions in {**held, "another": self.elsewhere}.items()
        ]
        return membership.GroupDescription(
            name=group,
            state=self.state,
            generation=self.members[-1].now.generation,
            assignor="range",
            coordinator=TopicPartition("__consumer_offsets", 0),
            members=tuple(members),
        )

    def set_state(self, state: membership.GroupState) -> None:
        self.state = state
        self._listeners.notify()

    def listen(self, listener: Callable[[], None]) -> Cancel:  # type: ignore[override]
        return self._listeners.add(listener)
