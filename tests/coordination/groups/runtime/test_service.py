"""Tests of an engine's groups over its data directory: members, positions, settings, and restarts."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.doubles.group_reader import Reader, positions, wait_until_shared
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from topicfs.coordination.groups.runtime.service import EmbeddedGroups
from topicfs.coordination.membership import CommittedPosition, GroupListing, GroupState, Position
from topicfs.replication import EmbeddedEngine, open_engine
from topicfs.storage import errors
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.manager import Machine
from topicfs.storage.model import Timestamp, TopicPartition

DATA = Path("/data")
CONFIG = EngineConfig(offsets_topic_num_partitions=2, group_max_size=4)
DAY_MS = 86_400_000


def opened(disk: SimulatedDisk, clock: ManualClock, *, read_only: bool = False) -> EmbeddedEngine:
    return open_engine(
        DATA,
        config=CONFIG,
        read_only=read_only,
        machine=Machine(files=disk.read_only_view() if read_only else disk, clock=clock),
    )


@pytest.fixture
def engine(disk: SimulatedDisk, clock: ManualClock) -> Iterator[EmbeddedEngine]:
    engine = opened(disk, clock)
    engine.create_topic("orders", partitions=6)
    yield engine
    engine.close()


def orders(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("orders", number) for number in numbers or range(6)]


def reader_of_all(engine: EmbeddedEngine, **how: Any) -> Reader:
    """Return the only member of the group, which holds all partitions."""
    reader = Reader(engine, "g", "orders", **how)
    wait_until_shared([reader], orders())
    return reader


def test_the_first_group_creates_its_topic(engine: EmbeddedEngine):
    """Queries create no topic. The first group creates `__consumer_offsets` with Kafka's settings."""
    assert {} == engine.groups.listed()
    assert {} == positions(engine)
    assert "__consumer_offsets" not in engine.topics()
    engine.groups.create("g")
    topic = engine.topic("__consumer_offsets")
    assert (2, "compact", "104857600") == (
        len(topic.partitions()),
        topic.overrides["cleanup.policy"],
        topic.overrides["segment.bytes"],
    )


def test_a_partition_goes_to_one_member_and_members_come_and_go(engine: EmbeddedEngine, caplog):
    """With the cooperative-sticky assignor, a member revokes only the partitions that it loses.

    Each rebalance is logged with its reason and its generation.
    """
    caplog.set_level(logging.INFO)
    first = reader_of_all(engine, name="one")
    second = Reader(engine, "g", "orders", name="two")
    wait_until_shared([first, second], orders())
    kept = set(first.partitions)
    assert all(kept <= held.partitions - held.wanted_back for held in first.seen[1:])
    third = Reader(engine, "g", "orders", name="three")
    wait_until_shared([first, second, third], orders())
    second.leave()
    wait_until_shared([first, third], orders())

    assert isinstance(second.held.lost, errors.NotAssignedError)
    text = caplog.text
    assert (
        "Preparing to rebalance group g in state PreparingRebalance with old generation 1 (reason: Adding"
        in text
    )
    assert f"Stabilized group g generation {first.held.generation} with 2 members." in text


def test_a_description_names_members_and_what_they_have(engine: EmbeddedEngine):
    """A description has the group's state, generation and assignor, and each member's reader and partitions.

    It also has the partition of `__consumer_offsets` to which the group belongs.
    """
    reader = reader_of_all(engine, name="cat-4711")
    found = engine.groups.describe("g")
    (member,) = found.members
    assert (GroupState.STABLE, 1, "cooperative-sticky", "__consumer_offsets") == (
        found.state,
        found.generation,
        found.assignor,
        found.coordinator.topic,
    )
    assert ("cat-4711", "/127.0.0.1", "cat-4711 (1)", ("orders",), tuple(orders())) == (
        member.client_id,
        member.host,
        member.reader,
        member.topics,
        member.partitions,
    )
    assert member.member_id == reader.member.member_id
    assert member.member_id.startswith("cat-4711-")
    assert {"g": GroupListing(name="g", state=GroupState.STABLE)} == engine.groups.listed()


def test_commits_are_in_the_log_when_their_futures_are_done(
    engine: EmbeddedEngine, disk: SimulatedDisk, clock
):
    """A committed position is in the log as soon as the commit's future is done.

    The next owner finds the position with its metadata, epoch and time.
    """
    reader = reader_of_all(engine)
    done = [
        reader.member.commit({one: Position(number, f"cat {number}", 0)})
        for number, one in enumerate(orders())
    ]
    for one in done:
        assert one.result(30) is None
    expected = {
        one: CommittedPosition(number, 0, f"cat {number}", clock()) for number, one in enumerate(orders())
    }
    assert expected == dict(engine.groups.positions("g").committed)
    ends = sum(
        one.offsets().log_end_offset for one in engine.topic("__consumer_offsets").partitions().values()
    )
    assert 2 + 6 == ends  # The empty group, its first generation and the positions.
    engine.close()
    again = opened(disk, clock)
    assert expected == dict(again.groups.positions("g").committed)
    again.close()


def test_the_later_of_two_commits_for_a_partition_counts(engine: EmbeddedEngine):
    """If several commits for a partition arrive together, one record with the last commit's position is written."""
    reader = reader_of_all(engine)
    for one in [reader.member.commit({orders(0)[0]: Position(offset)}) for offset in range(100)]:
        one.result(30)
    assert {orders(0)[0]: 99} == positions(engine)


def test_a_new_holder_begins_at_the_committed_position(engine: EmbeddedEngine):
    """If a holder commits a position before its partition is revoked, the next holder begins at this position."""
    first = reader_of_all(engine, gives_up=False)
    second = Reader(engine, "g", "orders")
    wait_until(lambda: first.held.wanted_back, "the member must give partitions back")
    wanted = sorted(first.held.wanted_back)
    for number, one in enumerate(wanted):
        first.member.commit({one: Position(10 + number)})
    assert [] == second.partitions
    first.member.give_up(wanted)
    wait_until_shared([first, second], orders())
    assert {one: 10 + number for number, one in enumerate(wanted)} == {
        place: at.offset for place, at in second.held.positions.items() if at is not None
    }
    late = first.member.commit({wanted[0]: Position(99)})
    with pytest.raises(errors.NotAssignedError, match=str(wanted[0])):
        late.result(30)
    assert 10 == positions(engine)[wanted[0]]


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
def test_the_other_assignors_take_everything_back_first(engine: EmbeddedEngine, assignor: str):
    """Each member gives all its partitions back before the assignor runs.

    The sticky assignor then returns partitions to their former holders if it can.
    """
    engine.groups.create("g")
    engine.groups.alter_config("g", {"assignor": assignor})
    first = reader_of_all(engine, gives_up=False)
    second = Reader(engine, "g", "orders", gives_up=False)
    wait_until(lambda: first.held.wanted_back, "the member must give all partitions back")
    assert set(orders()) == first.held.wanted_back
    first.member.give_up(orders(0, 1))
    assert [] == second.partitions
    first.gives_up = second.gives_up = True
    first.member.give_up(orders())
    wait_until_shared([first, second], orders())
    assert assignor == engine.groups.describe("g").assignor
    with pytest.raises(errors.GroupNotEmptyError, match="2 members"):
        engine.groups.alter_config("g", {"assignor": "cooperative-sticky"})


def test_new_partitions_and_topics_are_assigned(engine: EmbeddedEngine):
    """The leader notices new partitions of a topic. A pattern matches new topics, but never Kafka's internal topics."""
    named = Reader(engine, "g", "orders")
    pattern = Reader(engine, "h", patterns=["ord*", "_*"])
    engine.add_partitions("orders", total=8)
    wait_until_shared([named], orders(*range(8)))
    engine.create_topic("ordinary", partitions=1)
    everything = [*orders(*range(8)), TopicPartition("ordinary", 0)]
    wait_until_shared([pattern], everything)
    pattern.commit(TopicPartition("ordinary", 0), 5)
    engine.delete_topic("ordinary")
    wait_until_shared([pattern], orders(*range(8)))
    assert {} == positions(engine, "h")
    assert ("ordinary" in engine.topics(), ()) == (False, tuple(engine.groups.positions("h").committed))


def test_a_topic_that_was_made_again_is_assigned_again(engine: EmbeddedEngine):
    """If a topic is deleted and created again at once, its readers begin the new topic without positions.

    The group learns of both changes at the same time.
    """
    reader = reader_of_all(engine, name="one")
    reader.commit(orders(0)[0], 5)
    topic_id = reader.held.topic_ids["orders"]

    def make_again() -> None:
        engine.delete_topic("orders")
        engine.create_topic("orders", partitions=6)

    engine.groups._runner.call(make_again)
    wait_until(lambda: any(not held.partitions for held in reader.seen[1:]), "the reader lost its partitions")
    wait_until_shared([reader], orders())
    assert [None] * 6 == [reader.held.positions.get(one) for one in orders()]
    with pytest.raises(errors.NotAssignedError):
        reader.member.commit({orders(0)[0]: Position(5, topic_id=topic_id)}).result(30)
    assert ({}, engine.topic("orders").topic_id) == (positions(engine), reader.held.topic_ids["orders"])


def test_a_member_may_wait_for_a_topic_that_there_is_not_yet(engine: EmbeddedEngine):
    """A member that subscribes to a missing topic holds no partition until the topic exists."""
    reader = Reader(engine, "g", "later")
    wait_until(lambda: reader.held.generation == 1, "the reader has joined")
    engine.create_topic("later", partitions=2)
    wait_until_shared([reader], [TopicPartition("later", 0), TopicPartition("later", 1)])


@contextmanager
def paused(groups: EmbeddedGroups, after: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Pause the groups' thread during the block. The thread first calls `after`."""
    is_paused, go_on = Event(), Event()

    def pause() -> None:
        after()
        is_paused.set()
        go_on.wait(TIMEOUT_SECONDS)

    groups._runner.post(pause)
    assert is_paused.wait(TIMEOUT_SECONDS)
    try:
        yield
    finally:
        go_on.set()


def test_two_changes_of_settings_at_once_both_count(engine: EmbeddedEngine):
    """If two threads change different settings at the same time, neither change is lost."""
    groups = engine.groups
    groups.create("g")
    changes = {"commit": "manual", "auto.offset.reset": "latest"}
    with ThreadPoolExecutor() as threads, paused(groups):
        altered = [threads.submit(groups.alter_config, "g", {name: changes[name]}) for name in changes]
        wait_until(lambda: groups._runner._inbox.qsize() == len(changes), "both wait for the groups' thread")
    assert [None, None] == [one.result() for one in altered]
    assert changes == engine.group_overrides()["g"]


def test_a_group_made_again_keeps_its_settings(engine: EmbeddedEngine):
    """Deleting a group deletes its settings, but not those of a group that is created with its name meanwhile."""
    groups = engine.groups
    groups.create("g")

    def make_again() -> None:
        try:
            groups.create("g")
            groups.alter_config("g", {"commit": "manual"})
        finally:
            engine._lock.release()

    # The thread takes the lock first, so that no other thread changes settings.
    with ThreadPoolExecutor() as threads, paused(groups, after=engine._lock.acquire):
        deleted = threads.submit(groups.delete, "g")
        wait_until(lambda: groups._runner._inbox.qsize() == 1, "the deletion waits for the groups' thread")
        made = threads.submit(groups._runner.call, make_again)
    assert (None, None) == (deleted.result(), made.result())
    assert {"g": {"commit": "manual"}} == engine.group_overrides()


def test_a_hung_reader_loses_what_others_wait_for(engine: EmbeddedEngine, clock: ManualClock):
    """A reader that hangs for max.poll.interval.ms loses the partitions for which other readers wait."""
    engine.groups.create("g")
    engine.groups.alter_config("g", {"max.poll.interval.ms": "1"})
    hung = reader_of_all(engine, gives_up=False)
    other = Reader(engine, "g", "orders")
    wait_until(lambda: hung.held.wanted_back, "the member must give partitions back")
    engine.groups.listed()  # When this call returns, the thread has set its timer.
    clock.advance(1)
    engine.groups.listed()  # Wakes the thread, whose clock stood still.
    wait_until_shared([hung, other], orders())
    assert hung.held.lost is None


def test_a_full_group_takes_no_more(engine: EmbeddedEngine):
    """A member beyond the largest group size is refused, and the existing members continue to read."""
    readers = [Reader(engine, "g", "orders") for _ in range(4)]
    wait_until_shared(readers, orders())
    extra = Reader(engine, "g", "orders")
    assert isinstance(extra.error(), errors.GroupFullError)
    wait_until_shared(readers, orders())


def test_positions_are_set_in_groups_without_members_alone(engine: EmbeddedEngine):
    """The positions of a group with members cannot be set, as with Kafka's tool.

    If one of several positions is invalid, nothing is changed.
    """
    groups = engine.groups
    groups.set_positions("g", {orders(0)[0]: Position(7), orders(1)[0]: Position(10**12, "far")})
    assert {orders(0)[0]: 7, orders(1)[0]: 10**12} == positions(engine)
    for bad, error in (
        ({orders(0)[0]: Position(-1)}, errors.InvalidPositionError),
        ({orders(0)[0]: Position(8), TopicPartition("orders", 6): Position(0)}, errors.UnknownTopicError),
        ({orders(0)[0]: Position(8), orders(1)[0]: Position(0, "x" * 5_000)}, errors.InvalidPositionError),
    ):
        with pytest.raises(error):
            groups.set_positions("g", bad)
    assert {orders(0)[0]: 7, orders(1)[0]: 10**12} == positions(engine)

    reader = reader_of_all(engine)
    assert 7 == getattr(reader.held.positions[orders(0)[0]], "offset", None)
    for change in (
        lambda: groups.set_positions("g", {orders(0)[0]: Position(8)}),
        lambda: groups.delete_positions("g", orders(0)),
        lambda: groups.delete("g"),
    ):
        with pytest.raises(errors.GroupNotEmptyError):
            change()
    reader.leave()
    groups.delete_positions("g", orders(0, 5))
    assert {orders(1)[0]: 10**12} == positions(engine)


def test_groups_are_made_and_deleted(engine: EmbeddedEngine, disk: SimulatedDisk, clock: ManualClock):
    """Deleting a group deletes its positions and settings. The next owner finds neither positions nor settings."""
    groups = engine.groups
    groups.create("g")
    with pytest.raises(errors.GroupExistsError):
        groups.create("g")
    with pytest.raises(errors.InvalidGroupError):
        groups.create("")
    groups.alter_config("g", {"commit": "manual"})
    groups.set_positions("g", {orders(0)[0]: Position(7)})
    groups.delete("g")
    for call in (groups.describe, groups.delete):
        with pytest.raises(errors.UnknownGroupError):
            call("g")
    with pytest.raises(errors.UnknownGroupError):
        groups.delete_positions("g", [])
    assert ("ask", {}, {}) == (groups.config("g").commit, groups.listed(), positions(engine))
    engine.close()
    again = opened(disk, clock)
    assert ({}, {}) == (again.groups.listed(), positions(again))
    again.close()


def test_settings_of_a_group_last(engine: EmbeddedEngine, disk: SimulatedDisk, clock: ManualClock):
    """A group's settings are stored next to the settings of topics. An invalid setting changes nothing."""
    groups = engine.groups
    groups.create("g")
    groups.alter_config("g", {"commit": "manual", "auto.offset.reset": "latest"})
    with pytest.raises(errors.InvalidConfigError):
        groups.alter_config("g", {"commit": None, "assignor": "best"})
    with pytest.raises(errors.UnknownGroupError):
        groups.alter_config("h", {"commit": "manual"})
    assert ("manual", "latest") == (groups.config("g").commit, groups.config("g").auto_offset_reset.kind)
    engine.close()
    again = opened(disk, clock)
    assert ("manual", "latest") == (
        again.groups.config("g").commit,
        again.groups.config("g").auto_offset_reset.kind,
    )
    again.groups.alter_config("g", {"commit": None})
    assert {"auto.offset.reset": "group"} == {
        one.name: one.source.value for one in again.groups.settings("g") if one.source.value != "default"
    }
    again.close()


def test_members_of_a_process_that_ended_are_gone(
    engine: EmbeddedEngine, disk: SimulatedDisk, clock: ManualClock
):
    """Opening a directory after a kill or a close removes the old members at once, and keeps their positions."""
    reader = reader_of_all(engine)
    reader.commit(orders(0)[0], 7)
    killed = SimulatedDisk()
    killed._root = disk._root
    again = opened(killed, clock)
    found = again.groups.describe("g")
    assert (GroupState.EMPTY, 2, ()) == (found.state, found.generation, found.members)
    assert {orders(0)[0]: 7} == positions(again)
    again.close()


def test_closing_an_engine_ends_its_members(engine: EmbeddedEngine, disk: SimulatedDisk, clock: ManualClock):
    """Closing an engine ends its members.

    Each member gets an error. Commits that were sent before the close count. A broker then finds an empty group.
    """
    reader = reader_of_all(engine)
    last = reader.member.commit({orders(0)[0]: Position(7)})
    engine.close()
    assert last.result(30) is None
    assert isinstance(reader.held.lost, errors.GroupError)
    with pytest.raises(errors.GroupError, match="closed"):
        reader.member.commit({orders(0)[0]: Position(8)}).result(30)
    reader.leave()
    shown = opened(disk, clock, read_only=True)
    assert (GroupState.EMPTY, 2) == (shown.groups.describe("g").state, shown.groups.describe("g").generation)
    assert {orders(0)[0]: 7} == positions(shown)


def test_a_read_only_engine_shows_groups_as_they_were_written(
    engine: EmbeddedEngine, disk: SimulatedDisk, clock: ManualClock
):
    """A read-only engine shows groups and members. It changes nothing and accepts no joins."""
    reader = reader_of_all(engine, name="cat")
    reader.commit(orders(0)[0], 7)
    before = disk.tree()
    shown = opened(disk, clock, read_only=True)
    found = shown.groups.describe("g")
    assert (GroupState.STABLE, ["cat"]) == (found.state, [one.client_id for one in found.members])
    assert {orders(0)[0]: 7} == positions(shown)
    for change in (
        lambda: Reader(shown, "g", "orders"),
        lambda: shown.groups.create("h"),
        lambda: shown.groups.delete("g"),
        lambda: shown.groups.set_positions("g", {orders(0)[0]: Position(0)}),
        lambda: shown.groups.delete_positions("g", orders()),
        lambda: shown.groups.alter_config("g", {"commit": "manual"}),
    ):
        with pytest.raises(errors.ReadOnlyError):
            change()
    shown.close()
    assert before == disk.tree()


def test_a_follower_shows_groups_and_changes_none(
    engine: EmbeddedEngine, disk: SimulatedDisk, clock: ManualClock
):
    """Groups belong to the leader, so a follower does not even remove members that ended."""
    reader_of_all(engine)
    killed = SimulatedDisk()
    killed._root = disk._root
    follower = open_engine(
        DATA, config=CONFIG._replace(follows=True), machine=Machine(files=killed, clock=clock)
    )
    assert GroupState.STABLE is follower.groups.describe("g").state
    with pytest.raises(errors.ReadOnlyError, match="follow"):
        follower.groups.create("h")
    follower.close()
    again = opened(killed, clock, read_only=True)
    assert (GroupState.STABLE, 1) == (again.groups.describe("g").state, again.groups.describe("g").generation)


def test_a_commit_on_a_full_disk_fails_and_changes_nothing(engine: EmbeddedEngine, disk: SimulatedDisk):
    """On a full disk a commit fails with ENOSPC, and the old position stays.

    If a new group cannot be written, the group does not exist.
    """
    reader = reader_of_all(engine)
    reader.commit(orders(0)[0], 7)
    disk.fill(0)
    with pytest.raises(OSError, match="No space") as caught:
        reader.commit(orders(0)[0], 8, "x" * 1_000)
    assert errno.ENOSPC == caught.value.errno
    refused = Reader(engine, "new", "orders")
    assert isinstance(refused.error(), OSError)
    assert {orders(0)[0]: 7} == positions(engine)
    disk.fill(None)
    assert ["g"] == list(engine.groups.listed())
    reader.commit(orders(0)[0], 200)
    assert {orders(0)[0]: 200} == positions(engine)


def test_a_rebalance_that_cannot_be_written_is_retried(
    engine: EmbeddedEngine, disk: SimulatedDisk, clock: ManualClock
):
    """On a full disk members keep their partitions, and the rebalance is retried after a second."""
    first = reader_of_all(engine)
    disk.fail("pwrite", times=10_000, number=errno.ENOSPC, suffix=".log")
    second = Reader(engine, "g", "orders")
    wait_until(
        lambda: engine.groups.describe("g").state is GroupState.PREPARING_REBALANCE, "the rebalance failed"
    )
    assert set(orders()) == set(first.partitions)
    disk.heal()
    for _ in range(3):
        clock.advance(1_000)
        engine.groups.listed()
    wait_until_shared([first, second], orders())


def test_positions_expire_and_groups_with_them(engine: EmbeddedEngine, clock: ManualClock):
    """When a group has been empty for the retention time, a duty of the engine removes the group and its positions."""
    engine.groups.set_positions("g", {orders(0)[0]: Position(7)})
    engine.maintain_now(clock())
    assert ["g"] == list(engine.groups.listed())
    clock.advance(7 * DAY_MS)
    engine.maintain_now(clock())
    assert ({}, {}) == (engine.groups.listed(), positions(engine))


def test_a_created_group_stays_as_long_as_positions(engine: EmbeddedEngine, clock: ManualClock):
    """A group that was created without positions stays for as long as positions are retained.

    A broker deletes such a group at its next check.
    """
    engine.groups.create("g")
    clock.advance(7 * DAY_MS - 1)
    engine.maintain_now(clock())
    assert ["g"] == list(engine.groups.listed())
    clock.advance(1)
    engine.maintain_now(Timestamp(clock()))
    assert {} == engine.groups.listed()
