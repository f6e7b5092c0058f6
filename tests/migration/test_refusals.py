"""A refused handover or takeover leaves every byte of both directories unchanged."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles.handover import (
    DATA,
    LOG_DIR,
    OwnCluster,
    StoppingDisk,
    contents,
    given,
    numbered,
    opened,
    prepared_disk,
    served,
    taken,
)
from tests.doubles.records import batch, produced
from topicfs.migration.cluster import TopicDescription
from topicfs.migration.handover import Handover, OwnTopic
from topicfs.migration.journal import HandoverJournal, JournalTopic, write_journal
from topicfs.migration.takeover import BrokerDirectories, Takeover
from topicfs.replication import open_engine
from topicfs.storage.checkpoints.clean_shutdown import remove_mark
from topicfs.storage.checkpoints.identifiers import new_id
from topicfs.storage.checkpoints.meta_properties import read_meta_properties
from topicfs.storage.checkpoints.offset_checkpoint import read_lines
from topicfs.storage.checkpoints.partition_metadata import write_topic_id_again
from topicfs.storage.codec.batch import scan
from topicfs.storage.disk import names
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import DirectoryLockedError, StorageError
from topicfs.storage.model import Offset, TopicPartition

pytestmark = pytest.mark.slow

EMPTY = Path("/empty")
Change = Callable[[StoppingDisk], None]
"""A change of the directories that makes the following run fail."""


def append_there(disk: StoppingDisk) -> None:
    """Append foreign records to the last topic, and create a topic whose name comes before it."""
    with served(disk, LOG_DIR) as engine:
        engine.create_topic("alpha")
        topic = engine.topics().get("trimmed") or engine.create_topic("trimmed")
        topic.partitions()[0].append(numbered(100, 3))


def append_to_the_second_partition(disk: StoppingDisk) -> None:
    with served(disk, LOG_DIR) as engine:
        engine.create_topic("orders", partitions=2).partitions()[1].append(numbered(100, 3))


def begin_transaction(disk: StoppingDisk) -> None:
    with served(disk, DATA) as engine:
        engine.partition("trimmed", 0).append(produced(txn=True))
    opened(disk, DATA).close()  # Each start deletes a producer snapshot until two are left.


def remove(path: str) -> Change:
    """Return a change that removes a file, or a directory with its content."""

    def change(disk: StoppingDisk) -> None:
        inside = [Path(one) for one in disk.tree() if one.startswith(f"{path}/")]
        for file in inside or [Path(path)]:
            disk.unlink(file)
        if inside:
            disk.remove_directory(Path(path))

    return change


def recreate(directory: Path, *topics: str) -> Change:
    """Return a change that deletes the last topic and creates `topics`."""

    def change(disk: StoppingDisk) -> None:
        with served(disk, directory) as engine:
            engine.delete_topic("trimmed")
            for topic in topics:
                engine.create_topic(topic)

    return change


def break_batch(disk: StoppingDisk) -> None:
    """Damage a batch that other batches follow, so that its epoch cannot be lowered."""
    path = DATA / "trimmed-0" / f"{0:020d}.log"
    data = bytearray(disk.read_bytes(path))
    second = scan(data)[1].position
    data[second + 8 : second + 12] = (1 << 30).to_bytes(4)
    disk.write_bytes(path, data)


def cluster_id(directory: Path) -> str:
    meta = read_meta_properties(NativeFileSystem(), directory)
    assert meta is not None
    return meta.cluster_id or ""


def bytes_below(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def check_bytes(disk: StoppingDisk, run: Callable[[], object], message: str) -> None:
    before = disk.tree()
    with pytest.raises(StorageError, match=message):
        run()
    assert before == disk.tree()


def check_refused(disk: StoppingDisk, run: Callable[[], object], message: str) -> None:
    """Assert that the run fails and changes no byte, and that both directories still serve the same records."""
    expected = [contents(copy.deepcopy(disk), directory) for directory in (DATA, LOG_DIR)]
    check_bytes(disk, run, message)
    assert expected == [contents(disk, directory) for directory in (DATA, LOG_DIR)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (begin_transaction, "trimmed-0: has an open transaction"),
        (lambda disk: write_journal(disk, DATA, HandoverJournal("other")), "to cluster other was begun"),
        (append_there, "trimmed: the cluster has a topic of that name with records of its own"),
        (
            append_to_the_second_partition,
            "orders: the cluster has a topic of that name with records of its own",
        ),
        (
            lambda disk: disk.write_bytes(DATA / names.HANDOVER, b"{"),
            "/data/topicfs.handover: .*not a handover journal",
        ),
        (
            lambda disk: disk.write_bytes(DATA / names.HANDOVER, b'{"version": 2}'),
            "/data/topicfs.handover: .*version 2, expected 1",
        ),
        (lambda disk: disk.unlink(LOG_DIR / names.META_PROPERTIES), "/log: no meta.properties of a broker"),
    ],
)
def test_a_preparation_that_is_refused(change: Change, message: str) -> None:
    """All topics are checked before the first is created, so a fault of the last topic leaves nothing behind."""
    disk, _ = prepared_disk(DATA)
    change(disk)
    check_refused(disk, lambda: given(disk).prepare(OwnCluster(disk)), message)


def test_a_preparation_without_one_of_our_partitions() -> None:
    """A preparation is refused if a partition's directory is missing, and nothing is created."""
    disk, _ = prepared_disk(DATA)
    remove("/data/orders-0")(disk)
    before = [contents(copy.deepcopy(disk), directory) for directory in (DATA, LOG_DIR)]
    with pytest.raises(StorageError, match=r"orders: has the partitions \[1\]; some below them are missing"):
        given(disk).prepare(OwnCluster(disk))
    assert before == [contents(disk, directory) for directory in (DATA, LOG_DIR)]


@pytest.mark.parametrize(("partitions", "node"), [(2, 1), (1, 2)])
def test_a_preparation_for_a_topic_of_another_form(partitions: int, node: int) -> None:
    """A wrong number of partitions, or replicas on another broker, are detected before the first topic is created."""
    disk, _ = prepared_disk(DATA)
    cluster = OwnCluster(disk)
    known = {"trimmed": TopicDescription(new_id(), partitions, frozenset({node}))}
    cluster.find_topic = known.get
    check_refused(
        disk,
        lambda: given(disk).prepare(cluster),
        "trimmed: (its replicas|2 partitions in the cluster, 1 partition here)",
    )


def test_a_preparation_for_another_cluster() -> None:
    """The cluster's id is compared with the log directory's id before anything else."""
    disk, _ = prepared_disk(DATA)
    cluster = OwnCluster(disk)
    cluster.cluster_id = lambda: "another"
    check_refused(disk, lambda: given(disk).prepare(cluster), "the cluster that answers is another")


def test_a_handover_of_nothing() -> None:
    """A handover of a directory without topics is refused and does not make it a data directory."""
    disk, _ = prepared_disk(DATA)
    disk.make_directory(EMPTY)
    handover = Handover([EMPTY], [LOG_DIR], report=print, files=disk)
    check_refused(disk, lambda: handover.prepare(OwnCluster(disk)), "/empty: no topics to")
    assert [] == disk.list_directory(EMPTY)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (append_there, "/log/trimmed-0: has other records"),
        (recreate(LOG_DIR, "trimmed"), "/log/trimmed-0: has topic id .* but the cluster reported"),
        (remove("/log/trimmed-0"), "trimmed-0: in none of /log; name every directory"),
        (recreate(DATA, "another"), "trimmed-0: listed in /data/topicfs.handover, but no longer here"),
        (begin_transaction, "trimmed-0: has an open transaction"),
    ],
)
def test_a_placing_that_is_refused(change: Change, message: str) -> None:
    """All partitions are checked before checkpoints and files of the first partition are written."""
    disk, _ = prepared_disk(DATA)
    given(disk).prepare(OwnCluster(disk))
    change(disk)
    check_refused(disk, lambda: given(disk).place(), message)


def test_a_placing_of_what_is_being_written() -> None:
    """A directory that another process opens between check and lock is not copied."""
    disk, _ = prepared_disk(DATA)
    given(disk).prepare(OwnCluster(disk))
    handover = given(disk)
    look = handover._own_topics

    def look_then_write() -> list[OwnTopic]:
        found = look()
        remove_mark(disk, DATA)
        return found

    handover._own_topics = look_then_write  # type: ignore[method-assign]  # The moment between the two cannot be aimed at otherwise.
    before = contents(copy.deepcopy(disk), LOG_DIR)
    with pytest.raises(StorageError, match="/data: is being written to; run this again"):
        handover.place()
    assert before == contents(disk, LOG_DIR)


@pytest.mark.parametrize("held", ["data", "log"])
@pytest.mark.parametrize("does", ["handover", "takeover"])
def test_a_directory_that_is_in_use(tmp_path: Path, does: str, held: str) -> None:
    """If a mount uses our directory, or a broker uses its own, the error names the process; nothing is written."""
    data, log_dir = tmp_path / "data", tmp_path / "log"
    for directory in (data, log_dir):
        with closing(open_engine(directory)) as engine:
            engine.create_topic("orders").partitions()[0].append(numbered(0, 3))
            topic_id = engine.topic("orders").topic_id
    journal = HandoverJournal(cluster_id(log_dir)).with_topic("orders", JournalTopic(topic_id, 1))
    write_journal(NativeFileSystem(), data, journal)
    with closing(open_engine(tmp_path / held)):
        before = bytes_below(tmp_path)
        source = BrokerDirectories(log_dirs=[log_dir], without_settings=True)
        run = {
            "handover": Handover([data], [log_dir], report=print).place,
            "takeover": Takeover(source, [data], report=print).take,
        }[does]
        with pytest.raises(DirectoryLockedError, match="in use by"):
            run()
        assert before == bytes_below(tmp_path)


def test_a_partition_that_cannot_be_copied() -> None:
    """An unreadable batch ends the handover, and the broker keeps its empty partition and its checkpoints."""
    disk, _ = prepared_disk(DATA)
    given(disk).prepare(OwnCluster(disk))
    break_batch(disk)
    with pytest.raises(StorageError, match=r"/data/trimmed-0/0+\.log: position 146"):
        given(disk).place()
    assert ["orders-0", "orders-1", "trimmed-0"] == [
        entry.name for entry in disk.list_directory(LOG_DIR) if entry.is_directory
    ]
    lines = read_lines(disk, LOG_DIR, TopicPartition("trimmed", 0))
    assert {0, None} == set(lines.values())
    assert [] == contents(disk, LOG_DIR)["trimmed", 0]


def break_metadata(disk: StoppingDisk) -> None:
    directory = LOG_DIR / "__cluster_metadata-0"
    disk.make_directory(directory)
    disk.write_bytes(directory / f"{0:020d}.log", batch(b"\xff" * 8))


def change_topic_ids(disk: StoppingDisk) -> None:
    """Give the partitions of one topic different topic ids."""
    write_topic_id_again(disk, LOG_DIR / "trimmed-0", new_id())
    write_topic_id_again(disk, LOG_DIR / "orders-1", new_id())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (break_metadata, "a metadata record that cannot be read"),
        (change_topic_ids, "orders: its partitions have different topic ids"),
    ],
)
def test_a_first_takeover_that_is_refused(change: Change, message: str) -> None:
    """The settings and ids of all topics are read before anything is written."""
    disk, _ = prepared_disk(LOG_DIR)
    change(disk)
    check_bytes(disk, lambda: taken(disk), message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (recreate(DATA, "trimmed"), "trimmed: /data has another topic of that name"),
        (append_there, "/data/trimmed-0: has other records"),
        (remove(f"/log/trimmed-0/{names.PARTITION_METADATA}"), "/log/trimmed-0: has no partition.metadata"),
    ],
)
def test_a_second_takeover_that_is_refused(change: Change, message: str) -> None:
    """A repeated takeover checks all topics before it writes anything of the first topic."""
    disk, _ = prepared_disk(LOG_DIR)
    taken(disk)
    change(disk)
    check_refused(disk, lambda: taken(disk), message)


def test_a_takeover_after_the_source_deleted_records() -> None:
    """Our copy keeps its records even if the source's new log start is above the end of our copy."""
    disk, records = prepared_disk(LOG_DIR)
    taken(disk)
    with served(disk, LOG_DIR) as engine:
        engine.partition("trimmed", 0).append(numbered(15, 15))
        engine.partition("trimmed", 0).delete_records(Offset(25))
    check_refused(disk, lambda: taken(disk), "/data/trimmed-0: has other records")
    assert records == contents(disk, DATA)


def test_a_takeover_without_a_metadata_log() -> None:
    """Without the topics' settings a takeover is refused before anything is written."""
    disk, _ = prepared_disk(LOG_DIR)
    directories = BrokerDirectories(log_dirs=[LOG_DIR])
    check_refused(
        disk,
        lambda: Takeover(directories, [DATA], report=print, files=disk).take(),
        r"/log/__cluster_metadata-0: missing.* name the broker's metadata\.log\.dir with --metadata-dir",
    )


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (EMPTY, DATA, "/empty: no topics to"),
        (LOG_DIR, LOG_DIR, "/log: named both as the broker's directory and as a data directory"),
        (LOG_DIR, Path("/"), "/data: not a Kafka directory"),
    ],
)
def test_a_takeover_between_directories_that_do_not_fit(source: Path, target: Path, message: str) -> None:
    """A takeover into the broker's own directory, or from or to a directory without Kafka's files, changes nothing."""
    disk, _ = prepared_disk(LOG_DIR)
    disk.make_directory(EMPTY)
    directories = BrokerDirectories(log_dirs=[source], without_settings=True)
    check_bytes(disk, lambda: Takeover(directories, [target], report=print, files=disk).take(), message)


def test_a_repeated_takeover_keeps_what_was_deleted_here() -> None:
    """A repeated takeover keeps a placed partition's log start, so records deleted here do not come back."""
    disk, _ = prepared_disk(LOG_DIR)
    taken(disk)
    with served(disk, DATA) as engine:
        engine.partition("orders", 0).delete_records(Offset(2))
    expected = contents(disk, DATA)
    assert 2 == expected["orders", 0][0].offset
    taken(disk)
    assert expected == contents(disk, DATA)
