"""Group positions are read as a coordinator reads them, copied once, and never moved back."""

from __future__ import annotations

import copy
from pathlib import Path
from uuid import UUID

import pytest

from tests.doubles.handover import (
    DATA,
    LOG_DIR,
    NOW,
    OwnCluster,
    StoppingDisk,
    below,
    contents,
    given,
    interrupt_everywhere,
    prepared_disk,
    served,
    taken,
)
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.coordination.membership import Position
from topicfs.coordination.records.group_records import (
    CommittedOffset,
    write_committed_offset,
    write_group,
    write_offset_key,
)
from topicfs.migration.handover import Handover
from topicfs.migration.positions import TOPIC, GroupPartition, read_positions
from topicfs.migration.takeover import BrokerDirectories, Takeover
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.codec.control import ControlType, EndTransactionMarker, encode_marker
from topicfs.storage.codec.headers import BatchStamp, Codec
from topicfs.storage.codec.records import encode
from topicfs.storage.disk import names
from topicfs.storage.errors import ClusterError, CorruptionError, StorageError
from topicfs.storage.model import Offset, ProducerId, Record, Timestamp, TopicPartition
from topicfs.storage.partitioning import coordinator_partition

pytestmark = pytest.mark.slow

DIRECTORY = LOG_DIR / f"{TOPIC}-0"
PARTITIONS = 3


def committed(
    group: str, offset: int, *, topic: str = "orders", partition: int = 0, at: int = NOW, topic_id: int = 0
) -> CommittedOffset:
    return CommittedOffset(
        group,
        topic,
        partition,
        offset,
        metadata="note",
        commit_timestamp=at,
        topic_id=UUID(int=topic_id),
    )


def record(position: CommittedOffset) -> tuple[bytes, bytes | None]:
    return write_committed_offset(position)


def removed(group: str) -> tuple[bytes, None]:
    return write_offset_key(group, "orders", 0), None


class OffsetsLog:
    """A partition of `__consumer_offsets`, built batch by batch."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.end = 0

    def put(self, *pairs: tuple[bytes, bytes | None], producer: int = -1, codec: Codec = Codec.NONE) -> None:
        records = [
            Record(Offset(self.end + at), Timestamp(NOW), key, value) for at, (key, value) in enumerate(pairs)
        ]
        stamp = BatchStamp(codec=codec)
        if producer >= 0:
            stamp = BatchStamp(
                producer_id=ProducerId(producer), producer_epoch=0, base_sequence=0, transactional=True
            )
        self.data += encode(records, stamp)
        self.end += len(records)

    def end_transaction(self, producer: int, kind: ControlType) -> None:
        self.data += encode_marker(
            EndTransactionMarker(kind, coordinator_epoch=0),
            timestamp=Timestamp(NOW),
            producer_id=ProducerId(producer),
            producer_epoch=0,
            base_offset=Offset(self.end),
        )
        self.end += 1

    def read(self, *more: tuple[str, bytes]) -> dict[str, int]:
        """Write the log and other files to an empty directory; return the position that each group has in them."""
        disk = SimulatedDisk()
        for directory in (LOG_DIR, DIRECTORY):
            disk.make_directory(directory)
        disk.write_bytes(DIRECTORY / f"{0:020}.log", bytes(self.data))
        for name, data in more:
            disk.write_bytes(DIRECTORY / name, data)
        return {place.group: found.offset for place, found in read_positions(disk, [DIRECTORY]).items()}


def test_the_newest_position_of_a_key_counts() -> None:
    """Later records replace earlier ones, null deletes a position, and group records are skipped."""
    log = OffsetsLog()
    log.put(record(committed("a", 1)), record(committed("b", 2)), write_group("a", GROUP), codec=Codec.GZIP)
    log.put(record(committed("a", 5)), removed("b"), record(committed("c", 7)))
    log.put(removed("unknown"))
    assert {"a": 5, "c": 7} == log.read()


GROUP = {
    "protocolType": "consumer",
    "generation": 1,
    "protocol": None,
    "leader": None,
    "currentStateTimestamp": NOW,
    "members": [],
}


def test_transactions_count_when_they_commit() -> None:
    """Positions of aborted and open transactions never count; committed ones count in order of their own offsets."""
    log = OffsetsLog()
    log.put(record(committed("aborted", 1)))
    log.put(record(committed("aborted", 2)), record(committed("late", 3)), producer=1)
    log.put(record(committed("committed", 4)), record(committed("overtaken", 5)), producer=2)
    log.put(record(committed("overtaken", 6)))
    log.end_transaction(1, ControlType.ABORT)
    log.put(record(committed("open", 7)), producer=3)
    log.end_transaction(2, ControlType.COMMIT)
    log.put(record(committed("behind", 8)))
    assert {"aborted": 1, "committed": 4, "overtaken": 6, "behind": 8} == log.read()


def test_a_torn_end_is_skipped() -> None:
    """A torn end, as after a kill, is skipped; the same damage before another segment is an error with its location."""
    log = OffsetsLog()
    log.put(record(committed("a", 1)))
    log.data += log.data[:70]
    assert {"a": 1} == log.read()
    with pytest.raises(CorruptionError, match=rf"{0:020}\.log"):
        log.read((f"{9:020}.log", b""))


def test_new_segments_of_an_interrupted_compaction_count() -> None:
    """A `.swap` file replaces its missing segment; `.deleted` and `.cleaned` files do not count."""
    log, old = OffsetsLog(), OffsetsLog()
    old.put(record(committed("old", 1)))
    log.put(record(committed("a", 1)))
    swap = bytes(log.data)
    log.data.clear()
    others = [(f"{0:020}.log{suffix}", bytes(old.data)) for suffix in (".deleted", ".cleaned")]
    assert {"a": 1} == log.read((f"{0:020}.log.swap", swap), *others)


def stood(disk: SimulatedDisk, directory: Path) -> dict[GroupPartition, CommittedOffset]:
    """Return the positions in a directory's `__consumer_offsets`, checking that each is in its group's partition."""
    found = {}
    for number in range(PARTITIONS):
        home = directory / f"{TOPIC}-{number}"
        for place, position in (read_positions(disk, [home]) if disk.exists(home) else {}).items():
            assert number == coordinator_partition(place.group, PARTITIONS)
            found[place] = position
    return found


def write(disk: SimulatedDisk, directory: Path, *records: tuple[str, tuple[bytes, bytes | None]]) -> None:
    """Append records of groups to three partitions, like a coordinator."""
    with served(disk, directory) as engine:
        topic = engine.topics().get(TOPIC) or engine.create_topic(TOPIC, partitions=PARTITIONS)
        for group, (key, value) in records:
            number = coordinator_partition(group, PARTITIONS)
            topic.partitions()[number].append(encode([Record(Offset(0), Timestamp(NOW), key, value)]))


def commit(disk: SimulatedDisk, directory: Path, *positions: CommittedOffset) -> None:
    write(disk, directory, *((one.group, write_committed_offset(one)) for one in positions))


def source_with_groups() -> tuple[StoppingDisk, dict[GroupPartition, CommittedOffset]]:
    """Return a log directory with groups in existing and missing topics, and the positions that must be copied."""
    disk, _ = prepared_disk(LOG_DIR)
    with served(disk, LOG_DIR) as engine:
        orders = decode_id(engine.topic("orders").topic_id).int
    kept = [
        committed("a", 12, topic_id=orders),
        committed("a", 3, partition=1),
        committed("b", 8, topic="trimmed"),
    ]
    commit(
        disk,
        LOG_DIR,
        *kept,
        committed("former", 1, topic_id=orders + 1),
        committed("a", 4, topic="elsewhere"),
        committed("a", 4, partition=2),
    )
    return disk, {GroupPartition(one.group, TopicPartition(one.topic, one.partition)): one for one in kept}


def test_positions_are_taken_along() -> None:
    """Only positions in copied topics are copied; __consumer_offsets gets as many partitions as the source's."""
    disk, expected = source_with_groups()
    told = taken(disk)
    assert expected == stood(disk, DATA)
    assert "__consumer_offsets: 3 positions in topics that are not here, skipped" in told
    assert [
        "group a: 2 of 2 positions taken over",
        "group b: 1 of 1 positions taken over",
    ] == told[-2:]
    assert "group b: 0 of 1 positions taken over, the others were already there" == taken(disk)[-1]
    with served(disk, DATA) as engine:
        assert PARTITIONS == len(engine.topic(TOPIC).partitions())


def test_taking_positions_continues_after_any_interruption() -> None:
    """After a kill or power loss at any step, a repeated takeover gives each group its position."""
    disk, expected = source_with_groups()
    before = below(disk, LOG_DIR)
    disk.watched = DATA

    def check(disk: StoppingDisk) -> None:
        assert expected == stood(disk, DATA)
        assert before == below(disk, LOG_DIR)

    interrupt_everywhere(disk, taken, check, every=11)


def test_a_second_takeover_moves_no_group_back() -> None:
    """A second takeover keeps positions that were committed here after the first takeover.

    Positions that are newer in the source are copied.
    """
    disk, _ = source_with_groups()
    taken(disk)
    commit(disk, DATA, committed("a", 15, at=NOW + 1))
    commit(disk, LOG_DIR, committed("a", 5, partition=1, at=NOW + 2))
    taken(disk)
    found = stood(disk, DATA)
    assert (15, 5) == tuple(found["a", TopicPartition("orders", number)].offset for number in (0, 1))


def test_groups_keep_their_positions() -> None:
    """A handover sets the positions of groups before the broker stops.

    After the broker's start, missing positions are added, and existing positions stay.
    """
    disk, _ = prepared_disk(DATA)
    commit(disk, DATA, committed("a", 12), committed("a", 3, partition=1), committed("b", 8, topic="trimmed"))
    cluster = OwnCluster(disk)
    given(disk).prepare(cluster)
    first, second, trimmed = (
        TopicPartition("orders", 0),
        TopicPartition("orders", 1),
        TopicPartition("trimmed", 0),
    )
    expected = {
        "a": {first: Position(12, "note"), second: Position(3, "note")},
        "b": {trimmed: Position(8, "note")},
    }
    assert expected == cluster.groups
    commit(disk, DATA, committed("b", 9, topic="trimmed"))
    given(disk).place()
    cluster.groups["a"] = {second: Position(2)}
    told: list[str] = []
    Handover([DATA], [LOG_DIR], report=told.append, files=disk).verify(cluster)
    assert {"a": {first: 12, second: 2}, "b": {trimmed: 9}} == {
        group: {each: position.offset for each, position in positions.items()}
        for group, positions in cluster.groups.items()
    }
    assert [
        "group a: orders-1: at 2 in the cluster, at 3 here; not changed",
        "group a: its position was set as here: orders-0 at 12",
        "group b: its position was set as here: trimmed-0 at 9",
    ] == told[-3:]


def test_a_group_with_members_is_named() -> None:
    """The cluster refuses positions of a group with members; after the members leave the handover can continue.

    Until then our topics exist in the cluster but are empty, and nothing else has changed on either side.
    """
    disk, records = prepared_disk(DATA)
    commit(disk, DATA, committed("busy", 12))
    ours = contents(copy.deepcopy(disk), DATA)
    cluster = OwnCluster(disk)

    def refuse(_group: str, _positions: object) -> None:
        raise ClusterError("not empty")

    busy = copy.copy(cluster)
    busy.set_positions = refuse
    with pytest.raises(ClusterError, match=r"group busy: .*end them and run this again \(not empty\)"):
        given(disk).prepare(busy)
    assert ours == contents(copy.deepcopy(disk), DATA)
    assert {partition: [] for partition in records} == contents(copy.deepcopy(disk), LOG_DIR)
    given(disk).prepare(cluster)
    assert {"busy"} == set(cluster.groups)


def open_transaction(disk: SimulatedDisk) -> None:
    with served(disk, DATA) as engine:
        stamp = BatchStamp(producer_id=ProducerId(7), producer_epoch=0, base_sequence=0, transactional=True)
        engine.partition("orders", 1).append(encode([Record(Offset(0), Timestamp(NOW), b"k", b"v")], stamp))


def test_an_open_transaction_is_handed_over_on_demand_only() -> None:
    """A handover with an open transaction is refused unless a flag is given.

    The cluster cannot end such a transaction. With the flag, the handover prints the command that ends it.
    """
    disk, _ = prepared_disk(DATA)
    open_transaction(disk)
    with pytest.raises(StorageError, match="orders-1: has an open transaction.*--with-open-transactions"):
        given(disk).prepare(OwnCluster(disk))
    assert not disk.exists(DATA / names.HANDOVER)
    told: list[str] = []
    handover = Handover([DATA], [LOG_DIR], report=told.append, files=disk, with_open_transactions=True)
    handover.prepare(OwnCluster(disk))
    handover.place()
    assert 2 == sum("kafka-transactions" in line and "--partition 1" in line for line in told)


def test_several_directories_on_both_sides() -> None:
    """Topics and positions of two log directories move to two data directories, and back."""
    disk, expected = source_with_groups()
    others = [Path("/log2"), Path("/data2")]
    served_both = [LOG_DIR, others[0]]
    disk.make_directory(others[0])
    disk.rename(LOG_DIR / "orders-1", others[0] / "orders-1")
    disk.rename(DIRECTORY, others[0] / f"{TOPIC}-0")
    source = BrokerDirectories(log_dirs=served_both, without_settings=True)
    for _ in range(2):
        Takeover(source, [DATA, others[1]], report=lambda _: None, files=disk).take()
    homes = {
        directory: {entry.name for entry in disk.list_directory(directory)} for directory in (DATA, others[1])
    }
    assert {"orders-0", "trimmed-0"} <= homes[DATA]
    assert "orders-1" in homes[others[1]]
    found = {}
    for directory in homes:
        found |= stood(disk, directory)
    assert expected == found
    records = contents(disk, [DATA, others[1]])
    delete_topics(disk)
    handover = Handover([DATA, others[1]], [LOG_DIR], report=lambda _: None, files=disk)
    cluster = OwnCluster(disk)
    handover.prepare(cluster)
    handover.place()
    handover.verify(cluster)
    placed = contents(disk, LOG_DIR)
    assert {each: records[each] for each in placed} == placed
    assert {"a", "b"} == set(cluster.groups)


def delete_topics(disk: SimulatedDisk) -> None:
    with served(disk, LOG_DIR) as engine:
        for name in list(engine.topics()):
            engine.delete_topic(name)
