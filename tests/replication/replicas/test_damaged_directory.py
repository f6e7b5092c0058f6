"""Tests of starts with damaged small files: the directory with a damaged file fails, and the others serve."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.doubles.engines import read_lines
from tests.doubles.replicated import ORDERS, Replicated, with_orders
from topicfs.replication import holds_replicas
from topicfs.replication.replicas.directories import replica_directory
from topicfs.replication.replicas.directories.replica_directory import ReplicaDirectory
from topicfs.replication.replicas.engine import ReplicatedEngine
from topicfs.replication.replicas.startup import open_replicas
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk import names
from topicfs.storage.errors import NotALogDirectoryError, StorageError

MAX_REASON_CHARACTERS = 200
"""Largest length of a reason after the file's path: one short line, whatever the file contains."""
CONFIG = EngineConfig(replication_factor=3)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three cleanly closed directories, each with a replica of the same topic, and a backup of each directory."""
    base = tmp_path_factory.mktemp("replicas")
    directories = [base / name for name in "abc"]
    with opened(directories) as engine:
        engine.create_topic("orders")
        append(engine, "one", "two")
    for directory in directories:
        shutil.copytree(directory, copy_of(directory))
    return directories


@pytest.fixture
def three(sound: list[Path]) -> list[Path]:
    """The three directories, restored from their backups."""
    for directory in sound:
        shutil.rmtree(directory)
        shutil.copytree(copy_of(directory), directory)
    return sound


def copy_of(directory: Path) -> Path:
    return directory.with_name(f"copy-{directory.name}")


@contextmanager
def opened(directories: list[Path], *, read_only: bool = False) -> Iterator[ReplicatedEngine]:
    engine = open_replicas(directories, config=CONFIG, in_background=False, read_only=read_only)
    try:
        yield engine
    finally:
        engine.close()


def append(engine: ReplicatedEngine, *lines: str) -> None:
    (batch,) = encode_lines("".join(f"{line}\n" for line in lines).encode(), timestamp=1_700_000_000_000)
    engine.replicated(ORDERS).append(batch, encoded_here=True)


def bring_back(engine: ReplicatedEngine) -> None:
    """Make the engine retry the failed directories immediately."""
    for replica_dir in engine._replica_dirs:
        replica_dir._next_attempt = 0.0
    engine.maintenance(1_700_000_000_000)
    engine.catch_up()


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    path.write_bytes(bytes(range(255, 0, -1)) * 3)


def link(path: Path) -> None:
    target = path.with_name("moved away")
    path.rename(target)
    path.symlink_to(target)


def replace_by(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


DAMAGES: dict[str, Callable[[Path], None]] = {
    "empty": lambda path: os.truncate(path, 0),
    "garbage": garble,
    "half": halve,
    "missing": Path.unlink,
    "FIFO": replace_by(os.mkfifo),
    "link": link,
    "directory": replace_by(Path.mkdir),
}
SPECIAL = {"FIFO", "link", "directory"}
FATAL: dict[str, set[str]] = {
    names.REPLICAS: set(DAMAGES),
    names.META_PROPERTIES: set(DAMAGES),
    # topicfs.replicas has the same settings.
    names.TOPIC_SETTINGS: set(DAMAGES) - {"missing"},
    # Recovery restores the contents of these files.
    names.RECOVERY_POINTS: {"directory"},
    names.HIGH_WATERMARKS: {"directory"},
    names.LOG_START_OFFSETS: {"directory"},
    names.CLEANER_OFFSETS: {"directory"},
    names.CLEAN_SHUTDOWN: {"directory"},
    names.RESERVE: SPECIAL,
    names.LOCK: SPECIAL,
}
"""The kinds of damage that put a directory out of service, by file."""


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FATAL)
def test_the_other_directories_serve(three: list[Path], name: str, damage: str, *, read_only: bool) -> None:
    """One damaged file puts only its own directory out of service, with a short reason that names the file."""
    path = three[1] / name
    if not path.exists():
        path.write_bytes(b"0\n1\norders 0 1\n")
    DAMAGES[damage](path)
    with opened(three, read_only=read_only) as engine:
        states = [status.offline for status in engine.directories()]
        assert [None, None] == [states[0], states[2]]
        if not read_only:
            assert (damage in FATAL[name]) == (states[1] is not None)
            append(engine, "three")
        if states[1] is not None:
            assert states[1].startswith(f"{path}: ")
            assert len(states[1]) < len(str(path)) + MAX_REASON_CHARACTERS
        assert ["one", "two"] == read_lines(engine.replicated(ORDERS))[:2]


@pytest.mark.parametrize("damage", DAMAGES)
def test_leader_epochs_are_made_again(three: list[Path], damage: str) -> None:
    """A leader epoch file that is damaged, missing or not a regular file is rebuilt, and the replica is in sync."""
    path = three[1] / "orders-0" / names.LEADER_EPOCHS
    DAMAGES[damage](path)
    with opened(three) as engine:
        bring_back(engine)
        assert [True] * 3 == [one.in_sync for one in engine.replicated(ORDERS).status().replicas]
        append(engine, "three")
    assert (three[0] / "orders-0" / names.LEADER_EPOCHS).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [names.REPLICAS, names.META_PROPERTIES, names.TOPIC_SETTINGS])
def test_a_repaired_directory_serves_again(three: list[Path], name: str, damage: str) -> None:
    """After the file is restored, the directory is reopened and gets the records appended meanwhile."""
    path = three[1] / name
    DAMAGES[damage](path)
    with opened(three) as engine:
        append(engine, "three")
        bring_back(engine)
        assert (damage in FATAL[name]) == (engine.directories()[1].offline is not None)
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
        shutil.copyfile(copy_of(three[1]) / name, path)
        bring_back(engine)
        assert [None] * 3 == [status.offline for status in engine.directories()]
        assert [True] * 3 == [one.in_sync for one in engine.replicated(ORDERS).status().replicas]
    assert 1 == len({(directory / "orders-0" / f"{0:020}.log").read_bytes() for directory in three})


@pytest.mark.parametrize("number", [0, 1])
def test_a_directory_that_was_moved_away_can_be_moved_back(three: list[Path], number: int) -> None:
    """The engine does not create a directory that was moved away, and serves it when it is moved back."""
    path = three[number]
    with opened(three) as engine:
        append(engine, "three")
        path.rename(path.with_name("away"))
        append(engine, "four")
        for _ in range(3):
            bring_back(engine)
            assert f"{path} failed: No such file or directory: {path / names.META_PROPERTIES}" == (
                engine.directories()[number].offline
            )
        path.with_name("away").rename(path)
        bring_back(engine)
        assert [None] * 3 == [status.offline for status in engine.directories()]
        assert [True] * 3 == [one.in_sync for one in engine.replicated(ORDERS).status().replicas]
        assert ["one", "two", "three", "four"] == read_lines(engine.replicated(ORDERS))


def test_a_directory_that_is_moved_away_during_an_attempt_is_not_made(
    three: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a directory is moved away while the engine tries to open it, the engine does not create it, at any step."""
    path, away = three[1], three[1].with_name("away")
    with opened(three) as engine:
        for owner, step in (
            (ReplicaDirectory, "look"),
            (ReplicaDirectory, "_fill"),
            (replica_directory, "open_logs"),
        ):
            engine._replica_dirs[2].fail("failed")
            attempted = getattr(owner, step)

            def vanish(
                *args: object, attempted: Callable[..., object] = attempted, **options: object
            ) -> object:
                path.rename(away)
                return attempted(*args, **options)

            with monkeypatch.context() as patch:
                patch.setattr(owner, step, vanish)
                bring_back(engine)
            assert not path.exists()
            away.rename(path)
            bring_back(engine)
            assert [None] * 3 == [status.offline for status in engine.directories()]


def test_an_empty_directory_in_the_place_of_a_missing_one_is_filled(three: list[Path]) -> None:
    """A user who makes an empty directory in the place of a lost one gets replicas there again."""
    with opened(three) as engine:
        shutil.rmtree(three[1])
        append(engine, "three")
        bring_back(engine)
        three[1].mkdir()
        bring_back(engine)
        assert [True] * 3 == [one.in_sync for one in engine.replicated(ORDERS).status().replicas]
    assert 1 == len({(directory / "orders-0" / f"{0:020}.log").read_bytes() for directory in three})


def test_records_of_a_directory_without_its_state_file_do_not_change(three: list[Path]) -> None:
    """The history of a directory without its state file is unknown, so its records are not changed."""
    (three[1] / names.REPLICAS).unlink()
    (three[1] / names.META_PROPERTIES).unlink()
    with opened(three) as engine:
        append(engine, "three")
        bring_back(engine)
        assert f"{three[1] / names.META_PROPERTIES}: is missing" == engine.directories()[1].offline.replace(
            ": No such", ""
        )
    assert (copy_of(three[1]) / "orders-0" / f"{0:020}.log").read_bytes() == (
        three[1] / "orders-0" / f"{0:020}.log"
    ).read_bytes()


def test_an_unreadable_file_fails_its_directory() -> None:
    """A read error of the disk has the same effect as a damaged file."""
    for name in (names.REPLICAS, names.META_PROPERTIES, names.TOPIC_SETTINGS, names.RECOVERY_POINTS):
        three = with_orders(3, replicas=3)
        three.append("one\n")
        three.engine.close()
        three.disk(2).fail("read_bytes", number=errno.EIO, times=100, suffix=name)
        three.open()
        assert [False, True, False] == [one.offline is not None for one in three.engine.directories()]
        assert ["one"] == three.lines()


def test_damaged_files_of_replicas_are_files_of_replicas(three: list[Path]) -> None:
    """Directories whose state files cannot be read are not opened as directories without replicas."""
    for directory in three:
        garble(directory / names.REPLICAS)
    assert holds_replicas(three)


def test_a_new_directory_does_not_begin_a_new_set_beside_a_damaged_one(
    three: list[Path], tmp_path: Path
) -> None:
    """If no state file can be read, the topics are unknown, so the start is refused and creates nothing."""
    garble(three[0] / names.REPLICAS)
    with pytest.raises(StorageError, match="topicfs.replicas"), opened([three[0], tmp_path / "new"]):
        pass
    assert not (tmp_path / "new").exists()


def test_a_directory_of_somebody_else_is_refused(three: list[Path], tmp_path: Path) -> None:
    """A directory that is not a data directory is refused as the caller's mistake, not treated as damaged."""
    (tmp_path / "holiday").mkdir()
    with pytest.raises(NotALogDirectoryError), opened([*three, tmp_path]):
        pass


def test_partitions_without_any_directory_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """The missing directories are logged once; later duties do not log them again."""
    two = Replicated(2)
    two.engine.create_topic("orders", partitions=2)
    caplog.set_level("INFO")
    for number in (1, 2):
        two.disk(number).fail("pwrite", number=errno.EIO, times=10_000)
        two.disk(number).fail("write_bytes", number=errno.EIO, times=10_000)
    with pytest.raises(OSError):
        two.append("one\n")
    two.engine.maintenance(two.clock())
    before = len(caplog.messages)
    for _ in range(10):
        two.engine.maintenance(two.clock())
    assert [] == caplog.messages[before:]
