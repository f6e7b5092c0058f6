"""Handover and takeover on a simulated disk, interrupted at every step; our engine stands in for the broker."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

import pytest

from storage.checkpoints.identifiers import encode_id
from storage.checkpoints.leader_epochs import decode_epochs
from storage.checkpoints.meta_properties import read_meta_properties
from storage.checkpoints.offset_checkpoint import read_lines, read_offsets, write_lines
from storage.codec.batch import scan
from storage.codec.columns import decode
from storage.codec.records import encode
from storage.config.broker import EngineConfig
from storage.disk import names
from storage.engine import Engine, Partition
from storage.errors import StorageError
from storage.handover.cluster import ClusterError, ClusterTopic, GroupPosition
from storage.handover.handover import Handover
from storage.handover.partition_copy import PartitionCopy, copy_partition
from storage.handover.takeover import BrokerDirectories, Takeover
from storage.manager import open_engine
from storage.model import Offset, Record, Timestamp, TopicPartition
from storage.recovery.load import load_log
from tests.doubles.manual_clock import ManualClock
from tests.doubles.mortal_disk import End
from tests.doubles.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.slow

DATA, LOG_DIR = Path("/data"), Path("/log")
SETTINGS = {
    "retention.ms": "-1",
    "internal.segment.bytes": "400",
    "index.interval.bytes": "100",
    "segment.index.bytes": "800",
}
NOW = 1_700_000_000_000
CONFIG = EngineConfig(recovery_threads=1)
CHANGES = frozenset(
    {
        "pwrite",
        "rename",
        "link",
        "make_directory",
        "remove_directory",
        "unlink",
        "write_bytes",
        "sync_directory",
        "sync",
    }
)


class StopError(OSError):
    """The run ends here."""


class StoppingDisk(SimulatedDisk):
    """A disk that refuses every change below `watched` from the n-th one on, as after a kill."""

    watched = Path("/")
    changes_left: int | None = None
    changes_seen = 0

    def happens(self, operation: str, path: Path, *, changes: bool) -> None:
        if operation in CHANGES and path.is_relative_to(self.watched):
            self.changes_seen += 1
            if self.changes_left is not None:
                if self.changes_left == 0:
                    raise StopError(f"{operation} {path}")
                self.changes_left -= 1
        super().happens(operation, path, changes=changes)


def served(disk: SimulatedDisk, directory: Path | Sequence[Path]) -> Engine:
    return open_engine(directory, files=disk, clock=ManualClock(NOW), config=CONFIG)


@dataclass
class OwnCluster:
    """A cluster of one node, whose log directory our own engine serves."""

    disk: SimulatedDisk
    known: dict[str, ClusterTopic] = field(default_factory=dict)
    settings: dict[str, Mapping[str, str]] = field(default_factory=dict)
    groups: dict[str, dict[TopicPartition, GroupPosition]] = field(default_factory=dict)

    def cluster_id(self) -> str:
        meta = read_meta_properties(self.disk, LOG_DIR)
        assert meta is not None
        return meta.cluster_id or ""

    def find_topic(self, name: str) -> ClusterTopic | None:
        engine = served(self.disk, LOG_DIR)
        topic = engine.topics().get(name)
        found = topic and ClusterTopic(topic.topic_id, len(topic.partitions()), frozenset({1}))
        engine.close()
        return found

    def create_topic(
        self, name: str, *, partitions: int, settings: Mapping[str, str], node_id: int
    ) -> ClusterTopic:
        assert 1 == node_id
        engine = served(self.disk, LOG_DIR)
        engine.create_topic(name, partitions=partitions, overrides=settings)
        engine.close()
        found = self.find_topic(name)
        assert found is not None
        return found

    def change_settings(self, name: str, settings: Mapping[str, str]) -> None:
        engine = served(self.disk, LOG_DIR)
        engine.alter_config(name, dict(settings))
        engine.close()

    def offsets(self, name: str, partitions: int) -> dict[int, range]:
        engine = served(self.disk, LOG_DIR)
        found = {
            number: range(partition.offsets().log_start_offset, partition.offsets().log_end_offset)
            for number, partition in engine.topic(name).partitions().items()
        }
        engine.close()
        return found

    def positions(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        present = self.groups.get(group, {})
        return {each: present[each].offset for each in partitions if each in present}

    def set_positions(self, group: str, positions: Mapping[TopicPartition, GroupPosition]) -> None:
        self.groups.setdefault(group, {}).update(positions)


def batch(first: int, count: int) -> bytearray:
    return encode(
        [
            Record(Offset(number), Timestamp(NOW + first + number), b"key", b"value %d" % (first + number))
            for number in range(count)
        ]
    )


def read(partition: Partition) -> list[Record]:
    found: list[Record] = []
    offset = start = partition.offsets().log_start_offset
    while len((fetched := partition.read(offset, max_bytes=10_000)).data):
        found += [record for columns in decode(fetched.data) for record in columns if record.offset >= start]
        offset = fetched.next_offset
    return found


def contents(disk: SimulatedDisk, directory: Path | Sequence[Path]) -> dict[TopicPartition, list[Record]]:
    """What a directory serves."""
    engine = served(disk, directory)
    found = {
        TopicPartition(topic.name, number): read(partition)
        for topic in engine.topics().values()
        for number, partition in topic.partitions().items()
    }
    engine.close()
    return found


def prepared_disk(source: Path) -> tuple[StoppingDisk, dict[TopicPartition, list[Record]]]:
    """Two topics in `source`, one with a log start inside a batch; both directories formatted."""
    disk = StoppingDisk(seed=7)
    for directory in (DATA, LOG_DIR):
        served(disk, directory).close()
    disk.sync_directory(Path("/"))
    engine = served(disk, source)
    orders = engine.create_topic("orders", partitions=2, overrides=SETTINGS)
    for number, partition in orders.partitions().items():
        for first in range(0, 16, 4):
            partition.append(batch(first + number, 4))
    trimmed = engine.create_topic("trimmed", overrides=SETTINGS).partitions()[0]
    for first in range(0, 15, 5):
        trimmed.append(batch(first, 5))
    trimmed.delete_records(Offset(7))
    engine.close()
    return disk, contents(disk, source)


def given(disk: SimulatedDisk) -> Handover:
    """A handover as a new run of the command begins it."""
    return Handover([DATA], [LOG_DIR], report=lambda _: None, files=disk)


def taken(disk: SimulatedDisk, *, link: bool = False) -> None:
    source = BrokerDirectories(log_dirs=[LOG_DIR], without_settings=True)
    Takeover(source, [DATA], report=lambda _: None, files=disk).take(link=link)


def interrupt_everywhere(
    base: StoppingDisk,
    run: Callable[[StoppingDisk], None],
    check: Callable[[StoppingDisk], None],
    *,
    every: int,
) -> None:
    """Refuse the n-th change and all after it, for one n in `every`; run again, and check what came out.

    By turns it is a kill or the power fails, and whoever serves the target starts in between.
    """
    whole = copy.deepcopy(base)
    whole.changes_seen = 0
    run(whole)
    check(whole)
    assert whole.changes_seen > 20
    for turn, number in enumerate(range(0, whole.changes_seen, every)):
        disk = copy.deepcopy(base)
        disk.changes_left = number
        # What fails last of all, when everything is in place, is only a warning.
        with suppress(OSError, StorageError):
            run(disk)
        disk.changes_left = None
        tuple(End)[turn % len(End)].of(disk)
        if turn % 3 == 0:
            served(disk, disk.watched).close()
        run(disk)
        check(disk)


def test_placing_is_gone_on_with_wherever_it_stopped() -> None:
    """Killed or without power at any step, with a start of the broker in between: in the end all is in place."""
    disk, records = prepared_disk(DATA)
    given(disk).prepare(OwnCluster(disk))
    disk.watched = LOG_DIR

    def check(disk: StoppingDisk) -> None:
        assert records == contents(disk, LOG_DIR)
        assert records == contents(disk, DATA)

    interrupt_everywhere(disk, lambda disk: given(disk).place(), check, every=2)


def test_taking_is_gone_on_with_wherever_it_stopped() -> None:
    """The same for the way back; the broker's directory is only read."""
    disk, records = prepared_disk(LOG_DIR)
    before = below(disk, LOG_DIR)
    disk.watched = DATA

    def check(disk: StoppingDisk) -> None:
        assert records == contents(disk, DATA)
        assert before == below(disk, LOG_DIR)

    # Loading and recovery, which follow, are interrupted by tests of their own.
    interrupt_everywhere(disk, taken, check, every=5)


def below(disk: SimulatedDisk, directory: Path) -> dict[str, bytes]:
    return {path: data for path, data in disk.tree().items() if Path(path).is_relative_to(directory)}


def test_what_is_told_and_noted() -> None:
    """Each step is one line; after the last one the broker is found to serve what is here."""
    disk, _ = prepared_disk(DATA)
    told: list[str] = []
    handover = Handover([DATA], [LOG_DIR], report=told.append, files=disk)
    cluster = OwnCluster(disk)
    assert (False, False) == (handover.prepared, handover.placed)
    handover.prepare(cluster)
    assert (True, False) == (handover.prepared, handover.placed)
    handover.place()
    assert (True, True) == (handover.prepared, handover.placed)
    handover.verify(cluster)
    topic_id = cluster.find_topic("orders").topic_id
    assert f"orders: created in the cluster, 2 partitions, topic id {topic_id}" == told[0]
    assert [
        "orders-0: put into /log/orders-0, offsets 0 to 16",
        "orders-1: put into /log/orders-1, offsets 0 to 16",
        "trimmed-0: put into /log/trimmed-0, offsets 7 to 15",
        "orders: served, offsets as here (32 in 2 partitions)",
        "trimmed: served, offsets as here (8 in 1 partition)",
    ] == told[2:]


def test_checkpoints_say_what_was_put_there() -> None:
    """Recovery point and high watermark are the log's end; a log start inside a segment has its line."""
    disk, _ = prepared_disk(DATA)
    given(disk).prepare(OwnCluster(disk))
    given(disk).place()
    lines = {
        name: read_offsets(disk, LOG_DIR / name)
        for name in (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_START_OFFSETS)
    }
    ends = {
        TopicPartition("orders", 0): 16,
        TopicPartition("orders", 1): 16,
        TopicPartition("trimmed", 0): 15,
    }
    assert {
        names.RECOVERY_POINTS: ends,
        names.HIGH_WATERMARKS: ends,
        names.LOG_START_OFFSETS: {TopicPartition("trimmed", 0): 7},
    } == lines


def test_topics_added_later_are_asked_for_too() -> None:
    """A handover is prepared only when the cluster was asked for everything that is here now."""
    disk, _ = prepared_disk(DATA)
    cluster = OwnCluster(disk)
    given(disk).prepare(cluster)
    engine = served(disk, DATA)
    engine.create_topic("later")
    engine.close()
    assert not given(disk).prepared
    given(disk).prepare(cluster)
    assert given(disk).prepared
    given(disk).place()
    assert contents(disk, DATA) == contents(disk, LOG_DIR)


def test_the_settings_go_along() -> None:
    """The cluster is told each topic's own settings, when it makes the topic and when it finds an empty one."""
    disk, _ = prepared_disk(DATA)
    engine = served(disk, LOG_DIR)
    engine.create_topic("orders", partitions=2)
    engine.close()
    given(disk).prepare(OwnCluster(disk))
    engine = served(disk, LOG_DIR)
    found = {name: dict(topic.overrides) for name, topic in engine.topics().items()}
    engine.close()
    assert {"orders": SETTINGS, "trimmed": SETTINGS} == found


@pytest.mark.parametrize(
    ("partitions", "records", "message"),
    [
        (2, 1, "orders: the cluster has a topic of that name with records of its own"),
        (3, 0, "orders: 3 partitions in the cluster, 2 partitions here"),
    ],
)
def test_a_topic_in_the_way_is_refused(partitions: int, records: int, message: str) -> None:
    """What is not ours is left alone, and the error says what is in the way."""
    disk, _ = prepared_disk(DATA)
    engine = served(disk, LOG_DIR)
    topic = engine.create_topic("orders", partitions=partitions)
    if records:
        topic.partitions()[1].append(batch(0, records))
    engine.close()
    before = contents(disk, LOG_DIR)
    with pytest.raises(StorageError, match=message):
        given(disk).prepare(OwnCluster(disk))
    assert before == contents(disk, LOG_DIR)


def test_another_cluster_is_refused() -> None:
    """The address must lead to the cluster that the log directory belongs to."""
    disk, _ = prepared_disk(DATA)
    cluster = OwnCluster(disk)
    cluster.cluster_id = lambda: "another"
    with pytest.raises(ClusterError, match="but the one that answers is another"):
        given(disk).prepare(cluster)


def test_records_written_meanwhile_are_not_overwritten() -> None:
    """Somebody produced to the new topic before its files were put in place: they are left alone."""
    disk, _ = prepared_disk(DATA)
    given(disk).prepare(OwnCluster(disk))
    engine = served(disk, LOG_DIR)
    engine.partition("orders", 1).append(batch(100, 1))
    engine.close()
    with pytest.raises(StorageError, match="/log/orders-1: other records are there already"):
        given(disk).place()
    assert 1 == len(contents(disk, LOG_DIR)["orders", 1])


def test_a_topic_made_anew_in_the_cluster_is_noticed() -> None:
    """Deleted and made again between two phases, it has another id: the files wait until the cluster was asked."""
    disk, records = prepared_disk(DATA)
    cluster = OwnCluster(disk)
    given(disk).prepare(cluster)
    engine = served(disk, LOG_DIR)
    engine.delete_topic("orders")
    engine.create_topic("orders", partitions=2)
    engine.close()
    with pytest.raises(StorageError, match="where the cluster said"):
        given(disk).place()
    given(disk).prepare(cluster)
    given(disk).place()
    assert records == contents(disk, LOG_DIR)


def test_a_partition_kept_elsewhere_is_named() -> None:
    """A broker with several log.dirs keeps some partitions in another one: all are to be given."""
    disk, _ = prepared_disk(DATA)
    given(disk).prepare(OwnCluster(disk))
    for entry in disk.list_directory(LOG_DIR / "orders-1"):
        disk.unlink(LOG_DIR / "orders-1" / entry.name)
    disk.remove_directory(LOG_DIR / "orders-1")
    with pytest.raises(StorageError, match="orders-1: in none of /log; name every directory"):
        given(disk).place()


def leave_unused_slots(disk: SimulatedDisk, directory: Path) -> None:
    """What a process leaves that is killed inside a roll: a sealed segment's indexes with unused slots."""
    for partition in ("orders-0", "orders-1", "trimmed-0"):
        for kind in ("index", "timeindex"):
            name = directory / partition / f"{0:020}.{kind}"
            disk.write_bytes(name, disk.read_bytes(name).ljust(1200, b"\0"))


def indexes_of(disk: SimulatedDisk, directory: Path) -> dict[str, bytes]:
    """The indexes of sealed segments, by partition and name."""
    found = {path: data for path, data in below(disk, directory).items() if path.endswith("index")}
    return {"/".join(Path(path).parts[-2:]): data for path, data in found.items() if f"{0:020}" in path}


@pytest.mark.parametrize("way", ["handover", "takeover"])
def test_indexes_with_unused_slots_do_not_go_along(way: str) -> None:
    """Whoever gets the log would believe them: they are looked at first, though the directory was closed in order."""
    source, target = (DATA, LOG_DIR) if way == "handover" else (LOG_DIR, DATA)
    disk, wanted = prepared_disk(source)
    leave_unused_slots(disk, source)
    assert all(data.endswith(bytes(12)) for data in indexes_of(disk, source).values())
    if way == "handover":
        given(disk).prepare(OwnCluster(disk))
        given(disk).place()
    else:
        taken(disk)
    assert 6 == len(indexes_of(disk, target))
    assert [] == [name for name, data in indexes_of(disk, target).items() if data.endswith(bytes(12))]
    assert wanted == contents(disk, target)


def test_a_directory_of_no_broker_is_refused() -> None:
    """Without meta.properties nothing says whose directory it is."""
    disk, _ = prepared_disk(DATA)
    disk.make_directory(Path("/other"))
    with pytest.raises(StorageError, match=r"/other: no meta.properties of a broker there"):
        Handover([DATA], [Path("/other")], report=print, files=disk)


def test_a_damaged_journal_is_refused() -> None:
    """What cannot be read is not guessed at."""
    disk, _ = prepared_disk(DATA)
    disk.write_bytes(DATA / names.HANDOVER, b'{"version": 2}')
    with pytest.raises(StorageError, match=r"/data/topicfs.handover: .*version 2, expected 1"):
        given(disk)


def test_leader_epochs_are_lowered_to_the_brokers() -> None:
    """Batches of epochs 3 and 7 under a broker that leads in epoch 5: 3 and 5, checksums as they were."""
    disk = SimulatedDisk()
    for directory in (DATA, LOG_DIR):
        disk.make_directory(directory)
    source = DATA / "orders-0"
    disk.make_directory(source)
    config = EngineConfig().topic_defaults
    log = load_log(source, files=disk, config=config, clock=ManualClock(NOW), clean=True)
    for epoch, first in ((3, 0), (3, 2), (7, 4)):
        follower = batch(first, 2)
        follower[0:8], follower[12:16] = first.to_bytes(8), epoch.to_bytes(4)
        log.append_as_follower(follower)
    records = read(log)
    log.close()
    copy = PartitionCopy(
        partition=TopicPartition("orders", 0),
        source=source,
        target=LOG_DIR / "orders-0",
        topic_id=encode_id(UUID(int=1 << 127)),
        highest_epoch=5,
    )
    assert copy_partition(disk, copy)
    assert not copy_partition(disk, copy)
    data = disk.read_bytes(LOG_DIR / "orders-0" / f"{0:020d}.log")
    assert [3, 3, 5] == [each.leader_epoch for each in scan(data, check_crc=True)]
    path = LOG_DIR / "orders-0" / names.LEADER_EPOCHS
    assert ((3, 0), (5, 4)) == decode_epochs(disk.read_bytes(path), file=path)
    placed = load_log(LOG_DIR / "orders-0", files=disk, config=config, clock=ManualClock(NOW), clean=False)
    assert records == read(placed)


def test_what_was_carried_is_there_after_a_power_loss() -> None:
    """Every file with its name, as soon as the copy is in place."""
    disk, _ = prepared_disk(DATA)
    copy = copy_of(TopicPartition("orders", 0))
    assert copy_partition(disk, copy)
    before = {Path(path).name: data for path, data in below(disk, copy.source).items()}
    disk.crash(keep=0.0)
    after = {Path(path).name: data for path, data in below(disk, copy.target).items()}
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} == {names.PARTITION_METADATA}


def test_indexes_of_a_log_that_nobody_closed_are_left_behind() -> None:
    """Those of its last segment may be half-written: they are made again; those of the others are whole and go along."""
    disk, _ = prepared_disk(DATA)
    copy = replace(copy_of(TopicPartition("orders", 0)), recovered=False)
    present = sorted(Path(path).name for path in below(disk, copy.source))
    last = max(name.partition(".")[0] for name in present if name.endswith(".log"))
    assert copy_partition(disk, copy)
    assert [name for name in present if name not in (f"{last}.index", f"{last}.timeindex")] == sorted(
        Path(path).name for path in below(disk, copy.target)
    )
    assert any(name.endswith(".index") for name in present if not name.startswith(last))


def copy_of(partition: TopicPartition) -> PartitionCopy:
    name = names.partition_directory(partition)
    return PartitionCopy(
        partition=partition,
        source=DATA / name,
        target=LOG_DIR / name,
        topic_id=encode_id(UUID(int=1 << 127)),
    )


@pytest.mark.parametrize("end", End, ids=str)
def test_the_broker_never_has_our_files_without_our_offsets(end: End) -> None:
    """Whatever ends the handover, and when: where our records stand, the checkpoints say from where to where they go.

    A broker that starts then would else serve records below the log start, and recover what is whole.
    """
    base, _ = prepared_disk(DATA)
    given(base).prepare(OwnCluster(base))
    base.watched = LOG_DIR
    seen = set()
    partition = TopicPartition("trimmed", 0)
    log = LOG_DIR / "trimmed-0" / f"{0:020d}.log"
    for number in range(400):
        disk = copy.deepcopy(base)
        disk.changes_left = number
        with suppress(OSError, StorageError):
            given(disk).place()
        ended = disk.changes_left == 0
        disk.changes_left = None
        end.of(disk)
        placed = disk.exists(log) and disk.size(log) > 0
        seen.add(placed)
        if placed:
            lines = read_lines(disk, LOG_DIR, partition)
            assert (7, 15) == (lines[names.LOG_START_OFFSETS], lines[names.RECOVERY_POINTS]), number
        if not ended:
            break
    assert {False, True} == seen


def test_a_broker_that_serves_from_another_start_is_told() -> None:
    """Records that were deleted here must not come back there."""
    disk, _ = prepared_disk(DATA)
    cluster = OwnCluster(disk)
    given(disk).prepare(cluster)
    given(disk).place()
    given(disk).verify(cluster)
    write_lines(disk, LOG_DIR, TopicPartition("trimmed", 0), {names.LOG_START_OFFSETS: None})
    with pytest.raises(
        StorageError, match="trimmed-0: the broker serves offsets 0 to 15, here they are 7 to 15"
    ):
        given(disk).verify(cluster)


def test_logs_that_never_change_are_linked() -> None:
    """With links the sealed logs are the same files; the last one, indexes and snapshots are copies."""
    disk, records = prepared_disk(LOG_DIR)
    disk.calls.clear()
    taken(disk, link=True)
    linked = {Path(path).name for operation, path in disk.calls if operation == "link"}
    sealed = {name for name in linked if name.endswith(".log")}
    assert sealed
    assert sealed == linked
    for partition in ("orders-0", "orders-1", "trimmed-0"):
        logs = sorted(path for path in below(disk, LOG_DIR / partition) if path.endswith(".log"))
        links = sorted(
            path for operation, path in disk.calls if operation == "link" and f"{partition}." in path
        )
        assert [Path(log).name for log in logs[:-1]] == [Path(path).name for path in links]
    assert records == contents(disk, DATA)


def test_another_topic_of_the_same_name_is_refused() -> None:
    """A takeover changes nothing where a topic of that name, but another id, is here already."""
    disk, _ = prepared_disk(LOG_DIR)
    engine = served(disk, DATA)
    engine.create_topic("trimmed")
    engine.close()
    with pytest.raises(StorageError, match="trimmed: /data has another topic of that name"):
        taken(disk)
    assert {("trimmed", 0): []} == contents(disk, DATA)


def test_settings_that_cannot_be_had_are_asked_about() -> None:
    """Where the metadata log is elsewhere, nothing is taken until that was said."""
    disk, _ = prepared_disk(LOG_DIR)
    with pytest.raises(StorageError, match=r"name the broker.s metadata\.log\.dir with --metadata-dir"):
        Takeover(BrokerDirectories(log_dirs=[LOG_DIR]), [DATA], report=print, files=disk).take()


def test_what_is_taken_over_is_looked_through_where_all_else_was_closed_in_order() -> None:
    """The clean mark of a data directory speaks of the logs that it had, not of those that come to it."""
    disk, records = prepared_disk(LOG_DIR)
    disk.unlink(LOG_DIR / names.CLEAN_SHUTDOWN)
    disk.unlink(LOG_DIR / names.RECOVERY_POINTS)
    sealed = LOG_DIR / "orders-0" / "00000000000000000000.log"
    last = scan(disk.read_bytes(sealed))[-1]
    disk.write_bytes(sealed, disk.read_bytes(sealed)[:-1] + b"?")
    assert disk.exists(DATA / names.CLEAN_SHUTDOWN)
    taken(disk)
    left = [record for record in records["orders", 0] if record.offset < last.base_offset]
    assert records | {("orders", 0): left} == contents(disk, DATA)


@pytest.mark.parametrize("damage", ["torn", "flipped"])
def test_a_takeover_of_a_torn_tail_can_be_repeated(damage: str) -> None:
    """What recovery cut off behind the first takeover is not missed by a second one; anything else would be."""
    disk, records = prepared_disk(LOG_DIR)
    disk.unlink(LOG_DIR / names.CLEAN_SHUTDOWN)
    disk.unlink(LOG_DIR / names.RECOVERY_POINTS)
    path = max(
        LOG_DIR / "orders-0" / entry.name
        for entry in disk.list_directory(LOG_DIR / "orders-0")
        if entry.name.endswith(".log")
    )
    torn = bytes(batch(16, 4))
    torn = torn[:-20] if damage == "torn" else torn[:-1] + b"?"
    disk.write_bytes(path, disk.read_bytes(path) + (16).to_bytes(8) + torn[8:])
    for _ in range(2):
        taken(disk)
        assert records == contents(disk, DATA)
    target = DATA / "orders-0" / path.name
    disk.write_bytes(target, disk.read_bytes(target)[: -len(batch(12, 4))])
    with pytest.raises(StorageError, match="/data/orders-0: other records are there already"):
        taken(disk)
