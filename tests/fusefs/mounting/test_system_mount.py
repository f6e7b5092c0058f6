"""Mounting with system calls and with fusermount3; no daemon answers the requests of the kernel."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from topicfs.fusefs.mounting import system_mount
from topicfs.fusefs.mounting.limits import mounts
from topicfs.fusefs.mounting.mountpoint import MountError
from topicfs.fusefs.mounting.system_mount import mount, unmount

SOURCE = "/data,with\\comma and ümlaut".encode()

pytestmark = pytest.mark.fuse

Mounting = Callable[..., int]


def row(path: Path) -> tuple[set[str], str, str, set[str]]:
    """Return four fields of the entry of /proc/self/mountinfo for `path`: mount options, type, source, file system options."""
    shown = str(path).replace(" ", "\\040")
    lines = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {shown} " in line]
    before, _, behind = lines[-1].partition(" - ")
    kind, source, options = behind.split(" ")
    source = source.replace("\\040", " ").replace("\\134", "\\")
    return set(before.split(" ")[5].split(",")), kind, source, set(options.split(","))


@pytest.fixture(params=["system call", "fusermount3"])
def mounting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mounting:
    """A function that mounts: each test runs once with system calls and once with fusermount3."""
    if request.param == "fusermount3":

        def refuse(*_: object, **__: object) -> int:
            raise PermissionError

        monkeypatch.setattr(system_mount, "_by_system_call", refuse)
    elif os.geteuid() != 0:
        pytest.skip("needs root, to mount by a system call")
    return mount


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "mnt, with comma"
    path.mkdir()
    yield path
    with suppress(OSError):
        subprocess.run(["fusermount3", "-u", "-z", str(path)], capture_output=True, check=False)


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("allow_other", [True, False])
def test_a_mount_has_its_source_and_its_options(
    mounting: Mounting, place: Path, allow_other: bool, read_only: bool
):
    """A mount has its source, `nosuid`, `nodev` and `default_permissions`, and the requested options."""
    if allow_other and os.geteuid() != 0:
        pytest.skip("needs root, unless /etc/fuse.conf allows it")
    device = mounting(place, SOURCE, allow_other=allow_other, read_only=read_only)
    try:
        assert not os.get_inheritable(device)
        options, kind, source, of_file_system = row(place)
        assert ("fuse.topicfs", SOURCE.decode()) == (kind, source)
        assert {"ro" if read_only else "rw", "nosuid", "nodev"} <= options
        assert {f"user_id={os.getuid()}", f"group_id={os.getgid()}", "default_permissions"} <= of_file_system
        assert allow_other == ("allow_other" in of_file_system)
    finally:
        unmount(place, device)
    assert not place.is_mount()


def test_a_mount_that_was_unmounted_is_not_unmounted_again(mounting: Mounting, place: Path):
    """If another mount was made at the place of a mount that is gone, `unmount` leaves the other mount alone."""
    device = mounting(place, b"first", allow_other=False, read_only=False)
    subprocess.run(["fusermount3", "-u", "-z", str(place)], check=True)
    other = mounting(place, b"second", allow_other=False, read_only=False)
    unmount(place, device)
    assert "second" == row(place)[2]
    unmount(place, other)
    assert not place.is_mount()


def test_what_the_system_refuses_has_a_reason(mounting: Mounting, tmp_path: Path):
    """If the system refuses a mount, the error has the system's reason, and says what mounting needs."""
    missing = tmp_path / "missing"
    with pytest.raises(
        MountError, match=r"missing: cannot be mounted \(.*No such file.*\); mounting needs /dev/fuse"
    ):
        mounting(missing, b"x", allow_other=False, read_only=False)


def test_a_missing_program_is_named(place: Path, monkeypatch: pytest.MonkeyPatch):
    """If the program fusermount3 is missing, the error names it."""
    monkeypatch.setattr(system_mount.shutil, "which", lambda _: None)
    with pytest.raises(MountError, match=r"\(fusermount3 is missing\)"):
        system_mount._by_fusermount(place, b"x", [], read_only=False)


def test_a_mount_whose_device_is_not_received_is_unmounted(place: Path, monkeypatch: pytest.MonkeyPatch):
    """If the process cannot receive the device from fusermount3, the mountpoint is unmounted again."""
    receive = socket.recv_fds

    def receive_none(end: socket.socket, size: int, _most: int) -> object:
        data, descriptors, flags, address = receive(end, size, 1)
        for descriptor in descriptors:
            os.close(descriptor)
        return data, [], flags, address

    monkeypatch.setattr(system_mount.socket, "recv_fds", receive_none)
    with pytest.raises(MountError, match="fusermount3 sent no device"):
        system_mount._by_fusermount(place, SOURCE, [], read_only=False)
    assert str(place) not in mounts()


def open_files(process: int) -> list[str]:
    """Return the targets of a process's descriptors, without descriptors that are closed meanwhile."""
    targets = []
    for one in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):
            targets.append(os.readlink(one))
    return targets


def test_a_daemon_that_died_leaves_no_program_with_its_device(mounting: Mounting, place: Path):
    """Child processes do not inherit the device, because a child would keep the mount of a dead daemon alive."""
    device = mounting(place, b"x", allow_other=False, read_only=False)
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            assert "/dev/fuse" not in open_files(child.pid)
        finally:
            child.kill()
            unmount(place, device)
