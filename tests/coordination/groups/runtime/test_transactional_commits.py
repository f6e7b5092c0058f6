"""Tests of positions committed in a transaction, by TxnOffsetCommit and WriteTxnMarkers requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doubles.engines import engine_on
from tests.doubles.group_reader import Reader, wait_until_shared
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.coordination.groups.requests import Code, OffsetCommitRequest
from topicfs.coordination.groups.runtime.service import EmbeddedGroups
from topicfs.coordination.membership import Position
from topicfs.replication import EmbeddedEngine
from topicfs.storage.codec.control import ControlType, EndTransactionMarker
from topicfs.storage.model import ProducerId, TopicPartition

PID = ProducerId(7)
T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


class World:
    """An engine whose group `g` is at position 1 in the first partition."""

    def __init__(self, disk: SimulatedDisk, clock: ManualClock) -> None:
        self.disk, self.clock = disk, clock
        self.engine: EmbeddedEngine = engine_on(disk, clock=clock)
        self.engine.create_topic("orders", partitions=2)
        self.engine.create_topic("__consumer_offsets", partitions=1)
        self.groups.set_positions("g", {T0: Position(1)})

    @property
    def groups(self) -> EmbeddedGroups:
        groups = self.engine.groups
        assert isinstance(groups, EmbeddedGroups)
        return groups

    def commit(
        self, place: TopicPartition, offset: int, *, epoch: int = 0, metadata: str = "", **member: object
    ) -> Code:
        """Commit a position, and return the code for its partition."""
        positions = {place: Position(offset, metadata)}
        request = OffsetCommitRequest(group="g", positions=positions, **member)  # type: ignore[arg-type]
        answer = self.groups.commit_in_transaction(request, PID, epoch)
        return answer if isinstance(answer, Code) else answer[place]

    def end(self, kind: ControlType, *, epoch: int = 0) -> None:
        self.groups.end_transaction(PID, epoch, [0], EndTransactionMarker(kind, 0))

    def reopen(self) -> None:
        self.engine.close()
        self.engine = engine_on(self.disk, clock=self.clock)

    def committed(self) -> dict[TopicPartition, int]:
        return {place: one.offset for place, one in self.groups.positions("g").committed.items()}

    def pending(self) -> dict[TopicPartition, list[int]]:
        found = self.groups.positions("g").pending
        return {place: [one.offset for one in some] for place, some in found.items()}


@pytest.fixture
def world(disk: SimulatedDisk, clock: ManualClock) -> Iterator[World]:
    world = World(disk, clock)
    yield world
    world.engine.close()


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize(("kind", "expected"), [(COMMIT, {T0: 6, T1: 2}), (ABORT, {T0: 1})])
def test_positions_count_when_their_transaction_is_committed(
    world: World, kind: ControlType, expected: dict[TopicPartition, int], reopened: bool
):
    """A commit stores the last position that the transaction has for each partition. An abort stores none.

    This holds even if the engine is restarted in between.
    """
    for place, offset in ((T0, 5), (T0, 6), (T1, 2)):
        world.commit(place, offset)
    if reopened:
        world.reopen()
    assert ({T0: 1}, {T0: [6], T1: [2]}) == (world.committed(), world.pending())
    world.end(kind)
    if reopened:
        world.reopen()
    assert (expected, {}) == (world.committed(), world.pending())


def test_a_marker_that_comes_twice_does_no_harm(world: World):
    """A marker that is sent again has no effect. A position that follows it belongs to a new transaction."""
    world.commit(T0, 5)
    world.end(COMMIT)
    world.end(COMMIT)
    world.commit(T0, 7)
    assert ({T0: 5}, {T0: [7]}) == (world.committed(), world.pending())
    world.end(ABORT)
    assert ({T0: 5}, {}) == (world.committed(), world.pending())


def test_a_producer_that_was_fenced_commits_nothing(world: World):
    """A commit is refused if its producer's epoch is older than the epoch in the log."""
    world.commit(T0, 5, epoch=1)
    world.end(COMMIT, epoch=1)
    assert Code.INVALID_PRODUCER_EPOCH == world.commit(T0, 9)
    assert ({T0: 5}, {}) == (world.committed(), world.pending())


def test_a_commit_names_a_present_member_or_none(world: World):
    """A commit may name a member by its id and generation, or name none. Wrong ids and generations are refused."""
    reader = Reader(world.engine, "g", "orders")
    wait_until_shared([reader], [T0, T1])
    member = {"member_id": reader.member.member_id, "generation": reader.held.generation}
    world.commit(T0, 5, **member)
    world.commit(T1, 5)
    others = {Code.UNKNOWN_MEMBER_ID: {"member_id": "somebody"}}
    others[Code.ILLEGAL_GENERATION] = {"generation": reader.held.generation + 1}
    for code, other in others.items():
        assert code == world.commit(T0, 9, **{**member, **other})
    world.end(COMMIT)
    assert {T0: 5, T1: 5} == world.committed()


def test_an_invalid_commit_is_refused(world: World):
    """An invalid commit is refused, and leaves no pending position."""
    assert Code.UNKNOWN_TOPIC_OR_PARTITION == world.commit(TopicPartition("nowhere", 0), 1)
    assert Code.OFFSET_METADATA_TOO_LARGE == world.commit(T0, 1, metadata="x" * 5000)
    assert {} == world.pending()


def test_a_transaction_commits_nothing_for_a_later_topic(world: World):
    """A transaction's position never counts for a new topic, even if deleting the position with the topic failed."""
    world.commit(T0, 5)
    world.disk.fail("pwrite", suffix=".log")
    world.engine.delete_topic("orders")
    assert {T0: [5]} == world.pending()
    world.engine.create_topic("orders")
    world.end(COMMIT)
    assert ({}, {}) == (world.committed(), world.pending())
