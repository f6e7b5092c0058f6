"""`topicfs scrub MOUNTPOINT` asks the daemon of the mount for a scrub, and prints the daemon's findings."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.fusefs.mounted.conftest import Mount
from tests.fusefs.mounted.test_two_directories import topicfs

pytestmark = pytest.mark.fuse

LOG = Path("orders-0") / f"{0:020}.log"


def scrub(mount: Mount, *options: str) -> subprocess.CompletedProcess[str]:
    return topicfs("scrub", str(mount.path), *options, cwd=mount.base)


def flip(path: Path) -> None:
    """Flip a bit in the last byte of a file, without replacing the file, because the daemon has it open."""
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))


@pytest.fixture
def replicas(unmounted: Mount) -> tuple[Path, Path]:
    """The log files of two replicas that a mount serves."""
    directories = unmounted.base / "one", unmounted.base / "two"
    unmounted.start(
        directories=",".join(map(str, directories)), replicated=True, engine={"replication_factor": 2}
    )
    assert not unmounted.bash("mkdir orders && echo one >> orders/0/log && echo two >> orders/0/log").stderr
    return directories[0] / LOG, directories[1] / LOG


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_damaged_replica_is_healed(unmounted: Mount, replicas: tuple[Path, Path], damaged: int) -> None:
    """A damaged replica is repaired from the other replica; a line reports the batch, and the exit status is 0."""
    flip(replicas[damaged])
    ran = scrub(unmounted)
    assert (0, 1) == (ran.returncode, len(ran.stdout.splitlines()))
    assert f"{replicas[damaged]}: position " in ran.stdout
    assert "(healed from " in ran.stdout
    assert ran.stderr.startswith("nothing damaged left; since the mount began: ")
    assert replicas[0].read_bytes() == replicas[1].read_bytes()
    assert "one\ntwo\n" == (unmounted.path / "orders/0/log").read_text()
    again = scrub(unmounted, "--json")
    assert (0, {"findings": [], "damaged": 0}) == (again.returncode, json.loads(again.stdout))


def test_what_is_damaged_without_replicas_stays(mount: Mount) -> None:
    """If there are no replicas, damage is reported with exit status 1, and the file does not change."""
    assert not mount.bash("mkdir orders && echo one >> orders/0/log").stderr
    flip(mount.data / LOG)
    before = (mount.data / LOG).read_bytes()
    ran = scrub(mount)
    assert (1, 1) == (ran.returncode, len(ran.stdout.splitlines()))
    assert ran.stdout.startswith(f"{mount.data / LOG}: position 0: ")
    assert "healed" not in ran.stdout
    assert ran.stderr.startswith("1 damaged left; since the mount began: ")
    assert before == (mount.data / LOG).read_bytes()
    told = scrub(mount, "--json")
    assert (1, 1) == (told.returncode, json.loads(told.stdout)["damaged"])


def test_a_read_only_mount_refuses(unmounted: Mount, replicas: tuple[Path, Path]) -> None:
    """A scrub of a read-only mount fails with the reason, and changes no file."""
    assert 0 == unmounted.stop()
    flip(replicas[0])
    before = replicas[0].read_bytes()
    unmounted.start(read_only=True)
    ran = scrub(unmounted)
    assert (1, "") == (ran.returncode, ran.stdout)
    assert "Read-only file system" in ran.stderr
    assert before == replicas[0].read_bytes()
