"""Tests of loading a partition of `__consumer_offsets` with records of a broker, possibly of a later version."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from tests.doubles.engines import engine_on, log_of
from tests.doubles.group_reader import Reader, positions, wait_until_shared
from tests.doubles.manual_clock import ManualClock
from tests.doubles.records import read_records
from tests.doubles.simulated_disk import SimulatedDisk
from tests.doubles.waiting import wait_until
from topicfs.coordination.membership import GroupState, PendingPosition, Position
from topicfs.coordination.records.group_records import (
    CommittedOffset,
    write_committed_offset,
    write_group,
    write_offset_key,
)
from topicfs.replication import EmbeddedEngine
from topicfs.storage.codec.control import ControlType, EndTransactionMarker, encode_marker
from topicfs.storage.codec.headers import BatchStamp
from topicfs.storage.codec.records import encode
from topicfs.storage.errors import GroupError, GroupExistsError, IncompatibleMemberError
from topicfs.storage.model import Offset, ProducerId, Record, Timestamp, TopicPartition
from topicfs.storage.producers.append import Origin

TOPIC = "__consumer_offsets"
NOW = Timestamp(1_700_000_000_000)
PID = ProducerId(7)
T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def engine(disk: SimulatedDisk, clock: ManualClock) -> Iterator[EmbeddedEngine]:
    engine = engine_on(disk, clock=clock)
    engine.create_topic("orders", partitions=2)
    engine.create_topic(TOPIC, partitions=1)
    yield engine
    engine.close()


def append(
    engine: EmbeddedEngine, *records: tuple[bytes, bytes | None], stamp: BatchStamp | None = None
) -> None:
    """Append records as another coordinator does."""
    batch = [Record(Offset(at), NOW, key, value) for at, (key, value) in enumerate(records)]
    log = log_of(engine, TOPIC)
    if stamp is None:
        log.append(encode(batch))
    else:
        log.append(encode(batch, stamp), origin=Origin.COORDINATOR)


def transaction(engine: EmbeddedEngine, *records: tuple[bytes, bytes | None]) -> None:
    stamp = BatchStamp(producer_id=PID, producer_epoch=0, base_sequence=-1, transactional=True)
    append(engine, *records, stamp=stamp)


def end(engine: EmbeddedEngine, kind: ControlType) -> None:
    marker = encode_marker(EndTransactionMarker(kind, 0), timestamp=NOW, producer_id=PID, producer_epoch=0)
    engine.partition(TOPIC, 0).append(marker, origin=Origin.COORDINATOR)  # type: ignore[call-arg]


def position(offset: int, place: TopicPartition = T0, group: str = "g") -> tuple[bytes, bytes]:
    return write_committed_offset(CommittedOffset(group, *place, offset, commit_timestamp=NOW))


def other(kind: int, group: str) -> bytes:
    """Return the key of a record of a newer group protocol."""
    return struct.pack(">hh", kind, len(group)) + group.encode()


def test_the_newest_record_of_a_key_holds(engine: EmbeddedEngine):
    """The newest record of each key counts; a tombstone deletes its key. A group has the state in its last record."""
    append(engine, position(1), position(2, T1), position(3))
    append(engine, (write_offset_key("g", *T1), None), position(9, T0, "simple"))
    state = {
        "protocolType": "consumer",
        "generation": 4,
        "protocol": None,
        "leader": None,
        "currentStateTimestamp": NOW,
        "members": [],
    }
    append(engine, write_group("g", state), write_group("gone", state), (write_group("gone", state)[0], None))

    assert {T0: 3} == positions(engine)
    assert ["g", "simple"] == list(engine.groups.listed())
    assert (GroupState.EMPTY, 4) == (
        engine.groups.describe("g").state,
        engine.groups.describe("g").generation,
    )


def test_what_a_transaction_committed_counts_by_its_marker(engine: EmbeddedEngine):
    """A position in a transaction counts only if the transaction was committed.

    A position of an aborted transaction is dropped. A position of an open transaction is pending. A later position
    replaces an earlier one.
    """
    transaction(engine, position(5))
    end(engine, ControlType.COMMIT)
    transaction(engine, position(6))
    end(engine, ControlType.ABORT)
    transaction(engine, position(7), position(1, T1))
    append(engine, position(8))
    found = engine.groups.positions("g")
    assert {T0: 8} == {place: one.offset for place, one in found.committed.items()}
    assert {T0: [PendingPosition(Offset(7), PID)], T1: [PendingPosition(Offset(1), PID)]} == found.pending


def test_a_reader_waits_for_a_position_that_a_transaction_may_move(
    engine: EmbeddedEngine, clock: ManualClock
):
    """A reader does not get a partition while an open transaction has a position for this partition.

    The reader gets all other partitions at once.
    """
    append(engine, position(5, T1))
    transaction(engine, position(7))
    reader = Reader(engine, "g", "orders")
    wait_until(lambda: reader.partitions == [T1], "the reader holds the decided partition")
    assert 5 == getattr(reader.held.positions[T1], "offset", None)
    engine.groups.end_transaction(PID, 0, [0], EndTransactionMarker(ControlType.COMMIT, 0))  # type: ignore[attr-defined]
    clock.advance(100)
    engine.groups.listed()
    wait_until(lambda: reader.partitions == [T0, T1], "the reader holds both partitions")
    assert 7 == getattr(reader.held.positions[T0], "offset", None)


def test_records_of_newer_protocols_stay_as_they_are(
    engine: EmbeddedEngine, caplog: pytest.LogCaptureFixture
):
    """The loader logs a record of a newer protocol, and never rewrites this record.

    The group's name is in use until the record is deleted.
    """
    append(
        engine, (other(3, "new"), b"\x00\x00what"), (other(16, "old"), b"\x00\x00x"), (other(16, "old"), None)
    )
    append(engine, position(4, T0, "new"))
    assert {T0: 4} == positions(engine, "new")
    assert (
        "Unknown record type 3 while loading offsets and group metadata from __consumer_offsets-0."
        in caplog.text
    )
    reader = Reader(engine, "new", "orders")
    assert isinstance(reader.error(), IncompatibleMemberError)
    with pytest.raises(GroupExistsError):
        engine.groups.create("new")
    with pytest.raises(GroupError, match="another protocol"):
        engine.groups.set_positions("new", {T0: Position(1)})
    end_before = engine.partition(TOPIC, 0).offsets().log_end_offset
    engine.groups.create("old")
    assert 1 == engine.partition(TOPIC, 0).offsets().log_end_offset - end_before


@pytest.mark.parametrize(
    "record",
    [
        (b"\x00", b"x"),
        (b"\x00\x01\x00\x05g", b"x"),
        (write_offset_key("g", *T0), b"\x00\x09"),
        (write_offset_key("g", *T0), b""),
        (
            write_group(
                "g", {"protocolType": "", "generation": 0, "protocol": None, "leader": None, "members": []}
            )[0],
            b"\x00\x05x",
        ),
        (b"\x00\x02\x00\x01\xff", None),
    ],
    ids=["short", "cut key", "version of a position", "empty", "version of a group", "no UTF-8"],
)
def test_a_record_that_cannot_be_read_fails_the_partition(
    engine: EmbeddedEngine, record: tuple[bytes, bytes | None]
):
    """If a record cannot be read, loading its partition fails with the reason, and the partition is not written to.

    After a repair the partition can be loaded.
    """
    append(engine, position(1), record, position(2))
    before = engine.partition(TOPIC, 0).offsets().log_end_offset
    with pytest.raises(GroupError, match="__consumer_offsets-0: cannot be loaded: "):
        engine.groups.positions("g")
    with pytest.raises(GroupError, match="cannot be loaded"):
        engine.groups.set_positions("g", {T0: Position(1)})
    reader = Reader(engine, "g", "orders")
    assert isinstance(reader.error(), GroupError)
    assert {} == engine.groups.listed()
    assert before == engine.partition(TOPIC, 0).offsets().log_end_offset


def test_what_is_written_survives_compaction_by_our_cleaner(
    engine: EmbeddedEngine, disk: SimulatedDisk, clock: ManualClock
):
    """After compaction the newest positions and the newest state of each group are left.

    Older records are removed. The next owner loads the same positions and groups.
    """
    reader = Reader(engine, "g", "orders")
    wait_until_shared([reader], [T0, T1])
    for offset in range(50):
        reader.commit(T0, offset, "x" * 50)
    reader.commit(T1, 7)
    reader.leave()
    log_of(engine, TOPIC).appender.roll("test")
    engine.maintain_now(Timestamp(clock()))
    size = sum(one.size_bytes for one in engine.partition(TOPIC, 0).segments() or ())
    assert size < 50 * 100
    expected = {T0: 49, T1: 7}
    assert expected == positions(engine)
    engine.close()
    again = engine_on(disk, clock=clock)
    assert (expected, 2) == (positions(again), again.groups.describe("g").generation)
    again.close()


def test_compaction_keeps_what_is_not_known(engine: EmbeddedEngine, clock: ManualClock):
    """Compaction keeps the newest record of each key byte for byte, even if its type or version is unknown."""
    kept = [
        (other(3, "new"), b"\x00\x00what"),
        (other(99, "newer"), b"\x00\x07what"),
        (write_offset_key("later", *T0), b"\x00\x09what"),
    ]
    append(engine, (other(3, "new"), b"\x00\x00before"), *(position(offset) for offset in range(50)), *kept)
    append(engine, position(50))
    log_of(engine, TOPIC).appender.roll("test")
    append(engine, position(51))
    engine.maintain_now(Timestamp(clock()))
    left = [(one.key, one.value) for one in read_records(engine.partition(TOPIC, 0))]
    assert [*kept, position(50), position(51)] == left


def test_a_partition_that_is_reopened_is_loaded_again(engine: EmbeddedEngine):
    """After a partition is reopened, the members of its groups must rejoin. Their committed positions stay."""
    reader = Reader(engine, "g", "orders")
    wait_until_shared([reader], [T0, T1])
    reader.commit(T0, 7)
    log_of(engine, TOPIC).parts.mark_offline("broken")
    failed = reader.member.commit({T0: Position(8)})
    assert failed.exception(30) is not None
    engine.reopen_partition(TOPIC, 0)
    assert reader.error()
    assert {T0: 7} == positions(engine)
    again = Reader(engine, "g", "orders")
    wait_until_shared([again], [T0, T1])
    again.commit(T0, 9)
    assert {T0: 9} == positions(engine)
