"""The assignors of Kafka's classic consumer groups, as pure functions (kafka-coordinators.md#assignors).

Source: Kafka's RangeAssignor, RoundRobinAssignor and AbstractStickyAssignor. Topics that do not exist are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from topicfs.storage.model import TopicPartition

Assignment: TypeAlias = dict[str, list[TopicPartition]]
"""Each member's partitions, by member id."""


class SubscribedMember(NamedTuple):
    """A member of a group, as the assignors receive it."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    """group.instance.id of a static member."""
    owned: tuple[TopicPartition, ...] = ()
    """The partitions that the member held before; only the sticky assignors use them."""
    generation: int = -1
    """The generation in which the member held `owned`."""

    @property
    def order(self) -> tuple[bool, str]:
        """Sort key of members: static members by instance id, then dynamic members by member id."""
        return self.instance_id is None, self.instance_id or self.member_id


def assign_ranges(members: Sequence[SubscribedMember], partitions: Mapping[str, int]) -> Assignment:
    """Assign consecutive partitions of each topic: P // C to each of C members, plus one to the first P % C members."""
    assignment: Assignment = {member.member_id: [] for member in members}
    for topic in _topics(members, partitions):
        subscribers = sorted((m for m in members if topic in m.topics), key=lambda m: m.order)
        quotient, remainder = divmod(partitions[topic], len(subscribers))
        start = 0
        for rank, member in enumerate(subscribers):
            end = start + quotient + (1 if rank < remainder else 0)
            assignment[member.member_id] += [TopicPartition(topic, p) for p in range(start, end)]
            start = end
    return assignment


def assign_round_robin(members: Sequence[SubscribedMember], partitions: Mapping[str, int]) -> Assignment:
    """Assign all partitions, by topic and number, to the members in turn; members that do not subscribe are skipped."""
    assignment: Assignment = {member.member_id: [] for member in members}
    circle = sorted(members, key=lambda m: m.order)
    turn = 0
    for partition in _all_partitions(members, partitions):
        while partition.topic not in circle[turn % len(circle)].topics:
            turn += 1
        assignment[circle[turn % len(circle)].member_id].append(partition)
        turn += 1
    return assignment


def assign_sticky(members: Sequence[SubscribedMember], partitions: Mapping[str, int]) -> Assignment:
    """Assign the partitions evenly, keeping as many as possible with the members that hold them."""
    if not members:
        return {}
    everything = _all_partitions(members, partitions)
    owned = _valid_claims(members, everything)
    if len({member.topics for member in members}) == 1:
        return _assign_equal(members, everything, owned)
    return _assign_unequal(members, everything, owned)


def assign_cooperative(members: Sequence[SubscribedMember], partitions: Mapping[str, int]) -> Assignment:
    """Return the sticky assignment, leaving out partitions that another member still owns and has to give up first."""
    owner = {
        partition: member_id
        for member_id, claimed in _valid_claims(members, _all_partitions(members, partitions)).items()
        for partition in claimed
    }
    return {
        member_id: [p for p in assigned if owner.get(p, member_id) == member_id]
        for member_id, assigned in assign_sticky(members, partitions).items()
    }


def _topics(members: Iterable[SubscribedMember], partitions: Mapping[str, int]) -> list[str]:
    subscribed = {topic for member in members for topic in member.topics}
    return sorted(topic for topic in subscribed if partitions.get(topic, 0) > 0)


def _all_partitions(
    members: Iterable[SubscribedMember], partitions: Mapping[str, int]
) -> list[TopicPartition]:
    return [TopicPartition(t, p) for t in _topics(members, partitions) for p in range(partitions[t])]


def _valid_claims(
    members: Sequence[SubscribedMember], everything: Sequence[TopicPartition]
) -> dict[str, list[TopicPartition]]:
    """Return the partitions that each member owns.

    If several members claim a partition, the claim of the newest generation wins. If that generation has several
    claims, no member owns the partition.
    """
    exist = set(everything)
    claims: dict[TopicPartition, list[SubscribedMember]] = {}
    for member in members:
        for partition in member.owned:
            if partition in exist and partition.topic in member.topics:
                claims.setdefault(partition, []).append(member)
    owned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for partition, claimants in claims.items():
        newest = max(member.generation for member in claimants)
        winners = [member for member in claimants if member.generation == newest]
        if len(winners) == 1:
            owned[winners[0].member_id].append(partition)
    for claimed in owned.values():
        claimed.sort(key=lambda p: (p.partition, p.topic))
    return owned


def _assign_equal(
    members: Sequence[SubscribedMember],
    everything: Sequence[TopicPartition],
    owned: Mapping[str, list[TopicPartition]],
) -> Assignment:
    """Assign partitions to members that all have the same topics. The numbers of partitions differ by at most one."""
    minimum, over = divmod(len(everything), len(members))
    assignment: Assignment = {}
    for member_id in sorted(owned):
        keeps = minimum
        if over > 0 and len(owned[member_id]) > minimum:
            keeps, over = minimum + 1, over - 1
        assignment[member_id] = owned[member_id][:keeps]
    kept = {partition for assigned in assignment.values() for partition in assigned}
    _deal_out([p for p in everything if p not in kept], assignment, minimum=minimum)
    return assignment


def _deal_out(unassigned: Sequence[TopicPartition], assignment: Assignment, *, minimum: int) -> None:
    """Give partitions in turn to members that have fewer than `minimum`, then one more to members with `minimum`."""
    below = [member_id for member_id in sorted(assignment) if len(assignment[member_id]) < minimum]
    turn = 0
    rest = iter(unassigned)
    while below:
        turn %= len(below)
        member_id = below[turn]
        assignment[member_id].append(next(rest))
        if len(assignment[member_id]) == minimum:
            del below[turn]
        else:
            turn += 1
    at_minimum = (member_id for member_id in sorted(assignment) if len(assignment[member_id]) == minimum)
    for partition in rest:
        assignment[next(at_minimum)].append(partition)


def _assign_unequal(
    members: Sequence[SubscribedMember],
    everything: Sequence[TopicPartition],
    owned: Mapping[str, list[TopicPartition]],
) -> Assignment:
    """Assign each partition to its least loaded subscriber, then move partitions until the loads are even."""
    previous = {p: member_id for member_id, claimed in owned.items() for p in claimed}
    subscribers = {
        topic: sorted(m.member_id for m in members if topic in m.topics)
        for topic in {p.topic for p in everything}
    }
    assignment: Assignment = {member.member_id: list(owned[member.member_id]) for member in members}
    by_choice = sorted(everything, key=lambda p: (len(subscribers[p.topic]), p))
    for partition in by_choice:
        if partition not in previous:
            least = min(subscribers[partition.topic], key=lambda m: (len(assignment[m]), m))
            assignment[least].append(partition)
    while _move_one(by_choice, subscribers, assignment, previous):
        pass
    return assignment


def _move_one(
    partitions: Sequence[TopicPartition],
    subscribers: Mapping[str, list[str]],
    assignment: Assignment,
    previous: Mapping[TopicPartition, str],
) -> bool:
    """Move one partition to a member that has at least two partitions fewer; return False if there is no such member.

    If possible, the partition moves back to the member that had it before.
    """
    holder = {p: member_id for member_id, assigned in assignment.items() for p in assigned}
    for partition in partitions:
        source = holder[partition]
        lighter = [
            m for m in subscribers[partition.topic] if len(assignment[m]) + 1 < len(assignment[source])
        ]
        if lighter:
            before = previous.get(partition)
            target = before if before in lighter else min(lighter, key=lambda m: (len(assignment[m]), m))
            assignment[source].remove(partition)
            assignment[target].append(partition)
            return True
    return False
