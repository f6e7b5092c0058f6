"""System calls that fail on a real mount; tests without a kernel check the other errors of fusefs/SEMANTICS.md."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fusefs.mounted.conftest import Mount

pytestmark = pytest.mark.fuse

APPEND = os.O_WRONLY | os.O_APPEND


@contextmanager
def fails(number: int) -> Iterator[None]:
    """Expect that a system call in the block fails with exactly this errno."""
    with pytest.raises(OSError) as caught:
        yield
    assert errno.errorcode[caught.value.errno] == errno.errorcode[number]


def append(path: Path, data: bytes, flags: int = APPEND) -> None:
    """Open, write and close a file with system calls, and raise the error of any of these calls."""
    descriptor = os.open(path, flags)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def reason(mount: Mount, path: str) -> str:
    """Return the newest line of `@status` about a path."""
    return next(line for line in reversed(mount.status.splitlines()) if f" error {path}: " in line)


def test_eexist_for_a_name_that_collides(shared_mount: Mount):
    """mkdir(2) gives EEXIST if a topic exists that has the same name, or the same names of metrics (`a.b`, `a_b`)."""
    (shared_mount.path / "col.lides").mkdir()

    for name in ("col_lides", "col.lides"):
        with fails(errno.EEXIST):
            (shared_mount.path / name).mkdir()


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda d: os.open(d / "log", os.O_WRONLY), id="write without O_APPEND or O_TRUNC"),
        pytest.param(lambda d: os.open(d / "log", os.O_RDWR), id="O_RDWR alike"),
        pytest.param(
            lambda d: os.open(d / "log.json", os.O_WRONLY | os.O_TRUNC), id="O_TRUNC of another file"
        ),
        pytest.param(lambda d: os.open(d / "log.batch", os.O_WRONLY | os.O_TRUNC), id="O_TRUNC of batches"),
        pytest.param(lambda d: os.open(d / "0", APPEND), id="write of a selector"),
        pytest.param(lambda d: os.open(d / "0.batch", APPEND), id="write of a record's batch"),
        pytest.param(lambda d: os.open(d / "7", APPEND | os.O_CREAT), id="creation of a selector"),
        pytest.param(lambda d: os.open(d / "status", APPEND), id="write of status"),
        pytest.param(lambda d: os.open(d / "follow", APPEND), id="write of follow"),
        pytest.param(lambda d: os.truncate(d / "log", 1), id="truncation to another size"),
        pytest.param(lambda d: os.truncate(d / "0", 0), id="truncation of a selector"),
        pytest.param(lambda d: os.unlink(d / "log"), id="unlink"),
        pytest.param(lambda d: os.rename(d / "log", d / "log.old"), id="rename"),
        pytest.param(lambda d: os.rename(d.parent, d.parent.with_name("other")), id="rename of a topic"),
        pytest.param(lambda d: os.link(d / "log", d / "other"), id="link"),
        pytest.param(lambda d: os.symlink("log", d / "other"), id="symlink"),
        pytest.param(lambda d: os.mkfifo(d / "other"), id="mknod"),
        pytest.param(lambda d: os.chmod(d / "log", 0o600), id="chmod"),
        pytest.param(lambda d: os.chown(d / "log", 1, 1), id="chown"),
        pytest.param(lambda d: os.mkdir(d / "other"), id="mkdir in a partition"),
        pytest.param(os.rmdir, id="rmdir of a partition"),
    ],
)
def test_eperm(topic: Path, call: Callable[[Path], object]):
    """Calls that would rewrite, rename or remove a file give EPERM even for root, and nothing changes."""
    append(topic / "0" / "log", b"x\n")
    names = os.listdir(topic / "0")
    with fails(errno.EPERM):
        call(topic / "0")

    assert b"x\n" == (topic / "0" / "log").read_bytes()
    assert names == os.listdir(topic / "0")


def test_emsgsize_for_a_record_beyond_the_limit(topic: Path):
    """If a record is larger than max.message.bytes, its write fails, and no record of the write is stored.

    A newline at the end of the record makes no difference.
    """
    append(topic / "config", b"max.message.bytes=1000\n")
    with fails(errno.EMSGSIZE):
        append(topic / "0" / "log", b"good\n" + b"x" * 1000 + b"\n")
    descriptor = os.open(topic / "0" / "log", APPEND)
    with fails(errno.EMSGSIZE):
        os.write(descriptor, b"x" * 1001)
    os.write(descriptor, b"rest of that line\nnext\n")
    os.close(descriptor)

    assert b"next\n" == (topic / "0" / "log").read_bytes()


def test_estale_for_what_retention_removed(unmounted: Mount):
    """Reading deleted records through an open file gives ESTALE. The other records keep their positions."""
    mount = unmounted.start(allow_delete=True)
    mount.bash("mkdir a; seq 10000 39999 >> a/0/log")
    reader = os.open(mount.path / "a/0/log", os.O_RDONLY)
    # Over a cluster, the position of a line is known only after the lines before it were read.
    assert b"39999\n" == os.pread(reader, 6, 6 * 29_999)
    mount.bash("echo 10000 >> a/0/start")

    with fails(errno.ESTALE):
        os.pread(reader, 6, 0)
    assert b"30000\n" == os.pread(reader, 6, 6 * 20_000)
    os.close(reader)
    assert b"20000\n" == (mount.path / "a/0/log").read_bytes()[:6]


def test_reading_on_works_though_all_that_was_read_is_removed(unmounted: Mount):
    """A `tail -f` that has read all of a small log continues after these records were deleted.

    The kernel reads whole pages, so the read of new records also asks for deleted bytes.
    """
    mount = unmounted.start(allow_delete=True)
    mount.bash("mkdir a; seq 100 >> a/0/log")
    with (mount.path / "a/0/log").open("rb", buffering=0) as reader:
        seen = reader.read(1000)
        mount.bash("echo 100 >> a/0/start; echo more >> a/0/log")
        assert seen + reader.read(1000) == b"".join(b"%d\n" % n for n in range(1, 101)) + b"more\n"


def test_eio_for_a_damaged_batch_alone(unmounted: Mount):
    """Reading a damaged batch gives EIO, and the reason has file and position; other records can be read."""
    mount = unmounted.start()
    mount.bash("mkdir a; for i in 0 1 2; do echo value-$i >> a/0/log; done")
    mount.stop()
    segment = mount.data / "a-0" / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    content[content.index(b"value-1")] ^= 1
    segment.write_bytes(content)
    mount.start()

    with fails(errno.EIO):
        (mount.path / "a/0/1").read_bytes()
    assert [b"value-0", b"value-2"] == [(mount.path / "a/0" / name).read_bytes() for name in ("0", "2")]
    assert "00000000000000000000.log" in reason(mount, "a/0/1")
    assert f"position {len(content) // 3}" in reason(mount, "a/0/1")
    shown = mount.bash("cat a/0/log; exec 2>&1; cat a/0/log.batch | wc -c")
    assert "value-0" == shown.stdout.splitlines()[0]
    assert "cat: a/0/log: Input/output error" in shown.stderr
    assert shown.stdout.splitlines()[1:] == [
        "cat: a/0/log.batch: Input/output error",
        str(len(content) // 3),
    ]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT], ids=["ENOSPC", "EDQUOT"])
def test_a_full_disk_leaves_no_partial_batch(mount: Mount, number: int):
    """A full disk leaves no partial batch, and the same write succeeds once there is space."""
    mount.bash("mkdir a; echo before >> a/0/log")
    mount.faults.write_text(f"pwrite .log {errno.errorcode[number]}\n")
    descriptor = os.open(mount.path / "a/0/log", APPEND)
    with fails(number):
        os.write(descriptor, b"one\ntwo\n")
    mount.faults.unlink()
    os.write(descriptor, b"one\ntwo\n")
    os.close(descriptor)

    assert b"before\none\ntwo\n" == (mount.path / "a/0/log").read_bytes()


def test_a_failed_fsync_stops_the_partition(mount: Mount):
    """After fsync(2) failed with EIO, writes fail until the partition is reopened: the kernel may have lost pages."""
    mount.bash("mkdir a; echo before >> a/0/log")
    descriptor = os.open(mount.path / "a/0/log", APPEND)
    os.write(descriptor, b"one\n")
    mount.faults.write_text("sync .log EIO\n")
    with fails(errno.EIO):
        os.fsync(descriptor)
    mount.faults.unlink()
    with fails(errno.EIO):
        os.write(descriptor, b"two\n")
    os.close(descriptor)

    assert "state offline: " in (mount.path / "a/0/status").read_text()
    assert reason(mount, "a/0/log")
    mount.stop()
    mount.start()
    mount.bash("echo three >> a/0/log")
    assert b"before\none\nthree\n" == (mount.path / "a/0/log").read_bytes()


def test_close_tells_the_error_of_a_begun_line(shared_mount: Mount, topic: Path):
    """close(2) fails for a bad line without a newline; `@status` has the error too, because shells ignore it."""
    with fails(errno.EINVAL):
        append(topic / "0" / "log.json", b"no json")
    shared_mount.bash(f"printf 'nor this' >> {topic.name}/0/log.json")

    assert reason(shared_mount, f"{topic.name}/0/log.json")
