"""Two replicas on separate disks: one disk fills up, fails or vanishes while shells append and follow."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.replica_disks import DISK_BYTES, ReplicaDisks, fill_up, mount, mounted_orders

pytestmark = [pytest.mark.fuse, pytest.mark.root]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[ReplicaDisks]:
    """A mounted topic that has two replicas."""
    with mounted_orders(tmp_path, engine={"replication_factor": 2}) as two:
        yield two


def test_a_disk_that_fills_up_costs_nothing(two: ReplicaDisks) -> None:
    """If the leader's disk is full, the other replica leads; once there is space, both are in sync and equal."""
    two.append_and_follow(lambda: fill_up(two.disks[0] / "fill"))
    for number in range(400):  # These lines are more than the free space in the last block of the full disk.
        with (two.orders / "0" / "log").open("a") as log:
            log.write(f"more {number} {'x' * 200}\n")
    assert ["out_of_sync", "leader"] == two.replicas()
    (two.disks[0] / "fill").unlink()
    wait_until(two.in_sync, "both replicas are in sync")
    assert 0 == two.mount.stop()
    two.assert_equal()


def test_a_disk_that_vanishes_and_returns_costs_nothing(two: ReplicaDisks) -> None:
    """While a disk is unmounted under a running daemon, nothing is written to its bare mountpoint."""

    def vanish() -> None:
        mount("--move", str(two.disks[0]), str(two.away))
        wait_until(lambda: two.replicas() == ["out_of_sync", "leader"], "the other replica leads")

    two.append_and_follow(vanish)
    assert [] == list(two.disks[0].iterdir())
    mount("--move", str(two.away), str(two.disks[0]))
    wait_until(two.in_sync, "both replicas are in sync")
    assert 0 == two.mount.stop()
    two.assert_equal()


def test_a_group_reads_on_when_a_disk_fails_and_returns(two: ReplicaDisks) -> None:
    """While a disk fails and comes back, a group reads each record once."""
    (two.orders / "0" / "log").write_text("".join(f"{n}\n" for n in range(6)))
    group = two.mount.path / "@groups" / "g"
    group.mkdir()
    with (group / "orders" / "log").open("rb", buffering=0) as log:
        assert b"0\n1\n" == log.read(4)
        fill_up(two.disks[0] / "fill")
        assert b"2\n3\n" == log.read(4)
        assert b"4\n" == log.read(2)
    assert 0 == two.mount.stop()
    (two.disks[0] / "fill").unlink()
    two.mount.start()
    assert "4\n5\n" == (group / "orders" / "drain").read_text()
    assert "6\n" == (group / "orders" / "0" / "position").read_text()
    wait_until(two.in_sync, "both replicas are in sync")


def test_a_queue_continues_when_a_disk_vanishes_and_returns(two: ReplicaDisks) -> None:
    """After a disk vanished and returned, only the held record is read again, and no accepted or rejected record."""
    (two.orders / "0" / "log").write_text("".join(f"{n}\n" for n in range(6)))
    jobs = two.mount.path / "@queues" / "jobs" / "orders"
    jobs.parent.mkdir()
    with (jobs / "take").open("rb+", buffering=0) as take:
        for word in (b"accept\n", b"reject\n", b"accept\n", b"accept\n", b"reject\n"):
            assert b"\n" == take.read(100)[-1:]
            if word == b"accept\n" and not two.away.joinpath("data").exists():
                mount("--move", str(two.disks[0]), str(two.away))
            take.write(word)
        assert b"5\n" == take.read(100)
    assert ["orders-0-1", "orders-0-4"] == sorted(one.name for one in (jobs / "rejected").iterdir())
    mount("--move", str(two.away), str(two.disks[0]))
    wait_until(two.in_sync, "both replicas are in sync")
    assert 0 == two.mount.stop()
    two.assert_equal()
    two.mount.start()
    assert ["orders-0-1", "orders-0-4"] == sorted(one.name for one in (jobs / "rejected").iterdir())
    with (jobs / "take").open("rb+", buffering=0) as take:
        assert b"5\n" == take.read(100)
        take.write(b"accept\n")
    assert "queue jobs lag 0\n" == two.mount.bash("grep ^queue orders/status").stdout


def test_an_empty_disk_is_filled(two: ReplicaDisks) -> None:
    """After a disk was replaced by an empty disk, a start with `--without` copies all records to the empty disk."""
    (two.orders / "0" / "log").write_text("a\nb\n")
    assert 0 == two.mount.stop()
    subprocess.run(["umount", str(two.disks[0])], check=True)
    mount("-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(two.disks[0]))
    with pytest.raises(AssertionError):
        two.mount.start()
    assert "--without" in (two.mount.base / "daemon.said").read_text()
    two.mount.start(left_out=[str(two.directories[0])])
    assert "a\nb\n" == (two.orders / "0" / "log").read_text()
    wait_until(two.in_sync, "both replicas are in sync")
    assert 0 == two.mount.stop()
    two.assert_equal()


def test_killed_daemons_lose_nothing(two: ReplicaDisks) -> None:
    """After kill -9 of daemons during appends, each acknowledged line is stored once in both replicas."""
    answered = two.mount.base / "answered"
    for kill in range(3):
        script = f'i=0; while echo "{kill} $i" >> orders/0/log; do echo "{kill} $i" >> {answered}; i=$((i+1)); done'
        with subprocess.Popen(["bash", "-c", script], cwd=two.mount.path, stderr=subprocess.DEVNULL) as shell:
            wait_until(
                lambda kill=kill: answered.exists() and f"{kill} 20\n" in answered.read_text(),
                "the shell has appended 20 lines",
            )
            two.mount.kill()
            shell.wait(60)
        two.mount.clean_up()
        two.mount.start()
        found = (two.orders / "0" / "log").read_text().splitlines()
        assert len(found) == len(set(found))
        assert set(answered.read_text().splitlines()) <= set(found)
        assert two.in_sync()
    assert 0 == two.mount.stop()
    two.assert_equal()
