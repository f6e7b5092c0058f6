"""Durable appends to two replicas on separate file systems; one file system fails during the append."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import _no_surprises
from tests.fusefs.mounted.replica_disks import ReplicaDisks

pytestmark = [pytest.mark.fuse, pytest.mark.root]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[ReplicaDisks]:
    """A mount whose topic requires both replicas in sync; one is on tmpfs, the other on ext4."""
    disks = ReplicaDisks(tmp_path, engine={"replication_factor": 2})
    disks.put_ext4(1)
    yield disks
    disks.clean_up()
    _no_surprises(disks.mount)


def begin(two: ReplicaDisks, acks: str) -> None:
    two.mount.start(acks=acks)
    two.orders.mkdir()
    (two.orders / "config").write_text("min.insync.replicas=2\n")
    assert 0 == two.append("first").returncode


def log(two: ReplicaDisks) -> str:
    return (two.orders / "0" / "log").read_text()


APPENDS = {
    "acks-all": ("all", 'echo "$LINE" >> orders/0/log'),
    "sync": ("1", 'echo "$LINE" | dd of=orders/0/log oflag=append,sync conv=notrunc status=none'),
    "dsync": ("1", 'echo "$LINE" | dd of=orders/0/log oflag=append,dsync conv=notrunc status=none'),
    "fsync": ("1", 'echo "$LINE" | dd of=orders/0/log oflag=append conv=notrunc,fsync status=none'),
}


@pytest.mark.parametrize("how", APPENDS)
def test_the_append_in_which_a_disk_dies_is_not_acknowledged(two: ReplicaDisks, how: str) -> None:
    """If a disk fails during an append, the shell gets an error; after the disk is back, readers get the line once."""
    acks, script = APPENDS[how]
    begin(two, acks)
    two.shut_down(1)
    failed = two.mount.bash(script, LINE="in doubt")
    assert 1 == failed.returncode
    expected = "Resource temporarily unavailable" if how == "fsync" else "Input/output error"
    assert expected in failed.stderr
    assert "in sync 1,2 -> 1" in two.mount.log_file.read_text()
    assert "first\n" == log(two)
    two.bring_back(1)
    wait_until(two.in_sync, "both replicas are in sync")
    assert "first\nin doubt\n" == log(two)
    assert 0 == two.mount.bash(script, LINE="last").returncode
    assert "first\nin doubt\nlast\n" == log(two)
    assert 0 == two.mount.stop()
    two.assert_equal()


def test_a_shell_that_repeats_a_line_through_one_open_file_has_it_in_the_log_once(two: ReplicaDisks) -> None:
    """A shell that repeats a line until it succeeds gets EIO, then EAGAIN; the line is stored once."""
    begin(two, "all")
    two.shut_down(1)
    script = 'exec 3>> orders/0/log; until echo "$LINE" >&3; do sleep 0.1; done; echo next >&3'
    errors = two.mount.base / "errors"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            ["bash", "-c", script], cwd=two.mount.path, stderr=stderr, env={"LINE": "in doubt"}
        ) as shell,
    ):
        wait_until(lambda: "temporarily unavailable" in errors.read_text(), "the shell repeats the line")
        two.bring_back(1)
        assert 0 == shell.wait(60)
    assert "Input/output error" in errors.read_text().splitlines()[0]
    assert "first\nin doubt\nnext\n" == log(two)


def test_a_disk_that_hangs_is_waited_for(two: ReplicaDisks) -> None:
    """If a disk hangs, an append waits without a time limit until the disk answers, and is then on both replicas."""
    begin(two, "1")
    two.mount.faults.write_text(f"pwrite .log hangs {two.directories[1]}\n")
    words = ["bash", "-c", "echo hung >> orders/0/log"]
    leader = two.directories[0] / "orders-0" / "00000000000000000000.log"
    with subprocess.Popen(words, cwd=two.mount.path) as waiting:
        wait_until(lambda: b"hung" in leader.read_bytes(), "the leader has the line")
        assert waiting.poll() is None
        two.mount.faults.unlink()
        assert 0 == waiting.wait(60)
    assert ["leader", "in_sync"] == two.replicas()
    assert "in sync 1,2 -> 1" not in two.mount.log_file.read_text()
    assert "first\nhung\n" == log(two)


def test_the_reason_of_the_error_is_shown(two: ReplicaDisks) -> None:
    """`@status` says that the records are in the log despite the error, so that users do not write them again."""
    begin(two, "all")
    two.mount.faults.write_text(f"sync .log EIO {two.directories[1]}\n")
    assert 1 == two.append("in doubt").returncode
    last = (two.mount.path / "@status").read_text().splitlines()[-1]
    assert "orders/0/log: orders-0: 1 of 2 replicas in sync and min.insync.replicas=2" in last
    assert "the records are in the log nevertheless" in last
    assert "first\nin doubt\n" == log(two)
