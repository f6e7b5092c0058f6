"""Tests of lost or damaged files in one of two replica directories, which are on separate file systems."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.doubles.engines import append_lines, read_lines
from tests.doubles.small_disk import small_disk
from tests.fusefs.mounted.replica_disks import shut_down
from tests.topicfs.conftest import Topicfs
from tests.topicfs.test_resolve_on_disks import lines, named, started
from topicfs.replication import open_directories
from topicfs.storage.disk.native import system_clock
from topicfs.storage.errors import MissingReplicasError, StorageError

pytestmark = pytest.mark.root

LINES = [f"line {number} {'x' * 20}" for number in range(60)]
BASES = (10, 20, 30)
"""Base offsets of closed segments."""


@pytest.fixture
def places(tmp_path: Path) -> Iterator[list[Path]]:
    """Two replica directories, each on an ext4 of 16 MB, with segments of ten lines, and closed cleanly."""
    with ExitStack() as stack:
        made = []
        for name in "ab":
            (tmp_path / name).mkdir()
            disk = stack.enter_context(small_disk(tmp_path / name, kind="ext4", size_mb=16))
            made.append(disk / "data")
        with closing(started(*made)) as engine:
            engine.create_topic("orders", overrides={"internal.segment.bytes": "1000"})
            for line in LINES:
                append_lines(engine.partition("orders", 0), f"{line}\n")
        yield made


def log(place: Path, base: int) -> Path:
    return place / "orders-0" / f"{base:020}.log"


def alone(place: Path) -> list[str]:
    """Open one directory alone, and return the lines in it."""
    with closing(open_directories([place], read_only=True)) as engine:
        return read_lines(engine.partition("orders", 0))


def first_removed(place: Path) -> None:
    log(place, 0).unlink()


def middle_removed(place: Path) -> None:
    log(place, BASES[0]).unlink()


def cut(place: Path) -> None:
    os.truncate(log(place, BASES[0]), 500)


def junk(place: Path) -> None:
    with log(place, BASES[0]).open("ab") as file:
        file.write(b"junk" * 100)


def exchanged(place: Path) -> None:
    one, other = (log(place, base) for base in BASES[:2])
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)


def log_start_changed(place: Path) -> None:
    (place / "log-start-offset-checkpoint").write_text("0\n1\norders 0 60\n")


def epoch_changed(place: Path) -> None:
    (place / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")


def epochs_no_text(place: Path) -> None:
    (place / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"\xff\xfe\x00\x80")


DAMAGES = (
    first_removed,
    middle_removed,
    cut,
    junk,
    exchanged,
    log_start_changed,
    epoch_changed,
    epochs_no_text,
)


@pytest.mark.parametrize("by", ["scrub", "start"])
@pytest.mark.parametrize("number", [0, 1], ids=["leader", "follower"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_in_one_directory_takes_nothing_from_the_other(
    topicfs: Topicfs, places: list[Path], damage: Callable[[Path], None], number: int, by: str
) -> None:
    """If files in one directory are damaged, a scrub leaves both directories with every record and without damage."""
    damage(places[number])
    if by == "start":
        assert LINES == lines(places)
    topicfs("scrub", named(places))
    assert LINES == lines(places)
    assert [LINES, LINES] == [alone(place) for place in places]
    second = topicfs("scrub", named(places))
    assert (0, True) == (second.status, b"0 batches and 0 files healed" in second.output + second.errors)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def garbled(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 4)


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def removed(path: Path) -> None:
    path.unlink()


def a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere.deleted"))
    path.symlink_to("elsewhere.deleted")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("topicfs.replicas", one) for one in (emptied, garbled, halved, removed, a_fifo, a_link)),
        ("topicfs.topics", garbled),
        ("topicfs.topics", a_fifo),
        ("meta.properties", garbled),
        ("meta.properties", a_link),
    ],
)
def test_a_damaged_small_file_takes_its_directory_alone(
    places: list[Path], name: str, damage: Callable[[Path], None]
) -> None:
    """If a small file is damaged, the start fails and names file and remedy. With `--without DIR` it succeeds."""
    damage(places[0] / name)
    with pytest.raises(MissingReplicasError) as refused:
        started(*places)
    said = str(refused.value)
    assert f"{places[0]}/{name}: " in said
    assert f"--without {places[0]} " in said
    assert len(said) < 300 + 4 * len(str(places[0]))
    with closing(started(*places, left_out=(places[0],))) as engine:
        assert LINES == read_lines(engine.partition("orders", 0))
        assert [True, False] == [one.offline is not None for one in engine.directories()]


def test_without_any_disk_the_log_gets_one_line(places: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    """After both disks have failed, later duties log nothing more about the partition."""
    caplog.set_level("INFO")
    with closing(started(*places)) as engine:
        for place in places:
            shut_down(place)
        with pytest.raises((OSError, StorageError)):
            append_lines(engine.partition("orders", 0), "lost\n")
        for _ in range(5):
            engine.maintenance(system_clock())
        before = list(caplog.messages)
        assert any("orders-0" in one for one in before), before
        for _ in range(40):
            engine.maintenance(system_clock())
        assert before == caplog.messages
