"""Tests of a member with a scripted coordinator: how it joins, commits, and gives up partitions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from tests.doubles.scripted_coordinator import ScriptedCoordinator
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from topicfs.cluster.errors import ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, UNKNOWN_TOPIC_ID
from topicfs.cluster.groups import member as member_module
from topicfs.cluster.groups.member import ClusterCoordinator
from topicfs.coordination.groups.runtime import member as machine_module
from topicfs.coordination.groups.runtime.member import LocalMember
from topicfs.coordination.membership import Position, Subscription
from topicfs.storage.config.group import GroupConfig
from topicfs.storage.errors import NotAssignedError
from topicfs.storage.model import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Catalog:
    """The existing topics."""

    def __init__(self) -> None:
        self.counts = {"orders": 2}
        self.id = "one"
        """The id that every topic has."""

    def id_of(self, topic: str) -> str | None:
        return self.id if topic in self.counts else None

    def partition_counts(self) -> Mapping[str, int]:
        return dict(self.counts)

    def matching(self, wanted: Subscription) -> frozenset[str]:
        return wanted.topics | {name for name in self.counts if wanted.wants(name, internal=False)}


class World:
    """A scripted coordinator, its topics, and a member that reads `orders`."""

    def __init__(self, **settings: str) -> None:
        self.coordinator = ScriptedCoordinator()
        self.catalog = Catalog()
        config = GroupConfig.from_overrides(settings)
        client: Any = self.coordinator
        self._thread = ClusterCoordinator(client, self.catalog, ended=lambda _member: None)
        self.member = LocalMember(
            self._thread,
            Subscription(topics=frozenset({"orders"})),
            config=lambda: config,
            listener=lambda: None,
        )

    def start(self) -> None:
        self._thread.start(self.member)

    def hold_up(self) -> Callable[[], None]:
        """Block the member's thread until the returned function is called."""
        go_on = threading.Event()
        self._thread.post(lambda: go_on.wait(TIMEOUT_SECONDS) and None)
        return go_on.set

    def joins(self) -> int:
        return len(self.coordinator.asked("sync"))

    def until(self, holds: Callable[[], bool]) -> None:
        wait_until(holds, "the member is in the awaited state")

    def numbers(self) -> list[int]:
        held = self.member.held()
        return sorted(one.partition for one in held.partitions - held.wanted_back)

    def assign_first(self) -> None:
        """Rebalance, so that the member keeps FIRST and must give back SECOND."""
        self.coordinator.assigned = (0,)
        self.coordinator.heartbeats.append(REBALANCE_IN_PROGRESS)
        self.until(lambda: bool(self.member.held().wanted_back))

    def leave_with_a_commit(self) -> Future[None]:
        """Let the member leave and, before it has left, commit a position; return the commit's result."""
        go_on = self.hold_up()
        left = self.member.leave()
        done = self.member.commit({FIRST: Position(3)})
        go_on()
        left.result(TIMEOUT_SECONDS)
        return done

    def started(self) -> World:
        self.start()
        self.until(lambda: self.numbers() == sorted(self.coordinator.assigned))
        return self


Begin = Callable[..., World]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """A function that creates a World; its member leaves at the end of the test."""
    monkeypatch.setattr(member_module, "HEARTBEAT_MS", 10)
    monkeypatch.setattr(machine_module, "UNSTABLE_RETRY_MS", 10)
    made: list[World] = []

    def make(**settings: str) -> World:
        made.append(World(**settings))
        return made[-1]

    yield make
    for world in made:
        world.coordinator.unreachable = False
        world.member.leave().result(TIMEOUT_SECONDS)


def test_it_joins_with_the_id_that_it_is_given(begin: Begin) -> None:
    """A member rejoins with the id that the coordinator gave it, and begins partitions at the committed positions."""
    world = begin()
    world.coordinator.committed[1] = 5
    world.started()

    assert [("", "cooperative-sticky"), ("m-1", "cooperative-sticky")] == world.coordinator.asked("join")
    positions = world.member.held().positions
    assert (None, 5) == (positions[FIRST], getattr(positions[SECOND], "offset", None))
    assert 1 == world.member.held().generation == world.member.stable_generation


def test_a_commit_is_in_the_name_of_the_member(begin: Begin) -> None:
    """A commit carries the member's id and generation; a commit for a partition that the member does not hold fails."""
    world = begin().started()
    world.member.commit({FIRST: Position(3)}).result(TIMEOUT_SECONDS)

    assert [({0: 3}, "m-1", 1)] == world.coordinator.asked("commit")
    with pytest.raises(NotAssignedError):
        world.member.commit({TopicPartition("orders", 7): Position(1)}).result(TIMEOUT_SECONDS)


def test_a_commit_in_a_rebalance_waits_for_its_end(begin: Begin) -> None:
    """A commit during a rebalance waits until the rebalance ends, and is then sent once, in the new generation."""
    world = begin().started()
    world.coordinator.commits.append(REBALANCE_IN_PROGRESS)
    world.member.commit({FIRST: Position(3)}).result(TIMEOUT_SECONDS)

    assert [({0: 3}, "m-1", 1), ({0: 3}, "m-1", 2)] == world.coordinator.asked("commit")


def test_a_cooperative_member_keeps_what_it_holds_while_it_joins_again(begin: Begin) -> None:
    """A cooperative member keeps a partition that it must revoke until its reader gives it up; then it rejoins."""
    world = begin().started()
    world.assign_first()

    assert ({FIRST, SECOND}, {SECOND}) == (world.member.held().partitions, world.member.held().wanted_back)
    assert 2 == world.joins()
    world.member.give_up({SECOND})
    world.until(lambda: world.joins() == 3)
    assert {FIRST} == world.member.held().partitions


def test_an_eager_member_gives_everything_up_before_it_joins_again(begin: Begin) -> None:
    """An eager member revokes all partitions before it rejoins, because other members may get them immediately."""
    world = begin(assignor="range").started()
    world.coordinator.heartbeats.append(REBALANCE_IN_PROGRESS)
    world.until(lambda: bool(world.member.held().wanted_back))

    assert {FIRST, SECOND} == world.member.held().wanted_back
    assert -1 == world.member.stable_generation
    assert 1 == world.joins()
    world.member.give_up({FIRST, SECOND})
    world.until(lambda: world.joins() == 2)
    world.until(lambda: world.numbers() == [0, 1])


def test_progress_is_committed_before_a_partition_is_given_up(begin: Begin) -> None:
    """A member commits a revoked partition's progress before giving it up, so that the next holder begins there."""
    world = begin().started()
    world.assign_first()
    go_on = world.hold_up()
    world.member.give_up({SECOND})
    done = world.member.commit({SECOND: Position(4)})
    go_on()
    done.result(TIMEOUT_SECONDS)
    world.until(lambda: world.joins() == 3)

    words = [call[0] for call in world.coordinator.calls if call[0] in {"commit", "join"}]
    assert ["commit", "join"] == words[-2:]
    assert {1: 4} == world.coordinator.committed


def test_a_removed_member_holds_nothing_and_rejoins(begin: Begin) -> None:
    """A removed member rejoins with a new id; meanwhile other members read from its committed positions."""
    world = begin().started()
    world.coordinator.assigned = (1,)
    world.coordinator.give_up()
    world.until(lambda: world.numbers() == [1])

    assert [("", "cooperative-sticky"), ("m-2", "cooperative-sticky")] == world.coordinator.asked("join")[2:]
    assert {SECOND} == world.member.held().partitions


def test_a_partition_is_not_held_while_a_transaction_may_move_its_position(begin: Begin) -> None:
    """If a transaction has not decided a partition's position yet, the member gets this partition later.

    The member then begins at the decided position. Other partitions do not wait.
    """
    world = begin()
    world.coordinator.unstable.add(1)
    world.start()
    world.until(lambda: world.numbers() == [0])
    world.coordinator.committed[1] = 8
    world.coordinator.unstable.clear()
    world.until(lambda: world.numbers() == [0, 1])

    assert 8 == getattr(world.member.held().positions[SECOND], "offset", None)
    assert 1 == world.joins()


def test_a_leader_looks_after_partitions_that_are_added(begin: Begin) -> None:
    """When partitions are added, the group's leader rejoins and assigns them."""
    world = begin()
    world.coordinator.leads = True
    world.started()
    world.catalog.counts["orders"] = 3
    world.member.topics_changed()
    world.until(lambda: world.numbers() == [0, 1, 2])

    shared_out = [set(one["m-1"]) for _, one in world.coordinator.asked("sync")]
    assert [{FIRST, SECOND}, {FIRST, SECOND, TopicPartition("orders", 2)}] == shared_out


def test_a_follower_leaves_added_partitions_to_the_leader(begin: Begin) -> None:
    """A follower does not rejoin for added partitions, but drops the partitions of deleted topics."""
    world = begin().started()
    world.catalog.counts["orders"] = 3
    world.member.topics_changed()
    world.catalog.counts.clear()
    world.member.topics_changed()
    world.until(lambda: world.numbers() == [])

    assert 1 == world.joins()


def test_a_member_keeps_its_partitions_without_a_coordinator(begin: Begin) -> None:
    """A member without a coordinator keeps its partitions, searches for the coordinator and commits later."""
    world = begin().started()
    world.coordinator.unreachable = True
    done = world.member.commit({FIRST: Position(3)})
    world.until(lambda: len(world.coordinator.asked("forget")) > 2)
    assert [0, 1] == world.numbers()
    assert not done.done()
    world.coordinator.unreachable = False
    done.result(TIMEOUT_SECONDS)

    assert {0: 3} == world.coordinator.committed


def test_a_leaving_member_commits_first(begin: Begin) -> None:
    """A leaving member first sends the commits that its reader has requested."""
    world = begin().started()
    done = world.leave_with_a_commit()

    assert done.exception(0) is None
    assert ["commit", "leave"] == [call[0] for call in world.coordinator.calls][-2:]
    assert isinstance(world.member.held().lost, NotAssignedError)


def test_a_member_leaves_even_if_its_last_commit_fails(begin: Begin) -> None:
    """A member leaves even if its last commit fails: while it is a member, nobody can set a position of the group."""
    world = begin().started()
    world.coordinator.commits.append(ILLEGAL_GENERATION)
    done = world.leave_with_a_commit()

    assert isinstance(done.exception(0), NotAssignedError)
    assert ["commit", "leave"] == [call[0] for call in world.coordinator.calls][-2:]


def test_a_topic_that_was_made_again_is_assigned_again(begin: Begin) -> None:
    """After a topic is recreated, progress in the old topic is not committed, and the position is fetched again."""
    world = begin().started()
    world.coordinator.committed[0] = 7
    world.catalog.id = "another"
    world.member.topics_changed()
    world.until(lambda: world.member.held().generation > 1 and world.numbers() == [0, 1])

    assert 7 == getattr(world.member.held().positions[FIRST], "offset", None)
    assert {"orders": "another"} == world.member.held().topic_ids
    with pytest.raises(NotAssignedError):
        world.member.commit({FIRST: Position(9, topic_id="one")}).result(TIMEOUT_SECONDS)


def test_positions_of_a_deleted_topic_are_not_committed_to_a_new_one(begin: Begin) -> None:
    """A commit fails if its topic was recreated before the request is sent.

    A commit also fails if the coordinator answers that the topic is unknown.
    """
    world = begin().started()
    go_on = world.hold_up()
    world.catalog.id = "another"
    world.member.topics_changed()
    waiting = world.member.commit({FIRST: Position(3)})
    go_on()
    with pytest.raises(NotAssignedError):
        waiting.result(TIMEOUT_SECONDS)
    world.until(lambda: world.member.held().generation > 1 and world.numbers() == [0, 1])
    world.coordinator.commits.append(UNKNOWN_TOPIC_ID)
    with pytest.raises(NotAssignedError, match="g: orders-0: its topic was deleted"):
        world.member.commit({FIRST: Position(4)}).result(TIMEOUT_SECONDS)
    assert {} == world.coordinator.committed


def test_a_partition_is_given_up_once_the_coordinator_is_back(begin: Begin) -> None:
    """While the coordinator is away, a member keeps a revoked partition, because it must first commit its progress."""
    world = begin().started()
    world.assign_first()
    world.coordinator.unreachable = True
    done = world.member.commit({SECOND: Position(4)})
    world.member.give_up({SECOND})
    world.until(lambda: len(world.coordinator.asked("forget")) > 2)
    world.coordinator.unreachable = False
    done.result(TIMEOUT_SECONDS)
    world.until(lambda: world.member.held().partitions == {FIRST})

    assert {1: 4} == world.coordinator.committed
    world.until(lambda: world.joins() == 3)


def test_a_hung_reader_loses_what_others_wait_for(begin: Begin) -> None:
    """After max.poll.interval.ms, a hung reader loses the partitions that are assigned to other members.

    The reader keeps its other partitions.
    """
    world = begin(**{"max.poll.interval.ms": "20"}).started()
    world.coordinator.assigned = (0,)
    world.coordinator.heartbeats.append(REBALANCE_IN_PROGRESS)
    world.until(lambda: world.member.held().partitions == {FIRST})
    world.until(lambda: world.joins() == 3)
    assert world.member.held().lost is None
