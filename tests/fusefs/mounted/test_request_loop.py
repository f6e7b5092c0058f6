"""The request loop with a real kernel: large requests, many requests, each way to end, and an ordinary user."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from tests.fusefs.mounted.conftest import OWN_NAMESPACE, TOPICFS, Mount, is_mounted, shell
from topicfs.fusefs.mounting.mountpoint import unmount

pytestmark = pytest.mark.fuse

GETDENTS64 = {"x86_64": 217, "aarch64": 61}
MAX_TRANSFER_BYTES = 2**20


@pytest.fixture
def orders(unmounted: Mount) -> Path:
    """The directory of a partition in a mount of a data directory."""
    unmounted.start().bash("mkdir orders")
    return unmounted.path / "orders/0"


def test_the_largest_requests_are_served(orders: Path):
    """A write of 1 MiB, an extended attribute of 64 KiB and a listing in one piece work."""
    lines = (b"x" * 1023 + b"\n") * 1024
    descriptor = os.open(orders / "log", os.O_WRONLY | os.O_APPEND)
    assert MAX_TRANSFER_BYTES == os.write(descriptor, lines)
    os.close(descriptor)
    assert lines == (orders / "log").read_bytes()
    with pytest.raises(OSError, match="not supported"):
        os.setxattr(orders / "log", "user.x", b"x" * 2**16)
    for number in range(200):
        (orders.parents[1] / f"{'topic' * 40}-{number}").mkdir()
    assert len(os.listdir(orders.parents[1])) == len(listed_at_once(orders.parents[1]))


def listed_at_once(directory: Path) -> list[str]:
    """Return the names that getdents64(2) returns with the largest buffer that the kernel passes on."""
    libc, buffer = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(MAX_TRANSFER_BYTES)
    descriptor, names = os.open(directory, os.O_RDONLY), []
    while size := libc.syscall(GETDENTS64[os.uname().machine], descriptor, buffer, MAX_TRANSFER_BYTES):
        assert size > 0
        at = 0
        while at < size:
            length = int.from_bytes(buffer.raw[at + 16 : at + 18], sys.byteorder)
            names.append(buffer.raw[at + 19 : at + length].partition(b"\0")[0].decode())
            at += length
    os.close(descriptor)
    return [name for name in names if name not in (".", "..")]


def test_many_requests_that_are_not_common_are_answered(orders: Path):
    """All requests are answered, even if more uncommon requests wait than the socket to libfuse holds."""

    def ask(number: int) -> int:
        if number % 8 == 0:
            descriptor = os.open(orders / "log", os.O_WRONLY | os.O_APPEND)
            os.write(descriptor, b"line\n")
            os.close(descriptor)
        return len(os.listdir(orders))

    ask(0)  # A partition that has no records has fewer names.
    with ThreadPoolExecutor(200) as threads:
        names = set(threads.map(ask, range(1, 1600)))
    assert 1 == len(names)
    assert b"line\n" * 200 == (orders / "log").read_bytes()


def test_a_daemon_that_was_suspended_continues(unmounted: Mount, orders: Path):
    """After SIGSTOP and SIGCONT a daemon answers the requests that arrived in between."""
    os.kill(unmounted.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(4) as threads:
        done = [threads.submit(os.listdir, orders), threads.submit((orders / "start").read_text)]
        done.append(threads.submit((orders.parents[1] / "late").mkdir))
        os.kill(unmounted.pid, signal.SIGCONT)
        assert "log" in done[0].result(TIMEOUT_SECONDS)
        assert "0\n" == done[1].result(TIMEOUT_SECONDS)
        done[2].result(TIMEOUT_SECONDS)


@pytest.mark.parametrize("waits", [True, False])
def test_a_daemon_that_was_killed_leaves_a_mount_that_can_be_unmounted(unmounted: Mount, waits: bool):
    """After the daemon was killed, waiting reads fail immediately, and an unmount reports that the daemon is gone."""
    unmounted.start().bash("mkdir orders")
    follow = unmounted.path / "orders/0/follow"
    with subprocess.Popen(["cat", str(follow)] if waits else ["true"], stderr=subprocess.PIPE) as reader:
        try:
            if waits:
                wait_until(lambda: "waiting_reads 1" in unmounted.status, "the read waits")
            unmounted.kill()
            assert (1 if waits else 0) == reader.wait(TIMEOUT_SECONDS)
        finally:
            reader.kill()
    assert is_mounted(unmounted.path)
    with pytest.raises(OSError, match="not connected"):
        os.statvfs(unmounted.path)
    assert "its daemon had been killed" in str(unmount(unmounted.path))
    assert not is_mounted(unmounted.path)


@pytest.mark.root
def test_an_aborted_connection_ends_the_daemon(unmounted: Mount):
    """If the kernel aborts the connection, the daemon ends cleanly, and a waiting read fails."""
    unmounted.start().bash("mkdir orders; echo line >> orders/0/log")
    with subprocess.Popen(
        ["cat", str(unmounted.path / "orders/0/follow")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as reader:
        try:
            wait_until(lambda: "waiting_reads 1" in unmounted.status, "the read waits")
            subprocess.run(["umount", "--force", str(unmounted.path)], capture_output=True, check=False)
            assert 0 == unmounted.daemon.wait(TIMEOUT_SECONDS)
            assert 1 == reader.wait(TIMEOUT_SECONDS)
        finally:
            reader.kill()
    assert ": closed" in unmounted.log


def test_nothing_is_spliced_from_the_pair(unmounted: Mount, tmp_path: Path):
    """libfuse does not call splice(2) for an uncommon request, as a trace of the daemon's system calls shows."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("needs strace")
    unmounted.start()
    noted = tmp_path / "calls"
    with subprocess.Popen(
        [strace, "-f", "-o", str(noted), "-p", str(unmounted.pid)], stderr=subprocess.PIPE
    ) as tracing:
        assert b"attached" in tracing.stderr.readline()
        (unmounted.path / "orders").mkdir()
        tracing.send_signal(signal.SIGINT)
        tracing.wait(TIMEOUT_SECONDS)
    calls = noted.read_text()
    assert "recvfrom(" in calls
    # libfuse enlarges a pipe before it calls splice(2).
    assert [] == [call for call in ("splice(", "F_SETPIPE_SZ") if call in calls]


AS_ORDINARY_USER = r"""
set -eu
mknod -m 666 "$device" c 10 229
mount --bind "$device" /dev/fuse
exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps +dac_read_search --ambient-caps +dac_read_search bash -euc '
    cd "$base"
    "$topicfs" mount --log-file log data mnt
    mkdir mnt/orders
    seq -f %1023.0f 1024 > large
    dd if=large of=mnt/orders/0/log bs=1M oflag=append conv=notrunc status=none
    cmp large mnt/orders/0/log
    ls -l mnt/orders/0 > listed
    "$topicfs" umount mnt
    "$topicfs" mount --read-only --log-file log2 data mnt
    cmp large mnt/orders/0/log
    if (echo x >> mnt/orders/0/log) 2> refused; then exit 3; fi
    grep -q "Read-only file system" refused
    "$topicfs" umount mnt
    if "$topicfs" mount --allow-other data mnt 2> refused; then exit 4; fi
    grep -q "user_allow_other" refused
    test -z "$(ls -A mnt)"
'
"""


@pytest.mark.root
def test_an_ordinary_user_mounts_by_fusermount3(request: pytest.FixtureRequest):
    """An ordinary user mounts with fusermount3 and writes 1 MiB; if fusermount3 refuses, its error is reported."""
    base = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    request.addfinalizer(lambda: shutil.rmtree(base, ignore_errors=True))
    (base / "mnt").mkdir()
    for path in (base, base / "mnt"):
        os.chown(path, 65534, 65534)
    names = {"base": base, "topicfs": TOPICFS, "device": base / "fuse", "HOME": base}
    done = shell(OWN_NAMESPACE, AS_ORDINARY_USER, base, **names)
    assert (0, "") == (done.returncode, done.stderr)
