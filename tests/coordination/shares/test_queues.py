"""Tests of an engine's share groups: records of sessions, their acknowledgement, and descriptions."""

from __future__ import annotations

import errno
import itertools

import pytest

from tests.doubles.engines import append_lines, engine_on
from tests.doubles.manual_clock import ManualClock
from tests.doubles.records import marker, produced
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.coordination.records.group_records import write_group
from topicfs.coordination.share_groups import (
    Acknowledgement,
    Leased,
    RecordName,
    RejectedBy,
    parse_record_name,
)
from topicfs.coordination.shares.coordinator_topic import TopicRecord, append
from topicfs.coordination.shares.group import MAX_SHARE_MEMBERS, QueueGroup, QueueSession
from topicfs.coordination.shares.groups import PRUNE_INTERVAL_MS
from topicfs.storage import errors
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.partitioning import coordinator_partition
from topicfs.storage.producers.append import Origin

ACCEPT, RELEASE, REJECT, RENEW = Acknowledgement
LOCK = 30_000


class Bench:
    """An engine with a topic `orders` and a group `billing`."""

    def __init__(self, lines: int = 5, *, partitions: int = 1) -> None:
        self.disk = SimulatedDisk()
        self.clock = ManualClock()
        self.engine = engine_on(self.disk, clock=self.clock)
        for internal in ("__consumer_offsets", "__share_group_state"):
            self.engine.create_topic(
                internal, partitions=2
            )  # With Kafka's fifty partitions a simulated disk is slow.
        self.engine.create_topic("orders", partitions=partitions)
        if lines:
            self.append(*(f"job {at}" for at in range(lines)))

    def append(self, *values: str, partition: int = 0) -> None:
        append_lines(self.engine.partition("orders", partition), "".join(f"{one}\n" for one in values))

    @property
    def group(self) -> QueueGroup:
        return self.engine.share_groups.group("billing")

    def open(self, holder: str = "a shell") -> QueueSession:
        return self.group.open(["orders"], holder=holder)

    def restart(self) -> None:
        self.engine.close()
        self.engine = engine_on(self.disk, clock=self.clock)

    def kill(self) -> None:
        """Kill the daemon, and lose everything that it did not write."""
        self.disk.crash(keep=1.0)
        self.engine = engine_on(self.disk, clock=self.clock)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def session(bench: Bench) -> QueueSession:
    """A session of the group."""
    return bench.open()


def value(leased: Leased | None) -> str | None:
    return None if leased is None else (leased.record.value or b"").decode()


def record_name(offset: int, partition: int = 0) -> RecordName:
    return RecordName("orders", partition, Offset(offset))


def acknowledge(session: QueueSession, leased: Leased | None, word: Acknowledgement = ACCEPT) -> None:
    assert leased is not None
    session.acknowledge({leased.record_name: word})


def test_each_record_goes_to_one_session(bench):
    """Two sessions take records in turn. Accepted records do not come again, so in the end no record is left."""
    sessions = itertools.cycle([bench.open(), bench.open()])
    values = []
    while (leased := (session := next(sessions)).take()) is not None:
        values.append(value(leased))
        acknowledge(session, leased)

    assert [f"job {at}" for at in range(5)] == values
    bench.append("one more")
    assert "one more" == value(next(sessions).take())


def test_a_released_record_comes_again_before_new_ones(bench, session):
    """A released record comes again before new ones, with an increased delivery count."""
    first = session.take()
    acknowledge(session, first, RELEASE)
    again = session.take()

    assert first is not None
    assert again is not None
    assert (first.record_name, 1, 2) == (again.record_name, first.delivery_count, again.delivery_count)


def test_the_close_gives_back_at_once(bench):
    """Closing a session releases its records for other sessions. Further calls on the closed session change nothing."""
    first, second = bench.open("one"), bench.open("two")
    taken = [first.take(), first.take()]
    assert 2 == len(first.held())
    first.close()
    first.close()

    assert [value(one) for one in taken] == [value(second.take()), value(second.take())]
    with pytest.raises(errors.SessionClosedError):
        first.take()
    assert [] == first.held()
    assert ["two"] == [one.holder for one in bench.group.members()]


def test_a_lease_ends(bench):
    """A holder whose lease has ended has lost the record. A renewed lease ends later."""
    slow, other = bench.open(), bench.open()
    lost, renewed = slow.take(), slow.take()
    bench.clock.advance(LOCK - 1)
    acknowledge(slow, renewed, RENEW)
    bench.clock.advance(1)
    assert value(lost) == value(other.take())
    with pytest.raises(errors.RecordNotHeldError, match="orders-0-0"):
        acknowledge(slow, lost)
    assert [renewed and renewed.record_name] == [one.record_name for one in slow.held()]
    acknowledge(slow, renewed)


def test_waiting_sessions_are_notified():
    """Waiting sessions are notified of new records, released records and expired leases."""
    bench = Bench(lines=0)
    told: list[str] = []
    waiting, other = bench.open(), bench.open()
    cancel = waiting.listen(lambda: told.append("!"))
    assert waiting.take() is None
    for event in (
        lambda: bench.append("a job"),
        lambda: acknowledge(other, other.take(), RELEASE),
        lambda: (other.take(), bench.clock.advance(LOCK), bench.engine.maintenance(bench.clock())),
        lambda: (other.take(), other.close()),
        lambda: bench.engine.add_partitions("orders", total=2),
    ):
        told.clear()
        event()
        assert told
    cancel()
    told.clear()
    bench.append("another")
    assert [] == told


def test_what_is_rejected_is_shown_and_not_given_again():
    """Records that a reader or the delivery limit has rejected are shown until `forget_rejected` is called.

    They are shown with their last holder, and are not delivered again.
    """
    bench = Bench(lines=2)
    session = bench.open("worker")
    acknowledge(session, session.take(), REJECT)
    for _ in range(5):
        acknowledge(session, session.take(), RELEASE)
    assert session.take() is None
    bench.restart()

    rejected = bench.group.rejected("orders")
    now = bench.clock()
    assert [
        (record_name(0), now, RejectedBy.REJECT, 1, "worker"),
        (record_name(1), now, RejectedBy.LIMIT, 5, "worker"),
    ] == [tuple(one) for one in rejected]
    assert bench.open().take() is None
    bench.group.forget_rejected(record_name(0))
    with pytest.raises(errors.RecordNotHeldError):
        bench.group.forget_rejected(record_name(0))
    bench.restart()
    assert [record_name(1)] == [one.record_name for one in bench.group.rejected("orders")]


def test_a_restart_goes_on_where_the_group_stood(bench, session):
    """After a restart a group continues from its stored state.

    Accepted records are done, released records keep their delivery count, and held records are delivered again.
    """
    taken = [session.take() for _ in range(4)]
    acknowledge(session, taken[0])
    acknowledge(session, taken[2])
    acknowledge(session, taken[1], RELEASE)
    bench.kill()
    session = bench.open()
    again = [session.take() for _ in range(3)]

    assert [("job 1", 2), ("job 3", 1), ("job 4", 1)] == [
        (value(one), one.delivery_count) for one in again if one
    ]
    assert session.take() is None


def test_what_is_shown_of_a_group(bench):
    """A description has positions, records in flight with their holders, members, topics and state."""
    assert ({}, "Empty") == (bench.engine.share_groups.groups(), bench.group.state)
    session = bench.open("bash, process 7")
    acknowledge(session, session.take())
    held = session.take()
    assert held is not None

    group = bench.group
    (position,) = group.positions("orders")
    assert (TopicPartition("orders", 0), 1, 1, 0, 4) == (
        position.partition,
        position.start_offset,
        position.in_flight,
        position.waiting,
        position.lag,
    )
    now = bench.clock()
    (in_flight,) = group.in_flight("orders")
    assert (record_name(1), session.member_id, "bash, process 7", now, 1, now + LOCK) == tuple(in_flight)
    assert (["billing"], "Stable", ["orders"], 1) == (
        list(bench.engine.share_groups.groups()),
        group.state,
        group.topics(),
        group.members()[0].held,
    )


def test_somebody_else_settles_a_record_in_flight(bench, session):
    """After `acknowledge_for_holder` has accepted or released a record, the holder's own acknowledgement fails."""
    first, second = session.take(), session.take()
    bench.group.acknowledge_for_holder(record_name(0), ACCEPT)
    bench.group.acknowledge_for_holder(record_name(1), RELEASE)

    for leased in (first, second):
        with pytest.raises(errors.RecordNotHeldError):
            acknowledge(session, leased)
    with pytest.raises(errors.RecordNotHeldError):
        bench.group.acknowledge_for_holder(record_name(0), ACCEPT)
    assert [] == session.held()
    assert "job 1" == value(session.take())


def test_records_are_taken_some_at_a_time(bench, session):
    """A session gets at most the requested number of records. An invalid acknowledgement changes nothing."""
    taken = session.take_some(3)
    assert ["job 0", "job 1", "job 2"] == [value(one) for one in taken]
    with pytest.raises(errors.RecordNotHeldError):
        session.acknowledge(
            {**dict.fromkeys((one.record_name for one in taken), ACCEPT), record_name(4): ACCEPT}
        )
    session.acknowledge(dict.fromkeys((one.record_name for one in taken), ACCEPT))

    assert ["job 3", "job 4"] == [value(one) for one in session.take_some(10)]
    assert [] == list(session.take_some(10))


def test_partitions_are_taken_in_turns():
    """A session takes records from all partitions in turn, and does not read one partition to its end first.

    Partitions that were added later have their turn as well.
    """
    bench = Bench(lines=0, partitions=2)
    for partition in (0, 1):
        bench.append("a", "b", partition=partition)
    session = bench.open()
    assert {0, 1} == {one.record_name.partition for one in (session.take(), session.take()) if one}
    bench.engine.add_partitions("orders", total=3)
    bench.append("c", partition=2)

    assert {(0, 1), (1, 1), (2, 0)} == {
        (one.record_name.partition, one.record_name.offset)
        for one in (session.take() for _ in range(3))
        if one
    }


def test_what_a_transaction_aborted_is_passed_over():
    """Records of aborted transactions are skipped, and records of undecided transactions are waited for."""
    bench = Bench(lines=1)
    partition = bench.engine.partition("orders", 0)
    partition.append(produced(b"aborted", b"too", txn=True))
    bench.append("behind it")
    session = bench.open()
    acknowledge(session, session.take())
    assert session.take() is None
    partition.append(marker(commit=False), origin=Origin.COORDINATOR)

    leased = session.take()
    assert "behind it" == value(leased)
    acknowledge(session, leased)
    assert session.take() is None
    assert 0 == bench.group.positions("orders")[0].lag


def test_a_gap_in_the_log_is_no_record(bench, session):
    """If the log start moves past waiting records, they are lost, and the records after them are delivered."""
    acknowledge(session, session.take(), RELEASE)
    bench.engine.partition("orders", 0).delete_records(Offset(3))

    assert ["job 3", "job 4", None] == [value(session.take()) for _ in range(3)]


def test_a_group_that_is_reset_begins_there(bench, session):
    """A reset is refused while the group has members, or if its offset is outside of the log."""
    for _ in range(3):
        acknowledge(session, session.take())
    partition = TopicPartition("orders", 0)
    with pytest.raises(errors.GroupNotEmptyError):
        bench.group.reset(partition, Offset(1))
    session.close()
    with pytest.raises(errors.OffsetOutOfRangeError):
        bench.group.reset(partition, Offset(6))
    bench.group.reset(partition, Offset(1))

    assert "job 1" == value(bench.open().take())
    bench.restart()
    assert "job 1" == value(bench.open().take())


def test_settings_are_kept_and_count_at_once(bench):
    """A queue's settings have Kafka's names and bounds."""
    bench.engine.share_groups.create("billing")
    with pytest.raises(errors.InvalidConfigError):
        bench.group.alter({"share.delivery.count.limit": "1"})
    with pytest.raises(errors.InvalidConfigError):
        bench.group.alter({"assignor": None})
    bench.group.alter({"share.delivery.count.limit": "2", "share.auto.offset.reset": "latest"})
    bench.restart()
    assert 2 == bench.group.settings.share_delivery_count_limit
    session = bench.open()
    assert session.take() is None
    bench.append("new")
    for _ in range(2):
        acknowledge(session, session.take(), RELEASE)
    assert session.take() is None
    bench.group.alter({"share.delivery.count.limit": None})
    assert 5 == bench.group.settings.share_delivery_count_limit


def test_groups_come_and_go(bench):
    """Groups are created without a session, and deleted with all their state unless they have members."""
    groups = bench.engine.share_groups
    groups.create("billing")
    with pytest.raises(errors.GroupExistsError):
        groups.create("billing")
    session = bench.open()
    acknowledge(session, session.take())
    with pytest.raises(errors.GroupNotEmptyError):
        groups.delete("billing")
    session.close()
    groups.delete("billing")
    with pytest.raises(errors.UnknownGroupError):
        groups.delete("billing")
    bench.restart()

    assert {} == bench.engine.share_groups.groups()
    assert "job 0" == value(bench.open().take())


def test_invalid_queues_are_refused(bench):
    """A queue is refused if it has a missing or internal topic, a consumer group's name, or too many sessions."""
    with pytest.raises(errors.UnknownTopicError):
        bench.group.open(["nothing"], holder="")
    bench.open()
    with pytest.raises(errors.PolicyViolationError):
        bench.group.open(["__consumer_offsets"], holder="")
    partition = bench.engine.partition("__consumer_offsets", coordinator_partition("readers", 2))
    append(
        partition,
        [TopicRecord(*write_group("readers", {"protocolType": "consumer", "members": []}))],
        bench.clock(),
    )
    with pytest.raises(errors.GroupExistsError, match="is a consumer group"):
        bench.engine.share_groups.group("readers")
    for _ in range(MAX_SHARE_MEMBERS - 1):
        bench.open()
    with pytest.raises(errors.GroupFullError):
        bench.open()


@pytest.mark.parametrize("name", ["", "\udcff", "g" * 32_768])
def test_a_name_that_no_record_can_have_is_refused(name: str):
    """A queue's name is UTF-8 text of 1 to 32,767 bytes, like the name of every group."""
    with pytest.raises(errors.InvalidGroupError):
        Bench().engine.share_groups.create(name)


def test_a_topic_that_is_deleted_takes_its_states_along(bench, session):
    """A new topic of the same name starts from the beginning, without states of the deleted topic."""
    acknowledge(session, session.take())
    bench.engine.maintenance(bench.clock())
    assert ["orders"] == bench.group.topics()
    bench.engine.delete_topic("orders")
    assert [] == bench.group.topics()
    with pytest.raises(errors.UnknownTopicError):
        session.take()
    bench.engine.create_topic("orders", partitions=1)
    bench.append("anew")

    assert [] == bench.group.topics()
    assert "anew" == value(session.take())
    assert ["orders"] == bench.group.topics()
    bench.engine.maintenance(bench.clock())
    assert 1 == len(list(bench.engine.share_groups._opened().store.states()))


def test_the_topic_of_states_stays_small(bench, session):
    """Redundant records of the state topic are deleted every few minutes, and no state is lost."""
    taken = session.take()
    for _ in range(3):
        acknowledge(session, session.take(), RELEASE)
    bench.clock.advance(PRUNE_INTERVAL_MS)
    bench.engine.maintenance(bench.clock())
    (partition,) = [
        one for one in bench.engine.topic("__share_group_state").partitions().values() if one.offsets()[3]
    ]
    assert partition.log_start_offset == partition.offsets().log_end_offset - 1
    bench.kill()

    again = [bench.open().take() for _ in range(2)]
    assert [taken and taken.record_name, record_name(1)] == [one and one.record_name for one in again]


def test_a_read_only_engine_opens_no_sessions(bench, session):
    """A read-only engine opens no sessions, but shows the stored state."""
    acknowledge(session, session.take())
    acknowledge(session, session.take(), REJECT)
    bench.engine.close()
    engine = engine_on(bench.disk.read_only_view(), clock=bench.clock)
    group = engine.share_groups.group("billing")

    with pytest.raises(errors.ReadOnlyError):
        group.open(["orders"], holder="")
    assert (2, 3) == (group.positions("orders")[0].start_offset, group.positions("orders")[0].lag)
    assert [record_name(1)] == [one.record_name for one in group.rejected("orders")]


def test_a_disk_that_is_full_leaves_the_records_held(bench, session):
    """On a full disk an acknowledgement fails and can be repeated. No record is delivered twice."""
    leased = session.take()
    bench.disk.fail("pwrite", number=errno.ENOSPC, suffix=".log")
    with pytest.raises(OSError, match="No space"):
        acknowledge(session, leased)
    assert [leased] == list(session.held())
    acknowledge(session, leased)
    bench.kill()
    assert "job 1" == value(bench.open().take())


def test_names_of_records_are_read_as_they_are_written():
    """A record's name (topic-partition-offset) can be parsed even if the topic's name has dashes and digits."""
    assert RecordName("a-1", 0, Offset(42)) == parse_record_name(str(RecordName("a-1", 0, Offset(42))))
    for text in ("orders-0", "orders-00-1", "-0-1", "orders-0--1"):
        with pytest.raises(errors.InvalidNameError):
            parse_record_name(text)


def test_kafkas_topics_are_made_with_the_first_session():
    """The first session creates Kafka's internal topics, with a broker's number of partitions and settings."""
    disk = SimulatedDisk()
    engine = engine_on(disk)
    engine.create_topic("orders", partitions=1)
    assert ["orders"] == list(engine.topics())
    engine.share_groups.group("g").open(["orders"], holder="")

    states = engine.topic("__share_group_state")
    assert (50, 50) == (len(states.partitions()), len(engine.topic("__consumer_offsets").partitions()))
    assert ("delete", "-1", "104857600") == tuple(
        states.overrides[name] for name in ("cleanup.policy", "retention.ms", "segment.bytes")
    )
