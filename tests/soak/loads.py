"""Programs that use a mount: `python -m tests.soak.loads NAME MOUNT PARTITION FILE`, until the mount ends.

Each program makes FILE when all of its counters are above zero, because a mount that ends earlier proves nothing. In
the end the program prints its counts as one JSON line. A load that writes has its own partition and writes line 0, 1,
2 …, so that the content and order of the log are known.
"""

from __future__ import annotations

import errno
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.doubles.waiting import wait_until

GONE = {errno.ENOTCONN, errno.ENOENT, errno.ECONNABORTED, errno.ESTALE, errno.EIO}
"""Errors of calls during and after the end of the mount."""
BLOCKED_THREADS = 100
TIMEOUT_SECONDS = 200
"""Timeout in seconds for the first line of a partition, even on a busy machine."""
Seen = dict[str, float]
"""The counts of a load. `written` and `tried` are numbers of lines, names that end in `_s` are seconds."""


class WrongError(AssertionError):
    """A file had the wrong content."""


class Begun:
    """Makes a file at its first call, as a sign that its load has begun."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._called = False

    def __call__(self) -> None:
        if not self._called:
            self._called = True
            self.path.touch()


def wants_going_on(mount: Path) -> bool:
    """Return whether the mount still exists; if it does, a failed call is an error."""
    return any(
        line.split(" ")[4] == str(mount) for line in Path("/proc/self/mountinfo").read_text().splitlines()
    )


def write_lines(
    mount: Path, partition: str, begun: Begun, *, flags: int = 0, pause_seconds: float = 0.05
) -> Seen:
    """Append in bursts with writes of all sizes that may end within a line; sometimes fsync or reopen."""
    chance, written, tried, syncs = random.Random(partition), 0, 0, 0
    path = mount / partition / "log"
    with until_gone():
        while True:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | flags)
            for _ in range(chance.randrange(1, 400)):
                lines = b"".join(b"%d\n" % n for n in range(tried, tried + lines_of(chance)))
                tried += lines.count(b"\n")
                cut = chance.randrange(len(lines)) if chance.random() < 0.2 else 0
                if cut:
                    os.write(descriptor, lines[:cut])
                os.write(descriptor, lines[cut:])
                written = tried
                begun()
                if chance.random() < 0.005:
                    os.fsync(descriptor)
                    syncs += 1
            os.close(descriptor)
            time.sleep(chance.random() * pause_seconds * 2)
    return {"written": written, "tried": tried, "syncs": syncs}


def lines_of(chance: random.Random) -> int:
    """Return the number of lines in a write: usually few, because hours of large writes would fill the disk."""
    return 20_000 if chance.random() < 0.002 else chance.choice((1, 1, 1, 5, 100))


def write_durably(mount: Path, partition: str, begun: Begun) -> Seen:
    """Append with O_SYNC, so that each write waits for the disk in a thread."""
    return write_lines(mount, partition, begun, flags=os.O_SYNC, pause_seconds=0.2)


def write_from_a_shell(mount: Path, partition: str, begun: Begun) -> Seen:
    """Append with `echo n >> log`, which opens and closes the file; the shell prints its last line's number."""
    script = (
        'n=0; while echo $n >> "$0"; do n=$((n + 1)); [ -e "$1" ] || : > "$1"; done 2> /dev/null; echo $n'
    )
    words = ["bash", "-c", script, str(mount / partition / "log"), str(begun.path)]
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    written = int(run.stdout)
    return {"written": written, "tried": written + 1}


def read_records(mount: Path, partition: str, begun: Begun) -> Seen:
    """Open, read and close records and ranges by offset, names that do not exist, and the status page."""
    chance, opened = random.Random(partition), 0
    directory = mount / partition
    with until_gone():
        while True:
            end = newest(directory)
            for _ in range(200):
                first = chance.randrange(end + 1)
                last = min(first + chance.randrange(50), end)
                expect(directory / str(first), b"%d" % first)
                expect(directory / f"{first}-{last}", b"".join(b"%d\n" % n for n in range(first, last + 1)))
                (mount / "@status").read_bytes()
                with suppress(FileNotFoundError):
                    (directory / "no-such-name").read_bytes()
                opened += 4
                begun()
            time.sleep(0.05)
    return {"opened": opened}


def newest(directory: Path) -> int:
    """Return the number of the last line, after waiting for a first line."""

    def has_lines() -> bool:
        (directory / "status").read_bytes()  # Fails if the mount has ended.
        return os.path.lexists(directory / "latest")

    wait_until(has_lines, "a line is written", timeout_seconds=TIMEOUT_SECONDS)
    return int((directory / "latest").readlink().name)


def expect(path: Path, content: bytes) -> None:
    found = path.read_bytes()
    if found != content:
        raise WrongError(f"{path}: {found[:80]!r}… and not {content[:80]!r}…")


def read_streams(mount: Path, partition: str, begun: Begun) -> Seen:
    """Read a log from beginning to end, repeatedly."""
    streamed, path = 0, mount / partition / "log"
    with until_gone():
        while True:
            expected, rest = 0, b""
            with path.open("rb", buffering=0) as log:
                while data := log.read(2**17):
                    *lines, rest = (rest + data).split(b"\n")
                    if [b"%d" % n for n in range(expected, expected + len(lines))] != lines:
                        raise WrongError(f"{path}: not the lines from {expected} on")
                    expected += len(lines)
                    streamed += len(data)
                    begun()
                    if expected > 1_000_000:
                        break
            time.sleep(0.2)
    return {"streamed": streamed}


def follow_lines(mount: Path, partition: str, begun: Begun) -> Seen:
    """Follow a busy partition; after the first line that is read, no line may be missing."""
    path, expected, followed = mount / partition / "follow", None, 0
    with until_gone(), path.open("rb", buffering=0) as follow:
        rest = b""
        while True:
            *lines, rest = (rest + follow.read(2**16)).split(b"\n")
            if lines and expected is None:
                expected = int(lines[0])
            if [b"%d" % n for n in range(expected or 0, (expected or 0) + len(lines))] != lines:
                raise WrongError(f"{path}: not the lines from {expected} on")
            expected = (expected or 0) + len(lines)
            followed += len(lines)
            if lines:
                begun()
    return {"followed": followed}


def poll_for_lines(mount: Path, partition: str, begun: Begun) -> Seen:
    """Wait with poll(2) for data in `follow`, and read the announced lines without blocking."""
    polled = 0
    with until_gone():
        descriptor = os.open(mount / partition / "follow", os.O_RDONLY | os.O_NONBLOCK)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while wants_going_on(mount):
            if poll.poll(500):
                os.read(descriptor, 2**16)
                polled += 1
                begun()
    return {"polled": polled}


def wake_the_blocked(mount: Path, partition: str, begun: Begun) -> Seen:
    """Let a hundred threads wait in reads of `follow`; each new line wakes all of these threads."""
    woken, errors, lock = [0], [], threading.Lock()

    def wait() -> None:
        try:
            descriptor = os.open(mount / partition / "follow", os.O_RDONLY)
            while os.read(descriptor, 100):
                with lock:
                    woken[0] += 1
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait) for _ in range(BLOCKED_THREADS)]
    for thread in threads:
        thread.start()
    chance, written = random.Random(partition), 0
    with until_gone():
        while True:
            with (mount / partition / "log").open("ab") as log:
                log.write(b"%d\n" % written)
            written += 1
            if woken[0]:
                begun()
            time.sleep(chance.random() * 0.3)
    for thread in threads:
        thread.join()
    for error in errors:
        check_gone(error)
    return {"written": written, "tried": written + 1, "woken": woken[0]}


def signal_readers(mount: Path, partition: str, begun: Begun) -> Seen:
    """Interrupt readers that wait for records which never come; measure how long the slowest reader takes to end."""
    chance, ended, slowest_seconds = random.Random(partition), 0, 0.0
    while wants_going_on(mount):
        words = chance.choice((["cat", "follow"], ["head", "-n", "1", "follow"], ["grep", "x", "follow"]))
        with suppress(FileNotFoundError, NotADirectoryError, OSError):
            directory = mount / partition
            processes = [
                subprocess.Popen(words, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for _ in range(chance.randrange(1, 6))
            ]
            time.sleep(chance.random() * 0.3)
            number = chance.choice((signal.SIGINT, signal.SIGTERM, signal.SIGKILL))
            began = time.monotonic()
            for process in processes:
                process.send_signal(number)
            for process in processes:
                process.wait()
                ended += 1
            slowest_seconds = max(slowest_seconds, time.monotonic() - began)
            begun()
    return {"ended": ended, "slowest_seconds": slowest_seconds}


def list_directories(mount: Path, partition: str, begun: Begun) -> Seen:
    """Walk the whole tree and read all attributes."""
    del partition
    listed = 0
    while wants_going_on(mount):
        for directory, names, files in os.walk(mount):
            for name in (*names, *files):
                with suppress(OSError):
                    os.stat(f"{directory}/{name}")
                listed += 1
                begun()
        time.sleep(0.1)
    return {"listed": listed}


def probe(mount: Path, partition: str, begun: Begun) -> Seen:
    """Measure how long a read of `@status` takes while the other loads run."""
    del partition
    slowest_seconds = 0.0
    took: list[float] = []
    with until_gone():
        while True:
            began = time.monotonic()
            (mount / "@status").read_bytes()
            took.append(time.monotonic() - began)
            slowest_seconds = max(slowest_seconds, took[-1])
            begun()
            time.sleep(0.02)
    took.sort()
    return {"slowest_seconds": slowest_seconds, "median_seconds": took[len(took) // 2] if took else 0.0}


@contextmanager
def until_gone() -> Iterator[None]:
    """End the block when a call fails because the mount has ended."""
    try:
        yield
    except OSError as error:
        check_gone(error)


def check_gone(error: OSError) -> None:
    """Raise `error` unless the end of the mount explains it."""
    if error.errno not in GONE:
        raise error


LOADS: dict[str, Callable[[Path, str, Begun], Seen]] = {
    load.__name__: load
    for load in (
        write_lines,
        write_durably,
        write_from_a_shell,
        wake_the_blocked,
        read_records,
        read_streams,
        follow_lines,
        poll_for_lines,
        signal_readers,
        list_directories,
        probe,
    )
}

if __name__ == "__main__":
    name, where, which, sign = sys.argv[1:]
    # A shell starts background processes with SIGINT ignored, so SIGINT would not end readers.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout.write(json.dumps(LOADS[name](Path(where), which, Begun(Path(sign)))) + "\n")
