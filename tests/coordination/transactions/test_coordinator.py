"""Tests of the transaction coordinator over logs: what is written before an answer, markers, timeouts, kills."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.doubles.engines import engine_on, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.mortal_disk import End as EndOfProcess
from tests.doubles.mortal_disk import Killed, MortalDisk
from tests.doubles.records import read_records
from tests.doubles.refusals import refusal
from tests.doubles.replicated import with_orders
from tests.doubles.several_disks import A, B, SeveralDisks, break_disk, filled, opened, places
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.coordination.engine import Engine
from topicfs.coordination.groups.requests import Code, OffsetCommitRequest
from topicfs.coordination.groups.runtime.service import EmbeddedGroups
from topicfs.coordination.membership import Position
from topicfs.coordination.transactions.coordinator import TransactionCoordinator
from topicfs.coordination.transactions.state_records import read_name, read_state, write_key
from topicfs.coordination.transactions.transaction import End, ProducerRun, Status
from topicfs.replication import EmbeddedEngine
from topicfs.replication.replicas.engine import ReplicatedEngine
from topicfs.storage.codec.columns import decode_each
from topicfs.storage.codec.control import ControlType, EndTransactionMarker
from topicfs.storage.codec.headers import BatchStamp
from topicfs.storage.codec.records import encode
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.errors import InvalidTransactionStateError, NotEnoughReplicasError
from topicfs.storage.model import Isolation, Offset, ProducerId, Record, Timestamp, TopicPartition
from topicfs.storage.partitioning import coordinator_partition
from topicfs.storage.producers.append import UNVERIFIED
from topicfs.storage.producers.progress import own

CONFIG = EngineConfig(
    transaction_topic_num_partitions=2,
    offsets_topic_num_partitions=1,
    recovery_threads=1,
    topic_defaults=TopicConfig(segment_index_bytes=1200),
)
T0, T1, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("other", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)
NAME = "tx"
MINUTE = 60_000


class World:
    """An engine with two topics, and the coordinator of its transactions."""

    def __init__(self, disk: MortalDisk, clock: ManualClock) -> None:
        self.disk, self.clock = disk, clock
        self.engine: Engine = engine_on(disk, clock=clock, config=CONFIG)
        for name, partitions in (("orders", 2), ("other", 1)):
            if name not in self.engine.topics():
                self.engine.create_topic(name, partitions=partitions)
        self.coordinate()

    def coordinate(self) -> None:
        """Start a coordinator, as the next process does."""
        groups = self.engine.groups
        assert isinstance(groups, EmbeddedGroups)
        self.groups = groups
        self.coordinator = TransactionCoordinator(self.engine, groups, CONFIG, self.clock)

    def close(self) -> None:
        self.coordinator.close()
        self.engine.close()

    def reopen(self) -> None:
        """Continue on the same disk as the next process does."""
        self.engine = engine_on(self.disk, clock=self.clock, config=CONFIG)
        self.coordinate()

    def begin(self, expected: ProducerRun | None = None) -> ProducerRun:
        return self.coordinator.init_producer_id(NAME, MINUTE, expected)

    def write(self, run: ProducerRun, place: TopicPartition, value: bytes, version: int = 2) -> None:
        """Append a transactional record as a newer client's Produce request does."""
        partition = own(self.engine.partition(*place))
        guard = partition.begin_verification(run.producer_id, epoch=run.epoch, sequence=0, bumps_epoch=True)
        if guard is not None:
            self.coordinator.add_partitions(NAME, run, [place], version)
        partition.append(batch_of(run, value), durable=True, guard=guard or UNVERIFIED)

    def commit_position(self, run: ProducerRun, offset: int) -> None:
        """Commit a position of group `g` as a newer client's TxnOffsetCommit request does."""
        partition = self.groups.coordinator_partition("g")
        guard = own(partition).begin_verification(
            run.producer_id, epoch=run.epoch, sequence=-1, bumps_epoch=True
        )
        self.coordinator.add_partitions(NAME, run, [OFFSETS], 2)
        request = OffsetCommitRequest(group="g", positions={OTHER: Position(offset)})
        answer = self.groups.commit_in_transaction(request, *run, guard)
        assert {OTHER: Code.NONE} == answer

    def end(self, run: ProducerRun, *, commit: bool = True, version: int = 2) -> ProducerRun:
        return self.coordinator.end(NAME, End(run, commit=commit, version=version))

    def values(self, place: TopicPartition) -> list[str]:
        fetched = self.engine.partition(*place).read(Offset(0), max_bytes=1 << 20)
        found = decode_each(fetched.data, aborted=fetched.aborted)
        return [(one.value or b"").decode() for columns in found for one in columns]

    def position(self) -> int | None:
        found = self.groups.positions("g").committed.get(OTHER)
        return None if found is None else found.offset

    def is_stable(self, place: TopicPartition) -> bool:
        """Return whether no transaction is open in a partition."""
        offsets = self.engine.partition(*place).offsets()
        return offsets.last_stable_offset == offsets.log_end_offset

    def statuses(self) -> list[tuple[str, Status | None]]:
        """Return the records of `__transaction_state` with the status of each; None for a tombstone."""
        found = []
        for partition in self.engine.topic("__transaction_state").partitions().values():
            for one in read_records(partition, isolation=Isolation.READ_UNCOMMITTED):
                name = read_name(one.key or b"")
                found.append((name or "", None if one.value is None else read_state(one.value).status))
        return found


def started(engine: ReplicatedEngine | EmbeddedEngine, clock: ManualClock) -> TransactionCoordinator:
    """Return a coordinator that has read its partitions."""
    coordinator = TransactionCoordinator(engine, engine.groups, CONFIG, clock)
    coordinator.maintain()
    return coordinator


def batch_of(run: ProducerRun, value: bytes) -> bytearray:
    stamp = BatchStamp(
        producer_id=run.producer_id, producer_epoch=run.epoch, base_sequence=0, transactional=True
    )
    return encode([Record(Offset(0), Timestamp(1_700_000_000_000), None, value)], stamp)


@pytest.fixture
def world(clock: ManualClock) -> Iterator[World]:
    world = World(MortalDisk(), clock)
    world.coordinator.maintain()
    yield world
    world.close()


@pytest.mark.parametrize("commit", [True, False])
def test_the_life_of_a_transaction(world: World, commit: bool) -> None:
    """The records and positions of a transaction become visible together, or never.

    The coordinator writes a record for each step of the transaction.
    """
    run = world.begin()
    assert 0 == run.epoch
    world.write(run, T0, b"a")
    world.write(run, OTHER, b"b")
    world.commit_position(run, 7)
    assert ([], [], None) == (world.values(T0), world.values(OTHER), world.position())
    after = world.end(run, commit=commit)
    assert (run.producer_id, 1) == after
    expected = (["a"], ["b"], 7) if commit else ([], [], None)
    assert expected == (world.values(T0), world.values(OTHER), world.position())
    done = [Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT]
    aborted = [Status.PREPARE_ABORT, Status.COMPLETE_ABORT]
    steps = [Status.EMPTY, Status.ONGOING, Status.ONGOING, Status.ONGOING, *(done if commit else aborted)]
    assert [(NAME, one) for one in steps] == world.statuses()
    assert after == world.end(run, commit=commit)
    world.write(after, T0, b"c")
    world.end(after)
    assert "c" == world.values(T0)[-1]


def test_the_next_process_finds_the_same_state(world: World) -> None:
    """A transaction that is open when the process ends continues in the next process."""
    run = world.begin()
    world.write(run, T0, b"a")
    world.close()
    world.reopen()
    assert Code.COORDINATOR_LOAD_IN_PROGRESS == refusal(world.end, run)
    assert Code.COORDINATOR_LOAD_IN_PROGRESS == refusal(world.begin)
    assert Code.COORDINATOR_LOAD_IN_PROGRESS == refusal(world.coordinator.listed)
    world.coordinator.maintain()
    assert [NAME] == list(world.coordinator.listed())
    world.write(run, T1, b"b")
    world.end(run)
    assert (["a"], ["b"]) == (world.values(T0), world.values(T1))


def test_a_successor_fences_its_predecessor(world: World) -> None:
    """A second producer of a transactional id aborts the open transaction, and the first producer can write no more."""
    first = world.begin()
    world.write(first, T0, b"lost")
    assert Code.CONCURRENT_TRANSACTIONS == refusal(world.begin)
    second = world.begin()
    assert (first.producer_id, 2) == second
    assert Code.PRODUCER_FENCED == refusal(world.write, first, T1, b"zombie")
    assert Code.PRODUCER_FENCED == refusal(world.end, first)
    world.write(second, T0, b"kept")
    world.end(second)
    assert ["kept"] == world.values(T0)


def test_a_transaction_is_aborted_after_its_timeout(world: World) -> None:
    """The coordinator aborts a transaction after its timeout, even if the transaction began in an earlier process."""
    run = world.begin()
    world.write(run, T0, b"lost")
    world.clock.advance(MINUTE)
    world.coordinator.maintain()
    assert not world.is_stable(T0)
    world.close()
    world.reopen()
    world.clock.advance(1)
    world.coordinator.maintain()
    assert world.is_stable(T0)
    assert [] == world.values(T0)
    assert Code.INVALID_TXN_STATE == refusal(world.end, run)
    assert Code.PRODUCER_FENCED == refusal(world.write, run, T1, b"late")
    assert Status.COMPLETE_ABORT is world.coordinator.describe(NAME).status


def test_unused_transactional_ids_are_forgotten(world: World) -> None:
    """A transactional id without a transaction gets a tombstone when it expires, and is unknown afterwards."""
    run = world.begin()
    world.clock.advance(CONFIG.transactional_id_expiration_ms - 1)
    world.coordinator.maintain()
    assert Status.EMPTY is world.coordinator.describe(NAME).status
    world.clock.advance(CONFIG.transactional_id_check_interval_ms)
    world.coordinator.maintain()
    assert Code.TRANSACTIONAL_ID_NOT_FOUND == refusal(world.coordinator.describe, NAME)
    assert [(NAME, Status.EMPTY), (NAME, None)] == world.statuses()
    assert Code.INVALID_PRODUCER_ID_MAPPING == refusal(world.end, run)


def test_a_marker_that_cannot_be_written_is_written_later(world: World) -> None:
    """If a partition fails, the commit is not undone, and all other partitions get their markers.

    The failed partition gets its marker later.
    """
    run = world.begin()
    world.write(run, T0, b"a")
    world.write(run, T1, b"b")
    world.disk.fail("pwrite", suffix="orders-1/00000000000000000000.log")
    after = world.end(run)
    assert ["a"] == world.values(T0)
    assert Status.PREPARE_COMMIT is world.coordinator.describe(NAME).status
    assert Code.CONCURRENT_TRANSACTIONS == refusal(world.write, after, T0, b"c")
    assert Code.CONCURRENT_TRANSACTIONS == refusal(world.end, run)
    world.disk.heal()
    with suppress(Exception):
        world.engine.reopen_partition("orders", 1)
    world.coordinator.maintain()
    assert ["b"] == world.values(T1)
    assert Status.COMPLETE_COMMIT is world.coordinator.describe(NAME).status


@pytest.mark.parametrize("place", [T0, OFFSETS])
def test_a_partition_that_knows_a_later_coordinator_gets_the_marker(
    world: World, place: TopicPartition
) -> None:
    """A transaction ends even if a partition already has a marker with a later coordinator epoch.

    An administrator or a broker may have written such a marker.
    """
    run = world.begin()
    world.commit_position(run, 3)
    run = world.end(run)
    world.coordinator.write_marker(place, run, EndTransactionMarker(ControlType.ABORT, 2**31 - 1))
    world.write(run, T0, b"a")
    world.commit_position(run, 7)
    run = world.end(run)
    assert Status.COMPLETE_COMMIT is world.coordinator.describe(NAME).status
    assert (["a"], 7) == (world.values(T0), world.position())
    assert world.is_stable(place)


def test_a_partition_that_knows_a_later_epoch_needs_no_marker(world: World) -> None:
    """If a partition has a later epoch of the producer's id, the transaction ends without this partition.

    Somebody else has then written to the partition with this id.
    """
    run = world.begin()
    partition = own(world.engine.partition(*T0))
    stamp = BatchStamp(producer_id=run.producer_id, producer_epoch=32767, base_sequence=0)
    partition.append(encode([Record(Offset(0), Timestamp(0), None, b"other")], stamp))
    world.coordinator.add_partitions(NAME, run, [T0, T1], 2)
    run = world.end(run)
    assert Status.COMPLETE_COMMIT is world.coordinator.describe(NAME).status
    assert run == world.begin()._replace(epoch=run.epoch)


def test_a_deleted_partition_needs_no_marker(world: World) -> None:
    """A transaction ends without a marker in a topic that was deleted meanwhile."""
    run = world.begin()
    world.write(run, T0, b"a")
    world.write(run, OTHER, b"b")
    world.engine.delete_topic("orders")
    world.end(run)
    assert ["b"] == world.values(OTHER)
    assert Status.COMPLETE_COMMIT is world.coordinator.describe(NAME).status


def test_a_batch_of_an_ended_transaction_begins_no_other(world: World) -> None:
    """A batch that was verified before the end of its transaction is refused after the end."""
    run = world.begin()
    partition = own(world.engine.partition(*T0))
    guard = partition.begin_verification(run.producer_id, epoch=0, sequence=0, bumps_epoch=False)
    world.coordinator.add_partitions(NAME, run, [T0], 0)
    world.end(run, version=0)
    with pytest.raises(InvalidTransactionStateError):
        partition.append(batch_of(run, b"late"), guard=guard)
    assert world.is_stable(T0)


def test_refused_requests(world: World) -> None:
    """Requests with an unknown or empty transactional id, or with an invalid timeout, are refused."""
    run = ProducerRun(ProducerId(7), 0)
    coordinator = world.coordinator
    assert {} == coordinator.listed()
    for end in (0, 2):
        assert Code.INVALID_PRODUCER_ID_MAPPING == refusal(world.end, run, version=end)
    assert Code.INVALID_PRODUCER_ID_MAPPING == refusal(coordinator.add_partitions, NAME, run, [T0], 2)
    assert Code.INVALID_REQUEST == refusal(coordinator.init_producer_id, "", MINUTE, None)
    assert Code.INVALID_REQUEST == refusal(coordinator.init_producer_id, "x" * 40_000, MINUTE, None)
    for timeout_ms in (0, -1, 900_001):
        code = refusal(coordinator.init_producer_id, NAME, timeout_ms, None)
        assert Code.INVALID_TRANSACTION_TIMEOUT == code
    assert "__transaction_state" not in world.engine.topics()


STEPS = 60


@pytest.mark.parametrize("end", [EndOfProcess.KILL, EndOfProcess.POWER_LOSS_KEEPING_NOTHING])
def test_a_kill_at_every_step_of_a_commit(end: EndOfProcess) -> None:
    """Whenever the process is killed during a commit, the next process ends the transaction everywhere in the same way.

    A commit that was answered is kept. If the Prepare record is not on disk, the transaction is aborted after its
    timeout.
    """
    results = set()
    for steps in range(STEPS):
        clock = ManualClock()
        world = World(MortalDisk(), clock)
        world.coordinator.maintain()
        run = world.begin()
        for place in (T0, T1):
            world.write(run, place, b"v")
        world.commit_position(run, 7)
        answered = False
        with suppress(Killed), world.disk.dying_after(steps):
            world.end(run)
            answered = True
        end.of(world.disk)
        world.reopen()
        world.coordinator.maintain()
        if Status.ONGOING is world.coordinator.describe(NAME).status:
            assert not answered
            clock.advance(MINUTE + 1)
            world.coordinator.maintain()
        assert all(map(world.is_stable, (T0, T1, OFFSETS)))
        found = (world.values(T0), world.values(T1), world.position())
        assert found in ((["v"], ["v"], 7), ([], [], None))
        assert found[2] == 7 or not answered
        again = world.begin()
        world.write(again, T0, b"next")
        world.end(again)
        assert "next" == world.values(T0)[-1]
        results.add((answered, found[2]))
        world.close()
        if answered:
            break
    assert {(False, 7), (False, None), (True, 7)} == results


def test_replicas_have_the_same_markers() -> None:
    """In partitions with replicas, transactions end on every replica, and unverified batches are refused."""
    disks = with_orders()
    engine = disks.engine
    coordinator = started(engine, disks.clock)
    run = coordinator.init_producer_id(NAME, MINUTE, None)
    partition = engine.partition("orders", 0)
    with pytest.raises(InvalidTransactionStateError):
        own(partition).append(batch_of(run, b"v"), guard=UNVERIFIED)
    guard = own(partition).begin_verification(run.producer_id, epoch=0, sequence=0, bumps_epoch=True)
    coordinator.add_partitions(NAME, run, [T0], 2)
    own(partition).append(batch_of(run, b"v"), durable=True, guard=guard)
    coordinator.end(NAME, End(run, commit=True, version=2))
    assert ["v"] == read_lines(partition)
    ends = {one.number: one.log.log_end_offset for one in disks.partition().replicas_in_sync}
    assert [2, 2] == list(ends.values())
    coordinator.close()
    engine.close()


def test_a_partition_of_a_missing_directory_gets_its_marker_later(clock: ManualClock) -> None:
    """A partition whose directory is missing at a start does not count as deleted, and gets the marker later."""
    disks = SeveralDisks({A: SimulatedDisk(), B: SimulatedDisk()})
    engine = filled(disks, clock)
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)
    coordinator = started(engine, clock)
    run = coordinator.init_producer_id(NAME, MINUTE, None)
    coordinator.add_partitions(NAME, run, [here, there], 2)
    for place in (here, there):
        own(engine.partition(*place)).append(batch_of(run, b"v"), durable=True)
    state = coordinator_partition(NAME, CONFIG.transaction_topic_num_partitions)
    lost = B if places(engine)[f"__transaction_state-{state}"] == "/a" else A
    (waiting,) = [one for one in (here, there) if places(engine)[str(one)] == str(lost)]
    coordinator.close()
    engine.close()
    disks.disks[lost].rename(lost, Path("/away"))
    disks.disks[lost].make_directory(lost)
    engine = opened(disks, clock)
    coordinator = started(engine, clock)
    coordinator.end(NAME, End(run, commit=True, version=2))
    assert Status.PREPARE_COMMIT is coordinator.describe(NAME).status
    disks.disks[lost].remove_directory(lost)
    disks.disks[lost].rename(Path("/away"), lost)
    engine.reopen_partition(*waiting)
    coordinator.maintain()
    assert Status.COMPLETE_COMMIT is coordinator.describe(NAME).status
    for place in (here, there):
        offsets = engine.partition(*place).offsets()
        assert offsets.last_stable_offset == offsets.log_end_offset
    coordinator.close()
    engine.close()


def test_too_few_replicas_get_no_marker_again_and_again() -> None:
    """While too few replicas are in sync, a transaction waits. Meanwhile neither states nor markers are appended."""
    disks = with_orders(min_insync_replicas=2)
    engine = disks.engine
    coordinator = started(engine, disks.clock)
    run = coordinator.init_producer_id(NAME, MINUTE, None)
    coordinator.add_partitions(NAME, run, [T0], 2)
    partition = disks.partition()
    own(partition).append(batch_of(run, b"v"))
    break_disk(disks.disk(2))
    own(partition).append(batch_of(ProducerRun(ProducerId(8), 0), b"w"))
    before = partition.offsets().log_end_offset
    marker = EndTransactionMarker(ControlType.ABORT, 0)
    for _ in range(3):
        with pytest.raises(NotEnoughReplicasError):
            coordinator.write_marker(T0, run, marker)
    assert before == partition.offsets().log_end_offset
    assert Code.COORDINATOR_NOT_AVAILABLE == refusal(coordinator.end, NAME, End(run, commit=True, version=2))
    assert Status.ONGOING is coordinator.describe(NAME).status
    coordinator.close()


def test_a_partition_that_cannot_be_read_is_not_taken_for_empty(world: World) -> None:
    """If the coordinator cannot read a partition, its transactional ids are not taken for unknown.

    Requests for these ids fail. Listing all ids fails as well, because the list would be incomplete.
    """
    world.begin()
    number = coordinator_partition(NAME, CONFIG.transaction_topic_num_partitions)
    unknown = Record(Offset(0), Timestamp(0), write_key(NAME), b"\0\7")
    world.engine.partition("__transaction_state", number).append(encode([unknown]))
    world.coordinator.close()
    world.coordinate()
    world.coordinator.maintain()
    assert Code.NOT_COORDINATOR == refusal(world.begin)
    assert Code.NOT_COORDINATOR == refusal(world.coordinator.listed)
    assert [f"__transaction_state-{number}"] == world.coordinator.failed
