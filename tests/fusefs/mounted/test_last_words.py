"""Data that a mount cannot store when it ends is reported by the unmount, the daemon's log and the exit status."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testing.processes import started
from tests.doubles.small_disk import fill, small_disk
from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import ROOT, Mount
from topicfs.fusefs.mounting import mountpoint
from topicfs.fusefs.mounting.mountpoint import LastWords, MountError, read_last_words, shortened, unmount

pytestmark = pytest.mark.fuse


def ended(mount: Mount) -> int:
    return mount.daemon.wait(30)


def test_lines_that_do_not_fit_on_the_disk_are_reported(unmounted: Mount) -> None:
    """If lines written with --acks 0 do not fit on the disk when the mount ends, `topicfs umount` reports them."""
    mount = unmounted.start(acks="0", linger_ms=60_000)
    assert "" == mount.bash("mkdir orders && echo hello >> orders/0/log").stderr
    mount.faults.write_text("pwrite .log ENOSPC\n")
    done = mount.umount()
    assert 1 == done.returncode
    assert f"topicfs: {mount.path}: unmounted, but some data was lost: " in done.stderr
    assert "orders/0/log: lines lost when the file was closed: No space left on device" in done.stderr
    assert 1 == done.stderr.count("\n")
    assert 1 == ended(mount)
    assert "orders/0/log: lines lost when the file was closed" in mount.log


def test_a_log_that_cannot_be_flushed_is_reported(unmounted: Mount) -> None:
    """If a log cannot be flushed when the mount ends, `topicfs umount` names the partition and the cause."""
    mount = unmounted.start()
    assert "" == mount.bash("mkdir orders && echo hello >> orders/0/log").stderr
    mount.faults.write_text("sync .log EIO\n")
    done = mount.umount()
    assert (1, 1) == (done.returncode, ended(mount))
    assert "orders-0: close: sync fails for this test" in done.stderr


def test_an_end_in_order_says_nothing(mount: Mount) -> None:
    """A mount that ends cleanly has exit status 0 and prints nothing."""
    mount.bash("mkdir orders && echo hello >> orders/0/log")
    done = mount.umount()
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    assert 0 == ended(mount)


def test_programs_that_use_a_mount_are_named(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """While programs use a mount, its unmount fails and names their processes; after they end, it succeeds."""
    (mount.path / "orders").mkdir()
    with subprocess.Popen(["sleep", "600"], cwd=mount.path / "orders") as sleeping:
        try:
            with pytest.raises(
                MountError, match=rf"is in use by sleep \({sleeping.pid}\); end these programs"
            ):
                unmount(mount.path)
            assert mount.works()
        finally:
            sleeping.kill()
    status = (mount.path / "@status").open()
    # The program closes its file while `unmount` waits for its next attempt. A busy machine uses up the time before.
    monkeypatch.setattr(time, "sleep", lambda _seconds: status.close())
    monkeypatch.setattr(mountpoint, "BUSY_SECONDS", 0.0)
    assert None is unmount(mount.path)


def test_a_later_mount_with_the_same_device_number_is_not_named(
    mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an unmount, another file system that gets the same device number does not count as the same mount."""
    device = mountpoint.mounts("fuse.topicfs")[str(mount.path)]
    see, wait = mountpoint.mounts, mountpoint._ended

    def mounts(fstype: str | None = None, process: str = "self") -> dict[str, str]:
        found = see(fstype, process)
        return found if str(mount.path) in see(fstype) else {**found, "/srv/later": device}

    monkeypatch.setattr(mountpoint, "mounts", mounts)
    monkeypatch.setattr(
        mountpoint,
        "_ended",
        lambda process, seconds: seconds != mountpoint.HELD_SECONDS and wait(process, seconds),
    )
    assert None is unmount(mount.path)
    assert 0 == ended(mount)


def test_a_mount_in_another_namespace_ends_and_is_named(unmounted: Mount) -> None:
    """If another namespace still has the mount, the daemon ends cleanly, and the output says where it is mounted."""
    mount = unmounted.start()
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    with started(["unshare", "--mount", *as_root, "--propagation", "private", "sleep", "600"]) as holder:
        name = Path(f"/proc/{holder.pid}/comm")
        wait_until(lambda: name.read_text() == "sleep\n", "the namespace holds the mount")
        mount.bash("mkdir orders && echo hello >> orders/0/log")
        done = mount.umount()
        assert (0, "") == (done.returncode, done.stdout)
        assert f"still mounted elsewhere and dead there: {mount.path} of process " in done.stderr
        assert 1 == done.stderr.count("\n")
        assert 0 == ended(mount)
        assert not (mount.data / ".lock").exists()
        holder.kill()


def test_unmounting_after_a_kill_says_that_nothing_was_closed(unmounted: Mount) -> None:
    """If the daemon was killed, the unmount prints that its data directories were not closed."""
    mount = unmounted.start()
    mount.kill()
    done = mount.umount()
    assert 0 == done.returncode
    assert f"topicfs: {mount.path}: its daemon had been killed; the next mount recovers" in done.stderr


def test_a_daemon_that_is_killed_while_it_ends_is_reported(unmounted: Mount) -> None:
    """If the daemon is killed while it ends, `topicfs umount` says that its data directories were not closed."""
    mount = unmounted.start()
    assert "" == mount.bash("mkdir orders && echo hello >> orders/0/log").stderr
    mount.faults.write_text("sync .log hangs\n")
    command = [sys.executable, "-c", "from topicfs.main import main; main()", "umount", str(mount.path)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as unmounting:
        wait_until(lambda: not mount.is_serving(), "the mount is unmounted")
        mount.daemon.kill()
        _out, errors = unmounting.communicate(timeout=60)
    assert 1 == unmounting.returncode
    assert "the daemon ended before it closed its data directories" in errors


def test_a_daemon_in_the_foreground_reports_losses_by_its_status(unmounted: Mount) -> None:
    """A daemon in the foreground reports losses by its exit status."""
    mount = unmounted.start(acks="0", linger_ms=60_000)
    mount.bash("mkdir orders && echo hello >> orders/0/log")
    mount.faults.write_text("pwrite .log ENOSPC\n")
    assert 1 == mount.stop()


@pytest.mark.root
def test_a_mount_of_a_full_disk_ends_in_order(tmp_path: Path) -> None:
    """A mount on a full disk ends cleanly: all records are stored, and the next start has nothing to recover."""
    with small_disk(tmp_path, kind="tmpfs", size_mb=8) as disk:
        mount = Mount(tmp_path, directories=str(disk / "data"))
        try:
            mount.start()
            script = (
                "mkdir orders; yes 'a line of many' | head -c 20M | cat >> orders/0/log; wc -l < orders/0/log"
            )
            count = mount.bash(script).stdout
            fill(disk)
            done = mount.umount()
            assert (0, "", 0) == (done.returncode, done.stderr, ended(mount))
            assert (disk / "data" / ".kafka_cleanshutdown").exists()
            mount.log_file.unlink()
            mount.start()
            assert count == mount.bash("wc -l < orders/0/log").stdout
        finally:
            mount.clean_up()


def test_newlines_in_last_words_are_escaped() -> None:
    """Newlines in the messages about lost data are escaped; if there are many messages, only the first are printed."""
    words = LastWords()
    words.end(["orders/0/log: lost", "a\n.\nb"])
    descriptor = os.open(words.path, os.O_RDONLY)
    try:
        assert ["orders/0/log: lost", r"a\n.\nb"] == read_last_words(descriptor)
    finally:
        os.close(descriptor)
    assert "1; 2; 3; 4; 5; and 2 more, which the daemon's log has" == shortened(list("1234567"))
