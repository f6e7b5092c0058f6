"""A streaming query in its own driver, with or without a mount's daemon; tests kill both and check the topic."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from enum import Enum
from pathlib import Path

from tests.doubles.engines import read_lines
from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount
from topicfs.replication import open_engine
from topicfs.storage.disk.lock import find_holder
from topicfs.storage.disk.names import WriteFileKind, parse_write_file
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.model import Timestamp
from topicfs.storage.staging.area import ABANDONED_AFTER_MS, StagingArea
from topicfs.storage.staging.record import CommitRecord

ROOT = Path(__file__).parents[2]
PARTITIONS = 2
LINES = 200
"""Lines of an input file; each file becomes one micro-batch."""
AHEAD = 3
"""Number of input files beyond the committed ones, so that the query always has input."""
DEADLINE_SECONDS = 600
"""Time limit for a step in seconds. On an idle machine a step takes only seconds."""


class Moment(Enum):
    """The moment of a kill: any time, or a step of a write. The files in the data directory show the step."""

    ANY = "some time"
    STAGED = "staged"
    REQUESTED = "handed in"
    CLAIMED = "being appended"


KINDS = {
    Moment.STAGED: WriteFileKind.STAGED,
    Moment.REQUESTED: WriteFileKind.REQUESTED,
    Moment.CLAIMED: WriteFileKind.CLAIMED,
}


class KilledQuery:
    """The driver of a streaming query and, if there is one, a mount's daemon; tests kill and restart both."""

    def __init__(self, folder: Path, directories: Sequence[Path]) -> None:
        """Make the folder; `directories` are the data directories with the topics."""
        self.folder, self.directories = folder, directories
        self.log, self.said = folder / "driver.log", folder / "driver.said"
        """Two files: the standard error of all drivers, and the standard output of the last driver."""
        self.driver: subprocess.Popen[bytes] | None = None
        self.mount: Mount | None = None
        self.kills: Counter[str] = Counter()
        folder.mkdir(parents=True, exist_ok=True)

    def start_driver(self, module: str, *arguments: object) -> None:
        """Start a driver with its own JVM, both in a new process group."""
        with self.log.open("ab") as log, self.said.open("wb") as said:
            self.driver = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, arguments)],
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_DIRS": str(self.folder / "spark"),
                },
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=log,
            )

    def tend(self) -> None:
        """Feed the query and check its driver. Each wait calls this repeatedly."""
        raise NotImplementedError

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the driver work until `condition` is true."""

        def is_so() -> bool:
            self.tend()
            return condition()

        wait_until(
            is_so,
            f"the driver has come so far; see {self.log}",
            timeout_seconds=DEADLINE_SECONDS,
            pause_seconds=0.001,
        )

    def until_committed(self, micro_batches: int = 1) -> None:
        """Wait until the driver has committed `micro_batches` more micro-batches."""
        enough = self.committed() + micro_batches
        self.until(lambda: self.committed() >= enough)

    def until_moment(self, moment: Moment, chance: random.Random, *, longest_seconds: float = 2.0) -> None:
        """Wait for the moment to kill, or for a few micro-batches if the moment does not occur.

        Then wait a random time, so that the kill can hit any instruction.
        """
        if moment is Moment.ANY:
            over = time.monotonic() + chance.uniform(0, longest_seconds)
            self.until(lambda: time.monotonic() >= over)
            return
        enough = self.committed() + 3
        self.until(lambda: KINDS[moment] in self.pending() or self.committed() >= enough)
        time.sleep(chance.uniform(0, 0.01))

    def kill_driver(self) -> None:
        """Send SIGKILL to the driver and its JVM.

        Spark's Python workers are in other process groups. They end some time later.
        """
        assert self.driver is not None
        with suppress(ProcessLookupError):
            os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()
        self.driver = None

    def kill_daemon(self) -> None:
        assert self.mount is not None
        self.mount.kill()

    def remount(self) -> None:
        """Start the daemon again. Retry while a driver without a daemon briefly owns the directory."""
        wait_until(self._mounts, "the daemon serves", timeout_seconds=DEADLINE_SECONDS)

    def _mounts(self) -> bool:
        assert self.mount is not None
        try:
            self.mount.start()
        except AssertionError:
            assert self.mount.daemon is not None
            if self.mount.daemon.poll() == -signal.SIGKILL:  # The kill hit this new daemon.
                self.kills["daemon while it started"] += 1
                self.mount.options.pop("dies", None)
            self.mount.clean_up()
            return False
        return True

    def clean_up(self) -> None:
        """End all processes, whatever state they are in."""
        if self.driver is not None:
            self.kill_driver()
        if self.mount is not None:
            self.mount.clean_up()

    def committed(self) -> int:
        """Return the number of committed micro-batches."""
        queries = CommitRecord(NativeFileSystem(), tuple).read_copy(self.directories[0])
        return 1 + max((query.batch for query in queries.values()), default=-1)

    def pending(self) -> set[WriteFileKind]:
        """Return the kinds of existing files that belong to unfinished writes."""
        found = map(parse_write_file, os.listdir(self.directories[0]))
        return {file.kind for file in found if file is not None}


class Scene(KilledQuery):
    """A query over input files; if there is a mount, a `Person` also appends through the mount."""

    def __init__(self, folder: Path, *, mounted: bool = False) -> None:
        """Make the topic. With `mounted` a daemon owns the data directory, and a `Person` appends through its mount."""
        self.data = folder / "data"
        super().__init__(folder, [self.data])
        self.input = folder / "input"
        self.files = 0
        """Number of input files."""
        self.input.mkdir(parents=True)
        with closing(open_engine(self.data)) as engine:
            engine.create_topic("lines", partitions=PARTITIONS)
        self.mount = Mount(folder) if mounted else None
        self.person = Person(folder / "mnt" / "lines") if mounted else None
        if self.mount is not None and self.person is not None:
            self.mount.start()
            self.person.start()

    # Drivers and input.

    def start(self, *options: str) -> None:
        """Start a driver."""
        self.feed()
        places = self.input, self.data, self.folder / "checkpoint"
        self.start_driver("tests.pipeline.streaming_driver", *places, *options)

    def feed(self) -> None:
        """Write input files until there are enough. All lines differ, and a file appears only when it is complete."""
        while self.files < self.committed() + AHEAD:
            begun = self.folder / f"{self.files}.begun"
            begun.write_text("".join(f"file {self.files} line {line}\n" for line in range(LINES)))
            begun.rename(self.input / f"{self.files}.txt")
            self.files += 1

    def tend(self) -> None:
        self.feed()
        assert self.driver is not None
        assert self.driver.poll() is None, f"the driver ended by itself:\n{self.log.read_text()[-4000:]}"

    def finish(self, *options: str) -> None:
        """Run a driver until it has read all input files."""
        self.start("--to-the-end", *options)
        assert self.driver is not None
        status = self.driver.wait(DEADLINE_SECONDS)
        assert 0 == status, self.log.read_text()[-4000:]
        self.driver = None

    def clean_up(self) -> None:
        if self.person is not None:
            self.person.leave()
        super().clean_up()

    # The topic and the files.

    def records(self) -> list[str]:
        """Return every value in the topic, read through the mount if there is one."""
        if self.mount is not None:
            logs = [self.mount.path / "lines" / str(number) / "log" for number in range(PARTITIONS)]
            return [line for log in logs for line in log.read_text().splitlines()]
        # Python workers outlive a killed driver: a worker may be in the middle of a commit, and completes the
        # commit.
        wait_until(
            lambda: find_holder(self.data) is None,
            "nobody owns the data directory",
            timeout_seconds=DEADLINE_SECONDS,
        )
        with closing(open_engine(self.data, read_only=True)) as engine:
            return [line for one in engine.topic("lines").partitions().values() for line in read_lines(one)]

    # Checks.

    def check_after_a_kill(self) -> None:
        """Check that no line is duplicated, and that every committed line is in the topic."""
        enough = self.committed() * LINES
        found = self.records()
        doubled = [line for line, times in Counter(found).items() if times > 1]
        assert [] == doubled
        streamed = [line for line in found if line.startswith("file ")]
        assert len(streamed) >= enough

    def check_at_the_end(self) -> None:
        """Check that the topic has each input and acknowledged line once, and that no write left a file."""
        if self.person is not None:
            self.person.leave()
        found = self.records()
        streamed = sorted(line for line in found if line.startswith("file "))
        assert (
            sorted(f"file {file} line {line}" for file in range(self.files) for line in range(LINES))
            == streamed
        )
        if self.person is not None:
            counted = Counter(line for line in found if line.startswith("person "))
            assert {1} >= set(counted.values())
            assert set() == self.person.acknowledged - set(counted)
        assert [] == self.left_after_sweeping()

    def left_after_sweeping(self) -> list[str]:
        """Return the files of writes that remain after the owner has removed the files of dead writers."""
        return left_after_sweeping(self.data)


class Person(threading.Thread):
    """A thread that appends a line now and then through the mount, and retries while no daemon runs."""

    def __init__(self, topic: Path) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._left = threading.Event()
        self.acknowledged: set[str] = set()
        """Lines that write(2) has acknowledged."""

    def run(self) -> None:
        number = 0
        while not self._left.wait(0.02):
            number += 1
            line = f"person {number}"
            try:
                descriptor = os.open(
                    self._topic / str(number % PARTITIONS) / "log", os.O_WRONLY | os.O_APPEND
                )
            except OSError:
                continue
            with suppress(OSError):
                os.write(descriptor, f"{line}\n".encode())
                self.acknowledged.add(line)
            with suppress(OSError):
                os.close(descriptor)

    def leave(self) -> None:
        self._left.set()
        self.join(DEADLINE_SECONDS)


def left(data: Path) -> list[str]:
    """Return the files of writes in a data directory."""
    return [path.name for path in data.iterdir() if parse_write_file(path.name)]


def left_after_sweeping(data: Path) -> list[str]:
    """Remove the files of dead writers, with a clock a week ahead; return the files of writes that remain."""
    later = Timestamp(system_clock() + ABANDONED_AFTER_MS + 1000)
    StagingArea(data, NativeFileSystem()).discard_abandoned(later)
    return left(data)
