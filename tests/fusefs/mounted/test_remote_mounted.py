"""A real mount over a remote engine that does not answer: most requests work, and waiting requests can be interrupted.

The engine answers only when the test allows it. Until then each request that waits for the engine hangs.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from tests.fusefs.mounted.conftest import Mount, is_mounted

pytestmark = pytest.mark.fuse


@pytest.fixture
def stall(tmp_path: Path) -> Path:
    """The control file: while it exists, the engine does not answer."""
    return tmp_path / "stall"


@pytest.fixture
def remote(unmounted: Mount, stall: Path) -> Iterator[Mount]:
    """A mount whose engine answers until the test creates the file `stall`."""
    yield unmounted.start(remote=str(stall))
    stall.unlink(missing_ok=True)


@pytest.fixture
def program(remote: Mount) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """A function that starts a program in the mount's directory and pipes its output; programs end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> subprocess.Popen[bytes]:
        started.append(
            subprocess.Popen(command, cwd=remote.path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        )
        return started[-1]

    yield start
    for one in started:
        one.terminate()
        one.communicate(timeout=TIMEOUT_SECONDS)


def waits(mount: Mount, count: int = 1) -> None:
    """Wait until `count` requests wait for the engine."""
    wait_until(lambda: f"waiting_reads {count} of" in mount.status, "a request waits")


def test_an_engine_that_answers_is_shown_like_any_other(remote: Mount):
    """While the engine answers, names, records, links, settings and appends work as over any engine."""
    result = remote.bash("""
        ls; ls orders/0; cat orders/0/log; cat "orders/0/$(readlink orders/0/latest)"; echo
        echo d >> orders/0/log; cat orders/0/3; echo; tail -n 1 orders/0/log; tail -c 2 orders/0/log
        grep -c . orders/0/log; cp orders/0/log ../copy; cat ../copy; grep ^state orders/0/status
        mkdir events; ls events; rmdir events; df . > /dev/null
    """)
    expected = """@groups @status orders earliest latest log log.batch log.json log.kv start state status a b c c d d d 4 a b c d state
        online 0 config status"""
    assert (expected.split(), "") == (result.stdout.split(), result.stderr)


def test_tar_makes_no_archive_of_empty_files_without_an_error(remote: Mount):
    """tar fails for an unread log, whose size is unknown, and `@status` has a remedy; after a read, tar succeeds."""
    for path in ("orders/0/log", "orders/log"):
        archived = remote.bash(f"tar cf ../archive.tar {path}")
        assert archived.returncode != 0, path
        assert "Input/output error" in archived.stderr
        assert "topicfs mirror" in remote.status
    read = remote.bash("cat orders/0/log; tar cf ../archive.tar orders/0/log && tar xOf ../archive.tar")
    assert ("a\nb\nc\n" * 2, "", 0) == (read.stdout, read.stderr, read.returncode)


def test_requests_that_need_no_answer_work_without_the_engine(remote: Mount, stall: Path, program):
    """Listings, stat(2), `@status` and open(2) work while more programs wait for the engine than there are threads."""
    stall.touch()
    programs = [program("cat", f"orders/0/@{offset}") for offset in range(80)]
    waits(remote, 80)
    result = remote.bash("""
        ls; ls -l --time-style=+ orders | wc -l; ls orders/0; stat -c %n orders/0/*
        cat orders/0/start; : < orders/0/log; grep ^partitions @status; df . > /dev/null
    """)
    assert "" == result.stderr
    names = ["earliest", "latest", "log", "log.batch", "log.json", "log.kv", "start", "state", "status"]
    listed = [
        "@groups",
        "@status",
        "orders",
        "4",
        *names,
        *(f"orders/0/{name}" for name in names),
        "0",
        "partitions",
        "1",
    ]
    assert listed == result.stdout.split()
    for waiting in programs:
        waiting.send_signal(signal.SIGINT)
    for waiting in programs:
        assert b"" == waiting.communicate(timeout=TIMEOUT_SECONDS)[0]
    assert "waiting_reads 0 of" in remote.status


def test_a_program_that_waits_can_be_interrupted(remote: Mount, stall: Path, program):
    """A program that waits for the engine can be interrupted, whatever system call it waits in."""
    stall.touch()
    for command in (
        "cat orders/0/@5",
        "cat orders/0/log",
        "readlink orders/0/latest",
        "cat orders/0/status",
        "cat orders/log",
        "echo x >> orders/0/log",
        "mkdir events",
    ):
        waiting = program("sh", "-c", f"exec 2>&1; {command}")
        waits(remote)
        os.kill(child_of(waiting.pid), signal.SIGINT)
        waiting.communicate(timeout=TIMEOUT_SECONDS)
        wait_until(lambda: "waiting_reads 0 of" in remote.status, "no request waits")


def child_of(pid: int) -> int:
    """Return the process ID of the program that a shell runs, or of the shell if there is none."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else pid


def test_tail_continues_once_there_is_an_answer(remote: Mount, stall: Path, program):
    """After the engine answers again, readers get the records that exist, and later the new records."""
    following = program("cat", "orders/0/follow")
    waits(remote)
    log = program("tail", "-c", "+1", "-f", "-s", "0.05", "orders/0/log")
    assert [b"a\n", b"b\n", b"c\n"] == [log.stdout.readline() for _ in range(3)]
    stall.touch()
    appending = program("sh", "-c", "echo d >> orders/0/log")
    waits(remote, 2)
    stall.unlink()
    assert b"d\n" == following.stdout.readline()
    assert b"d\n" == log.stdout.readline()
    assert 0 == appending.wait(TIMEOUT_SECONDS)
    stall.touch()
    for ended in (following, log):
        ended.terminate()
        ended.communicate(timeout=TIMEOUT_SECONDS)


def test_the_daemon_ends_while_nothing_answers(remote: Mount, stall: Path, program):
    """The daemon ends without waiting for the engine, and programs that wait get an error."""
    stall.touch()
    waiting = [program("cat", "orders/0/log"), program("cat", "orders/0/1")]
    waits(remote, 2)
    assert 0 == remote.stop()
    assert not is_mounted(remote.path)
    assert {1} == {one.wait(TIMEOUT_SECONDS) for one in waiting}


def test_it_can_be_unmounted_while_nothing_answers(remote: Mount, stall: Path, program):
    """umount(8) is refused while a program waits for the engine, and works when no program waits."""
    stall.touch()
    waiting = program("cat", "orders/0/1")
    waits(remote)
    assert "busy" in remote.bash(f"cd /; umount {remote.path}").stderr
    waiting.send_signal(signal.SIGINT)
    waiting.communicate(timeout=TIMEOUT_SECONDS)
    assert 0 == remote.bash(f"cd /; umount {remote.path}").returncode
    assert 0 == remote.daemon.wait(TIMEOUT_SECONDS)
