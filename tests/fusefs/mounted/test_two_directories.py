"""A mount over two data directories: where partitions are placed, a directory that vanishes, a broker's settings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import ROOT, Mount
from topicfs.fusefs.filesystem import disk_space

pytestmark = pytest.mark.fuse

PROPERTIES = """
process.roles=broker,controller
listeners=PLAINTEXT://127.0.0.1:19092
log.dirs=one,two
num.partitions=2
log.retention.check.interval.ms=1000
"""


def topicfs(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command with `words` in the directory `cwd`."""
    return subprocess.run(
        [sys.executable, "-c", "from topicfs.main import main; main()", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def both(unmounted: Mount) -> Mount:
    """A mount with a topic that has one partition in each of two directories."""
    mount = unmounted.start(directories=f"{unmounted.base}/one,{unmounted.base}/two")
    assert not mount.bash("mkdir t t/1 && echo a >> t/0/log && echo b >> t/1/log").stderr
    return mount


def test_partitions_are_spread_and_found_again(both: Mount) -> None:
    """`status` and `@status` name the directories, and a remount finds both partitions."""
    assert f"directory {both.base}/one/t-0\n" in (both.path / "t/0/status").read_text()
    assert f"directory {both.base}/two/t-1\n" in (both.path / "t/1/status").read_text()
    assert [f"directory {both.base}/{name}" for name in ("one", "two")] == [
        line for line in both.status.splitlines() if line.startswith("directory ")
    ]
    assert 0 == both.stop()
    assert [True, True] == [(both.base / name / ".kafka_cleanshutdown").exists() for name in ("one", "two")]
    both.start()
    assert "a\nb\n" == both.bash("cat t/0/log t/1/log").stdout


def test_a_vanished_directory_affects_only_its_partitions(both: Mount) -> None:
    """If a directory vanishes, only its partitions fail; after it is back, `topicfs topics online` reopens them."""
    (both.base / "two").rename(both.base / "away")
    status = both.path / "t/1/status"
    wait_until(lambda: "state offline: " in status.read_text(), "the partition is offline")
    assert f"{both.base}/two failed: No such file or directory" in status.read_text()
    assert f"directory {both.base}/two offline: " in both.status
    refused = both.bash("echo x >> t/1/log")
    assert "Input/output error" in refused.stderr
    assert "a\nmore\n" == both.bash("echo more >> t/0/log && cat t/0/log").stdout

    data = f"{both.base}/one,{both.base}/two"
    still = topicfs("topics", "online", "--data", f"{both.base}/one", cwd=both.base)
    assert (1, 1) == (still.returncode, len(still.stdout.splitlines()))
    assert still.stdout.startswith("t/1: offline: ")

    (both.base / "away").rename(both.base / "two")
    back = topicfs("topics", "online", "--data", data, cwd=both.base)
    assert (0, "t/1: online\n", "") == (back.returncode, back.stdout, back.stderr)
    assert "b\nx\n" == both.bash("echo x >> t/1/log && cat t/1/log").stdout


def test_df_shows_both_disks(both: Mount) -> None:
    """`df` shows the sum of two disks, and counts a disk once if two directories are on it."""

    def size(found: os.statvfs_result) -> int:
        return found.f_blocks * found.f_frsize

    def agree() -> bool:
        """Return whether all sizes agree.

        The test repeats this check: on some file systems the total size changes when other programs write.
        """
        disk, memory = os.statvfs(both.base), os.statvfs(other)
        together = disk_space([both.base / "one", both.base / "two", other])
        beside = size(memory) // disk.f_frsize if other.stat().st_dev != both.base.stat().st_dev else 0
        alone = disk_space([both.base / "gone", both.base / "one"])
        return (size(disk), disk.f_blocks + beside, disk.f_blocks) == (
            size(os.statvfs(both.path)),
            together.f_blocks,
            alone.f_blocks,
        )

    other = Path("/dev/shm")
    wait_until(agree, "all sizes agree")


@pytest.mark.parametrize("name", ["one", "one,two", "a b", "back\\slash", "ümlaut"])
def test_df_names_the_directories_as_the_source(unmounted: Mount, name: str) -> None:
    """The source of a mount names its directories, whatever characters they have, so that mount(8) recognizes it."""
    directories = ",".join(f"{unmounted.base}/{one}" for one in name.split(","))
    mount = unmounted.start(directories=directories)
    assert directories == mount.bash("df --output=source . | tail -n 1").stdout.strip()


@pytest.fixture
def place(unmounted: Mount) -> Iterator[Mount]:
    """A mountpoint on which a test mounts by command; it is unmounted at the end."""
    yield unmounted
    subprocess.run(["umount", "-l", str(unmounted.path)], check=False, capture_output=True)


def test_a_brokers_file_is_all_a_mount_needs(place: Mount) -> None:
    """A broker's file sets directories, partitions and periods; its settings without effect are listed in one line."""
    (place.base / "server.properties").write_text(PROPERTIES)
    ran = topicfs("mount", "--config", "server.properties", "mnt", cwd=place.base)
    assert (0, "topicfs: server.properties: settings without effect here: process.roles, listeners\n") == (
        ran.returncode,
        ran.stderr,
    )
    assert not place.bash("mkdir t && echo x >> t/1/log").stderr
    assert [True, True] == [(place.base / name).is_dir() for name in ("one/t-0", "two/t-1")]
    changed = topicfs("config", "t", "retention.ms=5", "--data", "one,two", cwd=place.base)
    assert (0, "t: retention.ms=5\n") == (changed.returncode, changed.stdout)
    shown = topicfs("config", "t", "--match", "retention.ms", "--data", "one,two", cwd=place.base)
    assert shown.stdout.startswith("retention.ms=5\ttopic\t")
    assert 0 == topicfs("umount", "mnt", cwd=place.base).returncode
