"""A mount that runs for long: reloads of its settings, files owned by another user, and its log as JSON."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import OWN_NAMESPACE, TOPICFS, is_mounted, shell

pytestmark = pytest.mark.fuse

TIMEOUT_SECONDS = 240
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def mnt(tmp_path: Path) -> Path:
    (tmp_path / "mnt").mkdir()
    return tmp_path / "mnt"


@pytest.fixture
def start(tmp_path: Path, mnt: Path) -> Iterator[Start]:
    """Return a function that starts a daemon in the foreground; end the daemons after the test."""
    daemons: list[subprocess.Popen[bytes]] = []

    def start(*options: str | Path) -> subprocess.Popen[bytes]:
        command = [
            TOPICFS,
            "mount",
            "--foreground",
            "--log-file",
            tmp_path / "log",
            *options,
            tmp_path / "data",
            mnt,
        ]
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        daemons.append(daemon)
        wait_until(
            lambda: daemon.poll() is not None or "mounted at" in log_of(tmp_path),
            "the mount is there",
            timeout_seconds=TIMEOUT_SECONDS,
        )
        return daemon

    yield start
    for daemon in daemons:
        daemon.terminate()
        daemon.wait(TIMEOUT_SECONDS)
    assert not is_mounted(mnt)


def log_of(tmp_path: Path) -> str:
    file = tmp_path / "log"
    return file.read_text() if file.exists() else ""


def test_sighup_reads_the_settings_again(start: Start, tmp_path: Path, mnt: Path):
    """SIGHUP reloads the settings, which immediately apply to topics; the daemon's log shows the changes."""
    config = tmp_path / "server.properties"
    config.write_text("log.retention.bytes=1000000\n")
    daemon = start("--config", config)
    (mnt / "orders").mkdir()
    with (mnt / "orders/0/log").open("a") as log:
        log.write("hello\n")
    config.write_text("log.retention.bytes=2000000\nnum.partitions=3\nnode.id=8\n")
    daemon.send_signal(signal.SIGHUP)

    def said() -> list[str]:
        lines = log_of(tmp_path).splitlines()
        return [line.partition(" INFO ")[2] for line in lines if "settings: " in line]

    wait_until(lambda: len(said()) == 3, "the log has three messages about settings")
    assert [
        "settings: log.retention.bytes: 2000000 in place of 1000000",
        "settings: node.id: 8 in place of 1, from the next start on",
        "settings: num.partitions: 3 in place of 1",
    ] == sorted(said())
    (mnt / "clicks").mkdir()
    assert {"0", "1", "2"} <= set(os.listdir(mnt / "clicks"))
    assert "retention.bytes=2000000" in (mnt / "orders/config").read_text().replace(" ", "")
    assert "hello\n" == (mnt / "orders/0/log").read_text()


def test_settings_that_are_wrong_leave_the_mount_as_it_was(start: Start, tmp_path: Path, mnt: Path):
    """If the reloaded settings are invalid, the mount does not change, and `@status` has the reason."""
    config = tmp_path / "server.properties"
    config.write_text("num.partitions=2\n")
    daemon = start("--config", config)
    config.write_text("num.partitions=many\n")
    daemon.send_signal(signal.SIGHUP)
    wait_until(lambda: "settings: not changed" in (mnt / "@status").read_text(), "the reason is shown")
    assert "num.partitions=many" in (mnt / "@status").read_text()
    (mnt / "orders").mkdir()
    assert {"0", "1"} <= set(os.listdir(mnt / "orders"))


def test_sighup_ends_a_mount_without_settings(start: Start, tmp_path: Path):
    """If there are no settings to reload, SIGHUP ends the mount cleanly."""
    daemon = start()
    daemon.send_signal(signal.SIGHUP)
    assert 0 == daemon.wait(TIMEOUT_SECONDS)
    assert (tmp_path / "data/.kafka_cleanshutdown").exists()


def test_a_terminal_that_closes_ends_its_mount(tmp_path: Path, mnt: Path):
    """If the terminal of a mount closes, the mount ends even if it has settings to reload.

    Without a terminal, Ctrl-C could no longer end the mount.
    """
    config = tmp_path / "server.properties"
    config.write_text("num.partitions=2\n")
    command = ["topicfs", "mount", "--foreground", "--config", config, tmp_path / "data", mnt]
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.pop("PYTHONUNBUFFERED", None)
        os.execv(TOPICFS, list(map(str, command)))
    try:
        wait_until(
            lambda: is_mounted(mnt) and (mnt / "@status").read_text(),
            "the mount is there",
            timeout_seconds=TIMEOUT_SECONDS,
        )
        os.kill(pid, signal.SIGHUP)  # A user's SIGHUP, sent while the terminal exists.
        printed = b""
        while b"settings: reloaded" not in printed:
            printed += os.read(terminal, 65536)
    finally:
        os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert 0 == os.waitstatus_to_exitcode(status)
    assert not is_mounted(mnt)


def as_user(uid: int, gid: int, script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "bash", "-c", script]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )


@pytest.mark.root
def test_files_have_the_owner_and_modes_of_the_options(start: Start, tmp_path: Path, mnt: Path):
    """--uid, --gid and --umask set owner and modes: with umask 002, owner and group may append, others may only read.

    Read-only files are not writable for any user.
    """
    start("--allow-other", "--uid", "4321", "--gid", "56", "--umask", "002")
    (mnt / "orders").mkdir()
    found = (mnt / "orders/0/log").stat()
    assert (4321, 56, "-rw-rw-r--") == (found.st_uid, found.st_gid, stat.filemode(found.st_mode))
    assert "drwxrwxr-x" == stat.filemode((mnt / "orders").stat().st_mode)
    assert "-r--r--r--" == stat.filemode((mnt / "orders/0/status").stat().st_mode)
    for uid, gid, line in ((4321, 1, "owner"), (1234, 56, "group")):
        done = as_user(uid, gid, f"echo {line} >> orders/0/log", mnt)
        assert (0, "") == (done.returncode, done.stderr)
    other = as_user(1234, 1, "cat orders/0/log; echo other >> orders/0/log", mnt)
    assert ("owner\ngroup\n", 1) == (other.stdout, other.returncode)
    assert "Permission denied" in other.stderr
    assert "Permission denied" in as_user(1234, 1, "mkdir new", mnt).stderr
    assert 0 == as_user(1234, 56, "mkdir new", mnt).returncode


@pytest.mark.parametrize("where", [["--foreground"], []], ids=["foreground", "background"])
def test_a_log_that_cannot_be_opened_is_one_line(tmp_path: Path, mnt: Path, where: list[str]):
    """If the log file cannot be opened, the mount fails with a one-line error, and creates nothing."""
    command = [TOPICFS, "mount", *where, "--log-file", tmp_path / "none/log", tmp_path / "data", mnt]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    expected = f"topicfs: {tmp_path / 'none/log'}: No such file or directory\n"
    assert (1, "", expected) == (done.returncode, done.stdout, done.stderr)
    assert not is_mounted(mnt)
    assert not (tmp_path / "data").exists()


def test_a_log_for_programs_is_json(start: Start, tmp_path: Path, mnt: Path):
    """With --log-format json, each line of the log is a JSON object that has the mountpoint."""
    start("--log-format", "json", "--debug")
    (mnt / "orders").mkdir()
    entries = [json.loads(line) for line in log_of(tmp_path).splitlines()]
    assert entries
    assert {str(mnt)} == {entry["mountpoint"] for entry in entries}
    assert any("mounted at" in entry["message"] for entry in entries)


JOURNAL = """
set -eu
mount -t tmpfs none /run
mount -t tmpfs none /var/log
mkdir -p /run/systemd/journal /run/log/journal
/usr/lib/systemd/systemd-journald > "$base/journald" 2>&1 &
journald=$!
for _ in $(seq 6000); do [ -S /run/systemd/journal/socket ] && break; sleep 0.01; done
eval "$mount"
"$topicfs" umount "$base/mnt"
kill -USR1 $journald
journalctl --sync || true
journalctl --directory /run/log/journal --output json TOPICFS_MOUNTPOINT="$base/mnt"
kill $journald
"""
"""A script that runs a journal in its own mount namespace; a mount without a terminal logs to this journal."""


@pytest.mark.root
@pytest.mark.parametrize(
    "mount",
    [
        '"$topicfs" mount --log-format journal "$base/data" "$base/mnt"',
        'mount.topicfs "$base/data" "$base/mnt" -o rw',
    ],
    ids=["asked for", "by fstab"],
)
def test_the_journal_has_what_the_daemon_says(tmp_path: Path, mnt: Path, mount: str):
    """In a real journal, the entries of a mount can be found by its mountpoint; fstab(5) mounts log to the journal."""
    path = f"{TOPICFS.parent}:{os.environ['PATH']}"
    done = shell(OWN_NAMESPACE, JOURNAL, tmp_path, base=tmp_path, topicfs=TOPICFS, mount=mount, PATH=path)
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    assert [f"{tmp_path / 'data'}: mounted at {mnt}", f"{tmp_path / 'data'}: closed"] == [
        entry["MESSAGE"]
        for entry in entries
        if "mounted at" in entry["MESSAGE"] or "closed" in entry["MESSAGE"]
    ], done.stderr
    assert {"6"} == {entry["PRIORITY"] for entry in entries}
    assert {"topicfs"} == {entry["SYSLOG_IDENTIFIER"] for entry in entries}
