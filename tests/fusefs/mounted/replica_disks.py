"""A mount over replicas on separate file systems, with shells that append and programs that follow."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount, _no_surprises

SHELLS, LINES = 4, 150
DISK_BYTES = 48 << 20
EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH = 0x8004587D, 2


NAMES = ("one", "two", "three")


class ReplicaDisks:
    """A mount over two or three file systems of a fixed size."""

    def __init__(self, base: Path, *, count: int = 2, **options: object) -> None:
        self.disks = [base / name for name in NAMES[:count]]
        self.away = base / "away"
        self.image = base / "image"
        self.directories = [disk / "data" for disk in self.disks]
        for disk in (*self.disks, self.away):
            disk.mkdir()
        for disk in self.disks:
            mount("-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(disk))
        self.mount = Mount(base, directories=",".join(map(str, self.directories)), replicated=True, **options)

    @property
    def orders(self) -> Path:
        return self.mount.path / "orders"

    def replicas(self) -> list[str]:
        """Return the role of each replica of partition 0."""
        lines = (self.orders / "replicas").read_text().splitlines()
        return [line.split()[4] for line in lines]

    def in_sync(self) -> bool:
        return ["in_sync"] * (len(self.disks) - 1) + ["leader"] == sorted(self.replicas())

    def put_ext4(self, number: int) -> None:
        """Replace the tmpfs of disk `number` with an ext4 image, which keeps its files after a lazy unmount."""
        subprocess.run(["umount", str(self.disks[number])], check=True)
        with self.image.open("wb") as file:
            file.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", str(self.image)], check=True)
        mount("-o", "loop", str(self.image), str(self.disks[number]))

    def shut_down(self, number: int) -> None:
        """Shut an ext4 down, so that all its later reads and writes fail with EIO."""
        shut_down(self.disks[number])

    def bring_back(self, number: int) -> None:
        """Mount again an ext4 that was shut down."""
        bring_back(self.disks[number], self.image)

    def append(self, line: str) -> subprocess.CompletedProcess[str]:
        """Append a line with a shell."""
        return self.mount.bash('echo "$LINE" >> orders/0/log', LINE=line)

    def assert_refused(self, line: str) -> None:
        """Check that an append with acks=all fails with EAGAIN."""
        refused = self.append(line)
        assert 1 == refused.returncode
        assert "Resource temporarily unavailable" in refused.stderr

    def append_and_follow(self, disturb: Callable[[], None]) -> None:
        """Let shells append and programs follow while `disturb` runs; check that each line is stored and shown once."""
        followers = [
            subprocess.Popen(["cat", str(self.orders / "0" / "follow")], stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        wait_until(lambda: "waiting_reads 2" in self.mount.status, "both followers wait")
        script = f'for i in $(seq {LINES}); do echo "$WHO $i" >> 0/log || echo "$i failed"; done'
        shells = [
            subprocess.Popen(
                ["bash", "-c", script],
                cwd=self.orders,
                env={"WHO": str(number), "PATH": "/usr/bin:/bin"},
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(SHELLS)
        ]
        disturb()
        refused = [shell.communicate(timeout=120)[0] for shell in shells]
        assert [""] * SHELLS == refused
        expected = sorted(f"{who} {i}" for who in range(SHELLS) for i in range(1, LINES + 1))
        found = (self.orders / "0" / "log").read_text().splitlines()
        assert expected == sorted(line for line in found if line[1] == " ")
        for follower in followers:
            assert expected == sorted(follower.stdout.readline().rstrip() for _ in expected)
            follower.kill()
            follower.communicate()

    def assert_equal(self) -> None:
        """Check, after the unmount, that the segments of all replicas are equal."""
        names = sorted(path.name for path in (self.directories[0] / "orders-0").glob("*.*"))
        compared = [name for name in names if name.endswith((".log", ".index", ".timeindex"))]
        assert compared
        first, *others = (
            {name: (root / "orders-0" / name).read_bytes() for name in compared} for root in self.directories
        )
        for other in others:
            assert first == other

    def clean_up(self) -> None:
        self.mount.clean_up()
        for disk in (self.away, *self.disks):
            while subprocess.run(["mountpoint", "-q", str(disk)], check=False).returncode == 0:
                subprocess.run(["umount", "-l", str(disk)], check=True)


@contextmanager
def mounted_orders(base: Path, *, ext4: int | None = None, **options: object) -> Iterator[ReplicaDisks]:
    """Mount replica disks during the block, with the topic `orders`; disk `ext4` is an ext4 file system."""
    disks = ReplicaDisks(base, **options)
    try:
        if ext4 is not None:
            disks.put_ext4(ext4)
        disks.mount.start()
        disks.orders.mkdir()
        yield disks
    finally:
        disks.clean_up()
    _no_surprises(disks.mount)


def shut_down(disk: Path) -> None:
    """Shut an ext4 down, so that all its later reads and writes fail with EIO."""
    directory = os.open(disk, os.O_RDONLY)
    try:
        fcntl.ioctl(directory, EXT4_IOC_SHUTDOWN, struct.pack("I", EXT4_GOING_FLAGS_NOLOGFLUSH))
    finally:
        os.close(directory)


def bring_back(disk: Path, image: Path) -> None:
    """Mount a copy of the image of an ext4 that was shut down.

    While a process in another mount namespace has the original image mounted, mounting it again gives the failed file
    system.
    """
    subprocess.run(["umount", "-l", str(disk)], check=True)
    os.sync()
    copy = image.with_name(f"{image.name}-again")
    shutil.copyfile(image, copy)
    mount("-o", "loop", str(copy), str(disk))


def fill_up(path: Path) -> None:
    """Write to a file until its disk is full."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(b"x" * 65536):
            pass


def mount(*arguments: str) -> None:
    """Run `mount` of util-linux with these arguments."""
    subprocess.run(["mount", *arguments], check=True)
