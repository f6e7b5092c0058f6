"""Implements `coordination.membership.Groups` for a cluster.

Coordinators keep positions and members. Brokers cannot store the settings of groups, so this engine keeps settings
only while it runs. It also remembers a group that it created, until the group has a member or a position.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import wait

from topicfs.cluster.brokers.brokers import Backoff
from topicfs.cluster.brokers.coordinators import Coordinators
from topicfs.cluster.brokers.leaders import ATTEMPT_SECONDS, Leaders
from topicfs.cluster.errors import NONE, error_of
from topicfs.cluster.groups.descriptions import describe, read_listing
from topicfs.cluster.groups.member import ClusterCoordinator
from topicfs.cluster.groups.requests import NO_GENERATION, GroupClient, fetch_positions
from topicfs.cluster.topics.catalog import Catalog
from topicfs.coordination import membership
from topicfs.coordination.groups.runtime.member import LocalMember
from topicfs.coordination.records.group_records import check_group_name
from topicfs.protocol.group_messages import LIST_GROUPS
from topicfs.storage import errors
from topicfs.storage.config.group import GROUP_SETTINGS, GroupConfig, merge_group_overrides
from topicfs.storage.config.listing import ShownSetting, list_group
from topicfs.storage.disk import names
from topicfs.storage.engine import Cancel, Listeners
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.partitioning import coordinator_partition

TOPIC = names.CONSUMER_OFFSETS
DEFAULT_PARTITIONS = 50
"""Number of partitions of `__consumer_offsets` to assume if the cluster does not report it."""
KNOWN_SECONDS = 0.5
"""How long a list of groups is reused."""
GROUP_POLL_SECONDS = 1.0
"""Interval at which listeners are called, because coordinators do not report changes."""
LEAVE_SECONDS = 5.0
"""How long `close` waits for members to leave. The session timeout ends members that take longer."""


class ClusterGroups:
    """Implements `coordination.membership.Groups` for a cluster. Safe from any thread."""

    def __init__(self, leaders: Leaders, catalog: Catalog, *, read_only: bool) -> None:
        self._leaders = leaders
        self._catalog = catalog
        self._read_only = read_only
        self._coordinators = Coordinators(leaders.brokers, timeout_seconds=leaders.timeout_seconds)
        self._overrides: dict[str, dict[str, str]] = {}
        self._made: set[str] = set()
        """Groups created by this engine; a coordinator does not know them until they have a member or a position."""
        self._known: tuple[float, Mapping[str, membership.GroupListing]] | None = None
        self._members: dict[str, dict[LocalMember, str]] = {}
        """The members of this engine by group, each with its reader's name."""
        self._lock = threading.Lock()
        self._listeners = Listeners()
        self._looking: threading.Thread | None = None
        self._closed = threading.Event()
        catalog.listeners.add(self._topics_changed)

    # Queries.

    def summary(self) -> membership.GroupsSummary | None:
        with self._lock:
            members = sum(map(len, self._members.values()))
        return None if self._known is None else membership.GroupsSummary(len(self._known[1]), members)

    def known_positions(self) -> Mapping[str, Mapping[TopicPartition, Offset]]:
        """Return nothing: only coordinators know positions."""
        return {}

    def listed(self) -> Mapping[str, membership.GroupListing]:
        known = self._known
        if known is not None and time.monotonic() - known[0] < KNOWN_SECONDS:
            return known[1]
        self._leaders.before_waiting()
        return self._listed()

    def _listed(self) -> Mapping[str, membership.GroupListing]:
        found: dict[str, membership.GroupListing] = {}
        for _, groups in self._lists():
            found |= {one.name: one for one in groups}
        for name in self._made:
            found.setdefault(name, membership.GroupListing(name=name, state=membership.GroupState.EMPTY))
        listed = dict(sorted(found.items()))
        self._known = time.monotonic(), listed
        return listed

    def _lists(self) -> Iterator[tuple[int, Sequence[membership.GroupListing]]]:
        asked: dict[str, list[str]] = {"statesFilter": [], "typesFilter": []}
        for node in self._leaders.metadata.brokers:
            answer = self._leaders.brokers.ask(
                node, LIST_GROUPS, asked, seconds=ATTEMPT_SECONDS, coordinator=True
            )
            if answer["errorCode"] != NONE:
                raise error_of(answer["errorCode"], f"the groups of broker {node}")
            yield node, list(read_listing(answer))

    def describe(self, group: str) -> membership.GroupDescription:
        self._leaders.before_waiting()
        partitions = len(self.partitions_of(TOPIC)) or DEFAULT_PARTITIONS
        coordinator = TopicPartition(TOPIC, coordinator_partition(group, partitions))
        self._wait_for_leaves(self._members_of(group))
        try:
            found = describe(self._client(group), coordinator)
        except errors.UnknownGroupError:
            if group not in self._made:
                raise
            return membership.GroupDescription(
                name=group,
                state=membership.GroupState.EMPTY,
                generation=0,
                assignor="",
                coordinator=coordinator,
                members=(),
            )
        with self._lock:
            readers = dict(self._members.get(group, {}))
        own = {one.member_id: reader for one, reader in readers.items()}
        if not own:
            return found
        # Coordinators do not report the generation of a classic group, but the members in this process know
        # it.
        return found._replace(
            generation=min(one.stable_generation for one in readers),
            members=tuple(
                one._replace(reader=own[one.member_id]) if one.member_id in own else one
                for one in found.members
            ),
        )

    def positions(self, group: str) -> membership.GroupPositions:
        self._leaders.before_waiting()
        self._wait_for_leaves(self._members_of(group))
        return membership.GroupPositions(dict(sorted(self._client(group).positions().items())))

    def positions_in(self, topic: str) -> Mapping[str, Mapping[TopicPartition, membership.CommittedPosition]]:
        self._leaders.before_waiting()
        found: dict[str, Mapping[TopicPartition, membership.CommittedPosition]] = {}
        numbers = self.partitions_of(topic)
        self._wait_for_leaves(self._all_members())
        for node, groups in self._lists():
            names = [one.name for one in groups]
            for told in fetch_positions(self._leaders.brokers, node, names, topic, numbers):
                alone = {group: self._positions_alone(group, topic) for group in told.unanswered}
                found |= told.found
                found |= {group: own for group, own in alone.items() if own}
        return dict(sorted(found.items()))

    def _positions_alone(
        self, group: str, topic: str
    ) -> Mapping[TopicPartition, membership.CommittedPosition]:
        try:
            positions = self._client(group).positions()
        except (errors.UnknownGroupError, errors.NotAuthorizedError):
            return {}
        return {place: one for place, one in sorted(positions.items()) if place.topic == topic}

    # Changes.

    def set_positions(self, group: str, positions: Mapping[TopicPartition, membership.Position]) -> None:
        self._check_writable()
        check_group_name(group)
        membership.check_positions(group, positions)
        ids = self.topic_ids()
        for place in positions:
            if place.partition not in self.partitions_of(place.topic):
                raise errors.UnknownTopicError(f"{place}: no such partition")
        if not positions:
            return
        self._check_empty(group)
        codes = self._client(group).commit(positions, ids, "", NO_GENERATION)
        self._known = None
        for place, code in codes.items():
            if code != NONE:
                raise error_of(code, f"group {group}: {place}")

    def delete_positions(self, group: str, partitions: Collection[TopicPartition]) -> None:
        self._check_writable()
        if partitions:
            self._check_empty(group)
            self._client(group).delete_positions(partitions)

    def _check_empty(self, group: str) -> None:
        """Raise GroupNotEmptyError if the group has members: a coordinator would return only an error code.

        Also wait for the end of a rebalance after the last member left: until then, the coordinator refuses changes.
        """
        self._check_no_member_here(group)
        deadline, backoff = time.monotonic() + self._leaders.timeout_seconds, Backoff()
        while True:
            try:
                found = self.describe(group)
            except errors.UnknownGroupError:
                return
            if found.members:
                raise errors.GroupNotEmptyError(
                    f"{group}: the group has {len(found.members)} members; end them first"
                )
            if found.state is not membership.GroupState.PREPARING_REBALANCE or time.monotonic() > deadline:
                return
            self._closed.wait(backoff.next())

    def _check_no_member_here(self, group: str) -> None:
        """Wait for members that are leaving. Raise GroupNotEmptyError if this engine then still has a member.

        The member counts even if the coordinator does not know it.
        """
        self._wait_for_leaves(self._members_of(group))
        if members := self._members_of(group):
            what = (
                f"{len(members)} members of the group are here; end them first"
                if any(one.leaving is None for one in members)
                else "its coordinator has not answered a member that leaves; try again later"
            )
            raise errors.GroupNotEmptyError(f"{group}: {what}")

    def create(self, group: str) -> None:
        self._check_writable()
        check_group_name(group)
        if group in self._listed():
            raise errors.GroupExistsError(f"{group}: a group of that name exists")
        self._made.add(group)
        self._forget_list()

    def delete(self, group: str) -> None:
        self._check_writable()
        self._check_empty(group)
        try:
            self._client(group).delete()
        except errors.UnknownGroupError:
            if group not in self._made:
                raise
        self._made.discard(group)
        self._overrides.pop(group, None)
        self._forget_list()

    def _forget_list(self) -> None:
        self._known = None
        self._listeners.notify()

    # Settings.

    def config(self, group: str) -> GroupConfig:
        return GroupConfig.from_overrides(self._overrides.get(group, {}))

    def settings(self, group: str) -> Sequence[ShownSetting]:
        return list_group(GROUP_SETTINGS, self.config(group), self._overrides.get(group, {}))

    def alter_config(self, group: str, changes: Mapping[str, str | None]) -> None:
        self._check_writable()
        if group not in self._listed():
            raise errors.UnknownGroupError(f"{group}: no such group")
        merge_group_overrides(self._overrides.get(group, {}), changes)  # Check for InvalidConfigError first.
        if "assignor" in changes:
            self._check_no_member_here(group)
        with self._lock:  # Merge again, because another call may have changed them.
            self._overrides[group] = merge_group_overrides(self._overrides.get(group, {}), changes)

    # Members.

    def join(
        self,
        group: str,
        subscription: membership.Subscription,
        *,
        client_id: str,
        reader: str = "",
        listener: Callable[[], None],
    ) -> membership.Membership:
        """Join a group. `client_id` is ignored: coordinators know a member by the client id of this process."""
        del client_id
        check_group_name(group)
        self._check_writable()

        def told() -> None:
            listener()
            self._listeners.notify()

        coordinator = ClusterCoordinator(self._client(group), self, ended=self._member_ended)
        member = LocalMember(coordinator, subscription, config=lambda: self.config(group), listener=told)
        with self._lock:
            self._made.add(group)
            self._members.setdefault(group, {})[member] = reader
        coordinator.start(member)
        return member

    def _member_ended(self, member: LocalMember) -> None:
        with self._lock:
            own = self._members.get(member.group, {})
            own.pop(member, None)
            if not own:
                self._members.pop(member.group, None)
        self._listeners.notify()

    def listen(self, listener: Callable[[], None]) -> Cancel:
        with self._lock:
            if self._looking is None and not self._closed.is_set():
                self._looking = threading.Thread(target=self._look, name="groups of a cluster", daemon=True)
                self._looking.start()
        return self._listeners.add(listener)

    def _look(self) -> None:
        while not self._closed.wait(GROUP_POLL_SECONDS):
            self._listeners.notify()

    # The topics that members see.

    def partitions_of(self, topic: str) -> Collection[int]:
        """Return the partition numbers of a topic; empty if the topic does not exist."""
        found = self._catalog.topics.get(topic)
        return () if found is None else found.known.keys()

    def partition_counts(self) -> Mapping[str, int]:
        return {name: len(topic.known) for name, topic in self._catalog.topics.items()}

    def id_of(self, topic: str) -> str | None:
        found = self._catalog.topics.get(topic)
        return None if found is None else found.topic_id

    def topic_ids(self) -> Mapping[str, str]:
        return {name: topic.topic_id for name, topic in self._catalog.topics.items()}

    def matching(self, wanted: membership.Subscription) -> frozenset[str]:
        return wanted.topics | {
            name
            for name, topic in self._catalog.topics.items()
            if wanted.wants(name, internal=topic.internal)
        }

    def _topics_changed(self) -> None:
        for member in self._all_members():
            member.topics_changed()

    # End.

    def close(self) -> None:
        """End all memberships (blocking, for a few seconds at most). Idempotent."""
        self._closed.set()
        deadline = time.monotonic() + LEAVE_SECONDS
        for left in [member.leave() for member in self._all_members()]:
            try:
                left.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                break
        self._coordinators.close()

    def _all_members(self) -> list[LocalMember]:
        with self._lock:
            return [member for members in self._members.values() for member in members]

    def _members_of(self, group: str) -> list[LocalMember]:
        with self._lock:
            return list(self._members.get(group, ()))

    def _wait_for_leaves(self, members: Collection[LocalMember]) -> None:
        """Wait, up to a limit, for members that are leaving; close(2) of a member's file does not wait for them.

        A shell that has closed a member's file then sees the last commit, and the group without the member.
        """
        wait([left for one in members if (left := one.leaving) is not None], self._leaders.timeout_seconds)

    def _client(self, group: str) -> GroupClient:
        return GroupClient(self._coordinators, group)

    def _check_writable(self) -> None:
        if self._read_only:
            raise errors.ReadOnlyError(
                "the cluster was opened read-only: its groups and their positions cannot be changed"
            )
