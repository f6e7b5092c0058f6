"""Mounts that mount(8), fstab(5) or a service manager starts."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fusefs.mounted.conftest import OWN_NAMESPACE, ROOT, TOPICFS, is_mounted, shell

pytestmark = pytest.mark.fuse

HELPER = Path(sys.executable).with_name("mount.topicfs")
UNIT = ROOT / "packaging" / "systemd" / "topicfs@.service"
TIMEOUT_SECONDS = 240


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    """The socket of a service manager, in a folder with a short name."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening,
    ):
        listening.bind(str(Path(folder) / "notify"))
        listening.settimeout(TIMEOUT_SECONDS)
        yield listening


@pytest.mark.parametrize("end", ["signal", "umount"])
def test_a_service_manager_gets_the_states_of_the_mount(tmp_path: Path, manager: socket.socket, end: str):
    """The daemon reports its states to the service manager: ready, alive, and ending for whatever reason."""
    mountpoint = tmp_path / "mnt"
    mountpoint.mkdir()
    environment = {**os.environ, "NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "100000"}
    command = [str(TOPICFS), "mount", "--foreground", str(tmp_path / "data"), str(mountpoint)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as daemon:
        try:
            while (ready := manager.recv(4096).decode()) == "WATCHDOG=1":
                pass
            assert f"READY=1\nSTATUS={tmp_path / 'data'} at {mountpoint}" == ready
            assert is_mounted(mountpoint)
            assert "pid " in (mountpoint / "@status").read_text()
            while manager.recv(4096) != b"WATCHDOG=1":
                pass
            daemon.send_signal(
                signal.SIGHUP
            )  # `systemctl reload` sends SIGHUP too. A mount without settings continues.
            while not (word := manager.recv(4096).decode()).startswith("RELOADING=1\n"):
                assert "WATCHDOG=1" == word
            while (word := manager.recv(4096).decode()) != "READY=1":
                assert "WATCHDOG=1" == word
            if end == "signal":
                daemon.send_signal(signal.SIGTERM)
            else:
                subprocess.run(["fusermount3", "-u", str(mountpoint)], check=True)
            while not (word := manager.recv(4096).decode()).startswith("STOPPING=1\n"):
                assert "WATCHDOG=1" == word
            assert 0 == daemon.wait(TIMEOUT_SECONDS)
        finally:
            daemon.kill()
    assert not is_mounted(mountpoint)


FSTAB = """
set -eu
mkdir "$base/sbin" "$base/mnt" "$base/elsewhere"
ln -s "$helper" "$base/sbin/mount.topicfs"
mount --bind "$base/sbin" /usr/sbin
echo "$base/data $base/mnt topicfs noauto,allow-delete,acks=all,x-systemd.automount 0 0" > "$base/fstab"
mount --fstab "$base/fstab" "$base/mnt"
mkdir "$base/mnt/orders"
echo hello >> "$base/mnt/orders/0/log"
cat "$base/mnt/orders/0/log"
grep acks "$base/mnt/@status"
"$topicfs" umount "$base/mnt"
mount -t topicfs "$base/data" "$base/mnt" -o ro
cat "$base/mnt/orders/0/0"
echo
(echo more >> "$base/mnt/orders/0/log") 2> /dev/null || echo read-only
"$topicfs" umount "$base/mnt"
mount -t topicfs "$base/data" "$base/mnt" -o nosuch || echo "status $?"
mount -t topicfs "$base/data" "$base/nowhere/else" || echo "status $?"
"""
"""A script with its own mount namespace, so that no program outside the script finds the helper."""


@pytest.mark.root
def test_mount_and_fstab_know_the_type(tmp_path: Path):
    """mount(8) and fstab(5) accept the type topicfs and its options, and have mount's exit statuses."""
    done = shell(OWN_NAMESPACE, FSTAB, tmp_path, base=tmp_path, helper=HELPER, topicfs=TOPICFS)
    expected = ["hello", "acks all", "hello", "read-only", "status 1", "status 32"]
    assert expected == done.stdout.splitlines(), done.stderr
    assert "mount.topicfs: nosuch: not an option of a mount" in done.stderr
    assert 0 == done.returncode, done.stderr


def test_the_unit_is_what_systemd_understands(tmp_path: Path):
    """systemd accepts the unit file, with the path of the installed program in it."""
    unit = tmp_path / UNIT.name.replace("@", "@orders")
    unit.write_text(re.sub(r"(?m)^ExecStart=topicfs ", f"ExecStart={TOPICFS} ", UNIT.read_text()))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    about_it = [line for line in done.stderr.splitlines() if unit.name in line]
    assert ([], 0) == (about_it, done.returncode), done.stderr
