"""Three replicas on separate file systems: disks fill up, fail or are unmounted, and a replica moves."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.replica_disks import ReplicaDisks, fill_up, mount, mounted_orders

pytestmark = [pytest.mark.fuse, pytest.mark.root]


def three_disks(base: Path, *, replicas: int, **options: object) -> AbstractContextManager[ReplicaDisks]:
    """Mount a topic on two tmpfs file systems and an ext4."""
    return mounted_orders(base, count=3, ext4=2, engine={"replication_factor": replicas}, **options)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ReplicaDisks]:
    """A mounted topic that has three replicas."""
    with three_disks(tmp_path, replicas=3) as three:
        yield three


def fail(disks: ReplicaDisks, number: int) -> None:
    """Make each write of a log in directory `number` fail with EIO."""
    disks.mount.faults.write_text(f"pwrite .log EIO {disks.directories[number]}\n")


def unmount_lazily(disks: ReplicaDisks, number: int) -> None:
    """Lazily unmount the file system `number` while the daemon has files in it open."""
    subprocess.run(["umount", "-l", str(disks.disks[number])], check=True)


def test_one_disk_fills_up_one_fails_and_one_is_unmounted(three: ReplicaDisks) -> None:
    """While one disk after another fills up, fails or is unmounted, each line is stored and shown once."""

    def trouble() -> None:
        fill_up(three.disks[0] / "fill")
        fail(three, 1)
        wait_until(lambda: three.replicas()[1] == "out_of_sync", "the failing replica is out of sync")
        three.mount.faults.unlink()
        (three.disks[0] / "fill").unlink()
        wait_until(three.in_sync, "all replicas are in sync again")
        unmount_lazily(three, 2)
        wait_until(lambda: three.replicas()[2] == "out_of_sync", "the unmounted replica is out of sync")

    three.append_and_follow(trouble)
    assert [] == list(three.disks[2].iterdir())
    mount("-o", "loop", str(three.image), str(three.disks[2]))
    wait_until(three.in_sync, "all replicas are in sync")
    assert 0 == three.mount.stop()
    three.assert_equal()


def test_acks_all_is_refused_exactly_while_one_of_three_is_in_sync(tmp_path: Path) -> None:
    """With min.insync.replicas=2 of three, acks=all is refused if and only if a single replica is in sync."""
    with three_disks(tmp_path, replicas=3, acks="all") as three:
        (three.orders / "config").write_text("min.insync.replicas=2\n")
        fail(three, 0)
        assert 0 == three.append("a").returncode
        assert ["out_of_sync", "leader", "in_sync"] == three.replicas()
        unmount_lazily(three, 2)
        wait_until(lambda: three.replicas()[2] == "out_of_sync", "the third replica is out of sync")
        three.assert_refused("b")
        three.mount.faults.unlink()
        wait_until(lambda: three.replicas()[0] == "in_sync", "two replicas are in sync")
        assert 0 == three.append("c").returncode
        assert "a\nc\n" == (three.orders / "0" / "log").read_text()


def test_a_replica_moves_while_shells_append_and_programs_follow(tmp_path: Path) -> None:
    """While a replica moves between directories, each line is stored and shown once."""
    with three_disks(tmp_path, replicas=2) as three:
        one, two, other = three.directories

        def placed() -> list[str]:
            lines = (three.orders / "replicas").read_text().splitlines()
            return [line.split()[3] for line in lines if "out_of_sync" not in line and "arriving" not in line]

        def around() -> None:
            for source, target in ((one, other), (two, one), (other, two)):
                (three.orders / "replicas").write_text(f"move 0 {target} {source}\n")
                wait_until(lambda source=source: str(source) not in placed(), "the replica has moved")

        three.append_and_follow(around)
        assert sorted(map(str, (one, two))) == sorted(placed())
        assert 0 == three.mount.stop()
        del three.directories[2]
        three.assert_equal()
        assert not (other / "orders-0").exists()


def test_a_flush_that_hangs_blocks_only_fsync(three: ReplicaDisks) -> None:
    """If the flush of a disk hangs, only fsync(2) waits; reads, and other topics on the disk, continue."""
    (three.mount.path / "others").mkdir()
    three.mount.faults.write_text(f"sync .log hangs {three.directories[1]}\n")
    words = ["dd", "of=orders/0/log", "oflag=append", "conv=notrunc,fsync", "status=none"]
    with subprocess.Popen(words, cwd=three.mount.path, stdin=subprocess.PIPE) as waiting:
        waiting.stdin.write(b"flushed\n")
        waiting.stdin.close()
        wait_until(lambda: "flushed\n" == (three.orders / "0" / "log").read_text(), "the line is appended")
        assert 0 == three.mount.bash("echo more >> others/0/log").returncode
        assert "more\n" == (three.mount.path / "others" / "0" / "log").read_text()
        assert three.in_sync()
        assert waiting.poll() is None
        three.mount.faults.unlink()
        assert 0 == waiting.wait(60)
