"""Deletions free disk space while the daemon runs, because it does not keep deleted files open or mapped."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount, status

pytestmark = pytest.mark.fuse

LINE = b"x" * 999 + b"\n"
SEGMENT_BYTES = 1_048_576
SEGMENTS = 8


def deleted_files(mount: Mount) -> set[str]:
    """Return the deleted files that the daemon has open or mapped, so that their blocks are not free."""
    found = set()
    for link in Path(f"/proc/{mount.pid}/fd").iterdir():
        try:
            found.add(os.readlink(link))
        except FileNotFoundError:
            continue
    found |= {
        line.split(maxsplit=5)[5]
        for line in Path(f"/proc/{mount.pid}/maps").read_text().splitlines()
        if "/" in line
    }
    return {name for name in found if name.endswith(" (deleted)") and name.startswith(str(mount.data))}


def used_bytes(mount: Mount) -> int:
    """Return the disk space of the data directory's log files; a file that vanishes during the count adds 0."""
    blocks = 0
    for folder, _, files in os.walk(mount.data):
        for name in files:
            with suppress(FileNotFoundError):
                blocks += (Path(folder) / name).stat().st_blocks if ".log" in name else 0
    return blocks * 512


def write(topic: Path, name: str = "log", line: bytes = LINE) -> None:
    """Write lines that fill several segments."""
    with (topic / "0" / name).open("ab", buffering=0) as log:
        for _ in range(SEGMENTS * SEGMENT_BYTES // (100 * len(line)) + 1):
            log.write(100 * line)


def read(topic: Path) -> None:
    """Read all records and segment files, so that the daemon opens each file."""
    assert len((topic / "0" / "log").read_bytes()) > (SEGMENTS - 1) * SEGMENT_BYTES
    for path in (topic / "0" / "segments").iterdir():
        path.read_bytes()


def set_config(topic: Path, *settings: str) -> None:
    with (topic / "config").open("a") as config:
        config.write("".join(f"{setting}\n" for setting in settings))


@pytest.fixture
def mount(unmounted: Mount) -> Mount:
    """A mount whose duties run frequently."""
    return unmounted.start(
        allow_delete=True,
        engine={
            "initial_task_delay_ms": 0,
            "retention_check_interval_ms": 100,
            "cleaner_backoff_ms": 100,
        },
    )


@pytest.fixture
def topic(mount: Mount) -> Path:
    """A topic of several segments. The daemon has all segment files open, and deletes files without delay."""
    topic = mount.path / "t"
    topic.mkdir()
    set_config(topic, f"segment.bytes={SEGMENT_BYTES}", "file.delete.delay.ms=0")
    write(topic)
    read(topic)
    assert used_bytes(mount) > (SEGMENTS - 1) * SEGMENT_BYTES
    return topic


def few_are_left(mount: Mount) -> bool:
    """Return whether at most two segments remain in the data directory."""
    return used_bytes(mount) <= 3 * SEGMENT_BYTES


def test_retention_gives_room_back(mount, topic):
    """Each time that retention deletes segments, the daemon closes their files."""
    set_config(topic, f"retention.bytes={SEGMENT_BYTES}")
    for _ in range(2):
        wait_until(lambda: few_are_left(mount), "retention has deleted segments")
        wait_until(lambda: not deleted_files(mount), "deleted segments are closed")
        write(topic)
    wait_until(
        lambda: few_are_left(mount) and not deleted_files(mount), "the last deleted segments are closed"
    )


def test_a_deleted_segment_is_freed_when_its_reader_closes_it(mount, topic):
    """A deleted segment that a reader has open is freed when the reader closes its file."""
    partition = topic / "0"
    first = min(path.name for path in (partition / "segments").iterdir() if path.suffix == ".log")
    with (
        (partition / "log").open("rb", buffering=0) as log,
        (partition / "segments" / first).open("rb", buffering=0) as raw,
    ):
        assert LINE == log.read(1000)
        assert raw.read(1000)
        set_config(topic, f"retention.bytes={SEGMENT_BYTES}")
        wait_until(lambda: few_are_left(mount), "retention has deleted segments")
    wait_until(lambda: not deleted_files(mount), "deleted segments are closed")


def test_deleting_records_gives_room_back(mount, topic):
    """Deleting records through `start` frees their segments."""
    end = int(status(topic / "0")["log_end_offset"])
    (topic / "0" / "start").write_text(f"{end - 1}\n")
    wait_until(lambda: few_are_left(mount), "the records are deleted")
    wait_until(lambda: not deleted_files(mount), "deleted segments are closed")


def test_compaction_gives_room_back(mount):
    """The compaction of a log with a single key frees nearly all segments."""
    topic = mount.path / "t"
    topic.mkdir()
    set_config(topic, f"segment.bytes={SEGMENT_BYTES}", "file.delete.delay.ms=0")
    write(topic, "log.kv", b"k\t" + LINE)
    read(topic)
    set_config(topic, "cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01")
    wait_until(lambda: "t-0: compacted offsets" in mount.log and few_are_left(mount), "the log is compacted")
    wait_until(lambda: not deleted_files(mount), "replaced segments are closed")


def test_removing_a_topic_gives_room_back(mount, topic):
    """The files of a removed topic are freed once each reader has closed the topic's log."""
    with (topic / "0" / "log").open("rb", buffering=0) as log:
        assert LINE == log.read(1000)
        topic.rmdir()
        wait_until(lambda: used_bytes(mount) == 0, "the topic's files are gone")
    wait_until(lambda: not deleted_files(mount), "the topic's files are closed")
