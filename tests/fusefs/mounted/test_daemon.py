"""The process of a mount: background and foreground, refused mounts, and directories of brokers."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.forks import FORKS, MOUNT
from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import ROOT, Mount, is_mounted

pytestmark = pytest.mark.fuse

VECTORS = ROOT / "tests" / "vectors" / "kafka" / "log-dirs"


def serve(mount: Mount, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command until it returns: a background mount returns when it is mounted or has failed."""
    asked = {
        "directories": str(mount.data),
        "mountpoint": str(mount.path),
        "log_file": str(mount.log_file),
        **options,
    }
    done = FORKS.run(MOUNT, json.dumps(asked))
    return subprocess.CompletedProcess("mount", done.status, done.output.decode(), done.errors.decode())


@pytest.fixture
def background(unmounted: Mount) -> Iterator[Mount]:
    """A mount that is served in the background."""
    result = serve(unmounted)
    assert (0, "", "") == (result.returncode, result.stdout, result.stderr)
    pid = int(unmounted.shown("pid"))
    try:
        yield unmounted
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the daemon is gone")


def test_the_command_returns_once_the_mount_stands(background: Mount):
    """The command returns when the mount is ready; its daemon has no terminal and has a session of its own."""
    pid = int(background.shown("pid"))
    background.bash("mkdir a; echo x >> a/0/log")

    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    assert "x\n" == (background.path / "a/0/log").read_text()
    assert "0" == fields[4]  # The process has no controlling terminal.
    assert os.getsid(pid) != os.getsid(0)
    assert {"/dev/null"} == {str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in range(3)}


def test_unmount_waits_until_everything_is_flushed(background: Mount):
    """`unmount` returns after the daemon has flushed all data, so that the next daemon can start immediately."""
    background.bash("mkdir a; seq 1000 >> a/0/log")

    result = background.umount()

    assert (0, "") == (result.returncode, result.stderr)
    assert (background.data / ".kafka_cleanshutdown").exists()
    assert not is_mounted(background.path)


def test_asking_again_does_not_cut_the_end_short(mount: Mount):
    """Further signals, of any kind, do not interrupt the daemon while it shuts down cleanly."""
    mount.bash("mkdir a; seq 1000 >> a/0/log")
    os.kill(mount.pid, signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) * 30:
        with suppress(ProcessLookupError):
            os.kill(mount.pid, number)
    assert 0 == mount.stop()
    assert (mount.data / ".kafka_cleanshutdown").exists()


def test_unmount_of_what_is_not_mounted(unmounted: Mount):
    """Unmounting a directory that is not mounted fails, and the error says so."""
    result = unmounted.umount()

    assert "no topicfs is mounted there" in result.stderr


def test_a_busy_mount_is_left_alone(mount: Mount):
    """A busy mount is not unmounted, and the error has the reason of the system."""
    with (mount.path / "@status").open():
        result = mount.umount()

    assert result.returncode != 0
    assert "busy" in result.stderr
    assert mount.status


def test_a_second_mount_prints_the_pid_of_the_owner(background: Mount, tmp_path: Path):
    """A second mount of the data directory fails, and the error has the process ID of the owner."""
    other = tmp_path / "other"
    other.mkdir()

    result = serve(background, mountpoint=str(other))

    assert 1 == result.returncode
    owner = f"in use by process {background.shown('pid')}, the mount at {background.path}; "
    assert owner in result.stderr
    assert result.stderr.startswith("topicfs: ")
    assert 1 == len(result.stderr.splitlines())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mountpoint": "BASE/missing"}, "no such directory"),
        ({"mountpoint": "BASE/file"}, "not a directory"),
        ({"mountpoint": "BASE/data"}, "must be outside of the data directory"),
        ({"mountpoint": "BASE/data/inside"}, "must be outside of the data directory"),
        ({"directories": "BASE/mnt/data"}, "must be outside of the data directory"),
        ({"directories": "BASE/foreign"}, "foreign"),
        ({"partitioner": "fancy"}, "partitioner=fancy"),
        ({"directories": "BASE/no/such/parent"}, "no"),
        (
            {"directories": "BASE/new", "mountpoint": "BASE/full"},
            "is not empty, and the mount would hide its files",
        ),
        (
            {"directories": "BASE/new", "mountpoint": "BASE/swapped"},
            "put the data directory first: topicfs mount ",
        ),
        ({"directories": "BASE/full"}, "it holds letter"),
        ({"directories": "BASE/full", "read_only": True}, "it holds letter"),
        ({"directories": "BASE/new,BASE/full", "replicated": True}, "it holds letter"),
        (
            {"directories": "BASE/new,BASE/two", "replicated": True, "engine": {"replication_factor": 3}},
            "--replicas 3 (default.replication.factor) needs 3 data directories",
        ),
    ],
)
def test_what_prevents_a_mount_is_said_in_one_line(unmounted: Mount, change: dict[str, Any], reason: str):
    """A mount that is refused prints one line with the reason, ends with exit status 1, and creates nothing."""
    base = unmounted.base
    for name in ("full/letter", "swapped/meta.properties"):
        (base / name).parent.mkdir()
        (base / name).write_text("")
    (base / "file").write_text("")
    (base / "data" / "inside").mkdir(parents=True)
    (base / "foreign" / "not-a-partition").mkdir(parents=True)

    asked = json.loads(json.dumps(change).replace("BASE", str(base)))
    result = serve(unmounted, **asked)

    assert 1 == result.returncode
    assert not (base / "new").exists()
    assert result.stderr.startswith("topicfs: ")
    assert reason in result.stderr
    assert 1 == len(result.stderr.splitlines())
    assert not is_mounted(unmounted.path)


def test_files_are_hidden_by_a_mount_that_may(unmounted: Mount):
    """With `nonempty` a mount hides the files in its mountpoint until the mount ends."""
    letter = unmounted.path / "letter"
    letter.write_text("mine")
    unmounted.start(nonempty=True)
    assert not letter.exists()
    unmounted.stop()
    assert "mine" == letter.read_text()


def test_mounting_twice_at_one_place_is_refused(mount: Mount):
    """A second mount at the same mountpoint is refused, because it would hide the first mount."""
    result = serve(mount)

    assert 1 == result.returncode
    assert "mounted there already" in result.stderr


def fingerprint(directory: Path) -> dict[str, tuple[str, int, int]]:
    """Return the content, modification time and mode of each file in a directory."""
    return {
        str(path.relative_to(directory)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mtime_ns,
            path.stat().st_mode,
        )
        for path in sorted(directory.rglob("*"))
    }


@pytest.fixture
def brokers(unmounted: Mount, monkeypatch: pytest.MonkeyPatch) -> Mount:
    """A mount, not mounted yet, of a copy of a broker's log.dirs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(unmounted.base / "cache"))
    shutil.copytree(VECTORS, unmounted.data)
    return unmounted


def test_a_brokers_directory_is_shown_and_not_changed(brokers: Mount):
    """A read-only mount changes no byte of a broker's directory, and stores its view files in the user's cache."""
    before = fingerprint(brokers.data)
    brokers.start(read_only=True)
    assert "mode foreign" in brokers.status

    shown = brokers.bash(
        "cat g-none/0/log.json | wc -l; ls g-none/0; cat g-none/0/status; tar -cf /dev/null g-none/0/log"
    )
    brokers.stop()

    assert "" == shown.stderr
    assert int(shown.stdout.split()[0]) > 0
    assert fingerprint(brokers.data) == before


def test_a_brokers_partition_is_measured_behind(brokers: Mount):
    """The log size of a broker's partition is measured in the background; then stat(2) gives the exact size."""
    brokers.start(read_only=True)
    log = brokers.path / "g-none/0/log"

    wait_until(
        lambda: "measured yes" in (log.parent / "status").read_text() or log.stat() is None,
        "the partition is measured",
    )

    assert log.stat().st_size == len(log.read_bytes())


@pytest.fixture
def open_base() -> Iterator[Path]:
    """A directory that other users may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)
        yield Path(base)


def test_allow_other_lets_other_users_in(open_base: Path):
    """With allow_other, other users can read, but neither append nor consume records of a group."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    mount = Mount(open_base)
    try:
        mount.start(allow_other=True)
        mount.bash("mkdir a; echo x >> a/0/log")
        reading = mount.bash("setpriv --reuid 65534 --regid 65534 --clear-groups cat a/0/log")
        writing = mount.bash("setpriv --reuid 65534 --regid 65534 --clear-groups bash -c 'echo y >> a/0/log'")
        mount.bash("mkdir @groups/g @queues/q")
        reads = "cat @groups/g/a/drain @groups/g/a/log.json @groups/g/a/next-1; head -n 1 @queues/q/a/take"
        consuming = mount.bash(f"setpriv --reuid 65534 --regid 65534 --clear-groups bash -c '{reads}'")
        left = mount.bash("cat @groups/g/a/0/position; cat @groups/g/a/drain; cat @groups/g/a/0/position")
    finally:
        mount.clean_up()

    assert "x\n" == reading.stdout
    assert "Permission denied" in writing.stderr
    assert ("", 4) == (consuming.stdout, consuming.stderr.count("Permission denied"))
    assert "-\nx\n1\n" == left.stdout


def test_acks_0_answers_at_once_and_loses_nothing_at_the_end(unmounted: Mount):
    """With acks=0, a write returns before its lines are appended. Lines that wait are appended when the mount ends."""
    mount = unmounted.start(acks="0", linger_ms=50)
    mount.bash("mkdir a; for i in $(seq 300); do echo $i >> a/0/log; done")
    mount.stop()
    mount.start()

    assert (mount.path / "a/0/log").read_text() == "".join(f"{i}\n" for i in range(1, 301))


def test_the_partitioner_may_be_the_users_own(unmounted: Mount):
    """The partitioner can be a user's function `module:function` on Python's path."""
    (unmounted.base / "mine.py").write_text(
        "def last(topic, key, value, partitions):\n    return partitions - 1\n"
    )
    mount = unmounted.start(python_path=unmounted.base, partitioner="mine:last")
    mount.bash("mkdir a; mkdir a/2; echo x >> a/log")

    assert "x\n" == (mount.path / "a/2/log").read_text()
