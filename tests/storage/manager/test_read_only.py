"""Tests that a read-only engine changes nothing in any directory, even while an owner runs."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - the user `nobody` may not be able to read Python's own files
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.broker_lock import locked_by_a_broker
from tests.doubles.engines import DATA, append_lines, engine_on, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import NotALogDirectoryError, OffsetOutOfRangeError, ReadOnlyError
from topicfs.storage.manager import LogManager, Machine, open_engine
from topicfs.storage.model import Offset, Timestamp

VECTORS = Path(__file__).parents[2] / "vectors" / "kafka" / "log-dirs"
UNCOMPRESSED = ("g-none", "g-compact")
NOBODY = 65534


def listing(directory: Path) -> dict[str, tuple[int, int, int, str]]:
    """Return each name below `directory` with its mode, size, modification time and a hash of its content."""
    found = {}
    for path in sorted([directory, *directory.rglob("*")]):
        status = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        size = status.st_size if path.is_file() else 0
        found[str(path)] = (status.st_mode, size, status.st_mtime_ns, digest)
    return found


@pytest.fixture
def clean() -> bool:
    """Return whether the broker had a clean shutdown."""
    return True


@pytest.fixture
def brokers_directory(clean: bool) -> Iterator[Path]:
    """A copy of a real broker's log.dirs. The reader is not root and cannot write to this copy."""
    root = Path(tempfile.mkdtemp())
    directory = root / "log-dirs"
    shutil.copytree(VECTORS, directory)
    if not clean:
        (directory / ".kafka_cleanshutdown").unlink()
        (directory / "recovery-point-offset-checkpoint").unlink()
    for path in [root, directory, *directory.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    as_root = os.geteuid() == 0
    if as_root:
        os.seteuid(NOBODY)
    yield directory
    if as_root:
        os.seteuid(0)
    for path in [root, directory, *directory.rglob("*")]:
        path.chmod(0o755)
    shutil.rmtree(root)


def look_at_everything(engine: LogManager) -> int:
    """Call every read method of each partition; return the number of records in uncompressed topics."""
    records = 0
    for topic in engine.topics().values():
        for partition in topic.partitions().values():
            partition.status()
            for segment in partition.segments():
                for name in segment.files:
                    partition.open_segment_file(name)
            if topic.name in UNCOMPRESSED:
                assert partition.offset_for_timestamp(Timestamp(0)) is not None
                records += len(read_lines(partition))
    engine.maintenance(Timestamp(4_000_000_000_000))
    engine.close()
    return records


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a kill"])
def test_not_one_byte_changes(brokers_directory: Path, clean: bool) -> None:
    """Names, sizes, times and contents are unchanged after everything was read, with or without recovery."""
    before = listing(brokers_directory)
    engine = open_engine(brokers_directory, read_only=True)
    assert (True, True, ()) == (engine.read_only, engine.foreign, engine.warnings)
    assert look_at_everything(engine) > 400
    assert before == listing(brokers_directory)


def test_a_brokers_topics_are_found(brokers_directory: Path) -> None:
    """IDs, partitions and internal topics are found. Checkpoint lines of absent partitions are ignored."""
    engine = open_engine(brokers_directory, read_only=True)
    found = {name: list(topic.partitions()) for name, topic in engine.topics().items()}
    assert {
        "__consumer_offsets": [0, 1, 2, 3],
        "__transaction_state": [0, 1, 2, 3],
        "g-compact": [0],
        "g-gzip": [0],
        "g-lz4": [0],
        "g-none": [0],
        "g-zstd": [0],
    } == found
    assert "1EvPSKI_SvihSIy3lMKMvg" == engine.topic("g-none").topic_id
    assert ["__consumer_offsets", "__transaction_state"] == [
        name for name, topic in engine.topics().items() if topic.internal
    ]
    assert {} == engine.topic("g-none").overrides
    offsets = engine.partition("g-none", 0).offsets()
    assert (0, 400, 400) == (offsets.log_start_offset, offsets.log_end_offset, offsets.recovery_point)
    assert [0, 132, 268] == [one.base_offset for one in engine.partition("g-none", 0).segments()]
    engine.close()


def test_taking_a_brokers_directory_over(tmp_path: Path) -> None:
    """A broker's directory that is opened for writing accepts appends, and its files keep their format."""
    directory = tmp_path / "log-dirs"
    shutil.copytree(VECTORS, directory)
    engine = open_engine(directory)
    assert () == engine.warnings
    assert 400 == append_lines(engine.partition("g-none", 0), "ours\n").base_offset
    engine.close()
    assert (directory / "meta.properties").read_bytes() == (VECTORS / "meta.properties").read_bytes()
    lines = (directory / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert "g-none 0 401" in lines
    assert len(lines) == int(lines[1]) + 2 == 15
    again = open_engine(directory)
    assert "ours" == read_lines(again.partition("g-none", 0))[-1]
    again.close()


@pytest.fixture
def owned_directory(tmp_path: Path) -> Iterator[Path]:
    """A data directory with ten records, six of them below the checkpointed high watermark, and a live owner."""
    directory = tmp_path / "data"
    engine = open_engine(directory)
    engine.create_topic("t")
    engine.create_topic("unknown")
    for name in ("t", "unknown"):
        for number in range(10):
            append_lines(engine.partition(name, 0), f"{number}\n")
    engine.close()
    (directory / ".kafka_cleanshutdown").unlink()
    (directory / "replication-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    with locked_by_a_broker(directory):
        yield directory


def test_beside_a_live_owner_only_what_is_checkpointed_shows(owned_directory: Path) -> None:
    """While a broker owns the directory, records above the checkpointed high watermark are hidden, with a warning."""
    before = listing(owned_directory)
    engine = open_engine(owned_directory, read_only=True)
    assert "is writing there" in engine.warnings[0]
    partition = engine.partition("t", 0)
    assert 6 == partition.offsets().high_watermark
    assert ["0", "1", "2", "3", "4", "5"] == read_lines(partition)
    assert 0 == partition.read(Offset(6), max_bytes=1000).data.nbytes
    with pytest.raises(OffsetOutOfRangeError):
        partition.read(Offset(11), max_bytes=1000)
    assert [] == read_lines(engine.partition("unknown", 0))
    engine.close()
    assert before == listing(owned_directory)


def test_beside_this_engine_all_that_is_there_shows(tmp_path: Path) -> None:
    """While topicfs owns the directory, all records up to the log end are shown.

    Records that are appended after the opening are shown only by a new opening.
    """
    owner = open_engine(tmp_path / "data")
    owner.create_topic("t")
    for number in range(2):
        append_lines(owner.partition("t", 0), f"{number}\n")
        looking = open_engine(tmp_path / "data", read_only=True)
        assert "records that it appends from now on are not shown" in looking.warnings[0]
        assert read_lines(looking.partition("t", 0)) == ["0", "1"][: number + 1]
        looking.close()
    owner.close()


def test_without_an_owner_everything_shows(tmp_path: Path) -> None:
    """A lock file that a killed process left does not count as an owner."""
    engine = open_engine(tmp_path / "data")
    engine.create_topic("t")
    append_lines(engine.partition("t", 0), "x\n")
    engine.close()
    (tmp_path / "data" / ".lock").touch()
    looking = open_engine(tmp_path / "data", read_only=True)
    assert () == looking.warnings
    assert ["x"] == read_lines(looking.partition("t", 0))
    looking.close()


def test_damaged_settings_do_not_keep_from_looking(tmp_path: Path) -> None:
    """If the settings file is damaged, a read-only engine shows topics with default settings, and warns."""
    engine = open_engine(tmp_path / "data")
    engine.create_topic("t")
    engine.close()
    (tmp_path / "data" / "topicfs.topics").write_text("rubbish")
    looking = open_engine(tmp_path / "data", read_only=True)
    assert "topicfs.topics" in looking.warnings[0]
    assert ["t"] == list(looking.topics())
    looking.close()


def test_missing_and_foreign_directories_are_refused(tmp_path: Path) -> None:
    """A read-only opening creates no directory, and refuses a directory that is not a data directory."""
    with pytest.raises(FileNotFoundError):
        open_engine(tmp_path / "nowhere", read_only=True)
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "lost+found").mkdir()
    with pytest.raises(NotALogDirectoryError):
        open_engine(tmp_path, read_only=True, machine=Machine(files=NativeFileSystem(read_only=True)))


def test_read_only_must_fit_the_disk(disk: SimulatedDisk) -> None:
    """A read-only engine on a writable disk is refused."""
    disk.make_directory(DATA)
    with pytest.raises(ValueError, match="read_only"):
        open_engine(DATA, read_only=True, machine=Machine(files=disk))


def test_read_only_engine_refuses_every_change(disk: SimulatedDisk, engine: LogManager) -> None:
    """A read-only engine has the topics' settings and refuses each change. Even its close writes nothing."""
    engine.create_topic("t", overrides={"max.message.bytes": "77"})
    append_lines(engine.partition("t", 0), "x\n")
    before = disk.tree()
    looking = engine_on(disk.read_only_view())
    assert (True, False) == (looking.read_only, looking.foreign)
    assert 77 == looking.topic("t").config.max_message_bytes
    assert ["x"] == read_lines(looking.partition("t", 0))
    for change in (
        lambda: looking.create_topic("u"),
        lambda: looking.add_partitions("t", total=2),
        lambda: looking.delete_topic("t"),
        lambda: looking.alter_config("t", {}),
        lambda: looking.reopen_partition("t", 0),
        lambda: append_lines(looking.partition("t", 0), "y\n"),
    ):
        with pytest.raises(ReadOnlyError):
            change()
    looking.maintenance(ManualClock(2_000_000_000_000)())
    looking.close()
    assert before == disk.tree()


def test_looking_at_an_interrupted_change(disk: SimulatedDisk, engine: LogManager) -> None:
    """A topic that is being deleted is hidden. A topic that is being created shows its existing partitions."""
    for name in ("dying", "growing"):
        engine.create_topic(name, partitions=2)
    engine.close()
    registry = json.loads(disk.read_bytes(DATA / "topicfs.topics"))
    registry["topics"]["dying"]["pending"] = "delete"
    registry["topics"]["growing"] |= {"pending": "create", "partitions": 3}
    disk.write_bytes(DATA / "topicfs.topics", json.dumps(registry).encode())
    before = disk.tree()
    looking = engine_on(disk.read_only_view())
    assert {"growing": [0, 1]} == {name: list(topic.partitions()) for name, topic in looking.topics().items()}
    looking.close()
    assert before == disk.tree()
    finished = engine_on(disk)
    assert {"growing": [0, 1, 2]} == {
        name: list(topic.partitions()) for name, topic in finished.topics().items()
    }
