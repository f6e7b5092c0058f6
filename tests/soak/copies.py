"""A streaming query from topic to topic whose processes are killed, and what must be in its target then.

Killed are the driver with its JVM, one of its Python processes (a worker of a task, the planner of the stream, a committer
or the parent of them), or the daemon that owns the data directories. Meanwhile the target is compacted or loses its
oldest segments, owners are slow, and checkpoints are put back.

The log ends of the target count what was ever appended: they are never below the rows of the micro-batches that Spark
committed, never above those that it planned, and in the end equal to the rows of the source. No value is at two offsets,
and an offset keeps its value until retention or compaction may take it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount
from tests.pipeline.crashes import DEADLINE_S, KINDS, ROOT, Moment, left_after_sweeping
from tests.soak.copied import (
    PARENT,
    PARTITIONS,
    WORKER,
    Seen,
    found_by_owner,
    found_in_mount,
    python_orphans,
    python_processes,
)
from tests.soak.copying_driver import END, LARGEST
from tests.soak.kills import AIMS
from topicfs.coordination.engine import Engine
from topicfs.pipeline.source.query.offsets import decode_stream_offset
from topicfs.replication import open_directories
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk.names import WriteFileKind, parse_write_file
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.errors import DirectoryLockedError
from topicfs.storage.model import Timestamp
from topicfs.storage.staging.record import CommitRecord

SETTINGS = {
    "plain": {},
    "compact": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
    "delete": {"cleanup.policy": "delete", "retention.bytes": "6000"},
}
"""Settings of the target by what takes its records."""
SMALL = {"internal.segment.bytes": "3000", "file.delete.delay.ms": "0"}
DUTIES = {"retention_check_interval_ms": 300, "cleaner_backoff_ms": 300, "initial_task_delay_ms": 100}
LATER_MS = 1000
"""All duties are due then."""
AHEAD = 3 * LARGEST
"""Rows that the source has beyond those that the query has planned."""
OVERLOADED = "Python worker failed to connect back"
"""Spark's error if a busy machine does not start a worker in time."""
CHUNK = 50
"""Rows of an append: fewer bytes than a segment."""
FARTHEST = {"rename": 60, "removal": 60, "truncation": 40, "opening": 300}
"""How far an aimed death of a daemon may lie ahead."""


class Form(NamedTuple):
    """What a scene is made of."""

    directories: int
    mounted: bool
    named: bool
    """True for writes within foreachBatch."""
    cleanup: str

    def __str__(self) -> str:
        owner = "mounted" if self.mounted else "alone"
        writer = "foreachBatch" if self.named else "stream"
        return f"{self.directories} × {owner}, {writer}, {self.cleanup}"


class Copies:
    """A folder with data directories and a checkpoint, the processes that work on them, and what was seen."""

    def __init__(self, folder: Path, form: Form, chance: random.Random) -> None:
        """Make the topics, and start the daemon if the form has one."""
        self.folder, self.form = folder, form
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        """First words of what queries failed of."""
        self.driver: subprocess.Popen[bytes] | None = None
        self.directories = [folder / f"d{number}" for number in range(form.directories)]
        self._chance = chance
        self._checkpoint = folder / "checkpoint"
        self._stale = folder / "stale"
        self._batches_when_kept: int | None = None
        self._log = folder / "driver.log"
        self._said = folder / "driver.said"
        self._read = 0
        self._may_fail = False
        self._fed = 0
        self._seen = Seen(form.cleanup)
        self._replicated = form.directories > 1
        folder.mkdir(parents=True)
        with self._owned() as engine:
            engine.create_topic("source", partitions=PARTITIONS, overrides=SMALL)
            engine.create_topic("target", partitions=PARTITIONS, overrides=SMALL | SETTINGS[form.cleanup])
        self.mount = (
            Mount(
                folder,
                directories=",".join(map(str, self.directories)),
                replicated=self._replicated,
                engine=DUTIES | {"replication_factor": form.directories},
            ).start()
            if form.mounted
            else None
        )

    # The processes.

    def start(self, *options: str) -> None:
        """Start a driver."""
        arguments = [",".join(map(str, self.directories)), str(self._checkpoint), *options]
        arguments += [
            "--seed",
            str(self._chance.randrange(1 << 30)),
            *(["--named"] if self.form.named else []),
        ]
        self._may_fail, self._read = False, 0
        with self._log.open("ab") as log, self._said.open("wb") as said:
            self.driver = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.copying_driver", *arguments],
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

    def kill_driver(self) -> None:
        """End the driver and its JVM. Its Python workers notice some time later."""
        assert self.driver is not None
        with suppress(ProcessLookupError):
            os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()
        self.driver = None

    def kill_python(self) -> str:
        """End one of the Python processes that Spark started; return which kind it was, or nothing if there is none."""
        assert self.driver is not None
        found = list(python_processes(self.driver.pid))
        if not found:
            return ""
        # Few of the processes are workers, and only these hold something.
        busy = [one for one in found if one[1] == WORKER]
        pid, kind = self._chance.choice(busy if busy and self._chance.random() < 0.8 else found)
        self._may_fail = True
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return kind

    def kill_daemon(self) -> None:
        """End the daemon."""
        assert self.mount is not None
        self.mount.options.pop("dies", None)
        self.mount.kill()

    def remount(self, *, may_die: bool = True) -> None:
        """Start the daemon again; sometimes it dies at one of its next changes of the disk."""
        assert self.mount is not None
        if may_die and self._chance.random() < 0.5:
            aim = self._chance.choice(list(AIMS))
            self.mount.options["dies"] = f"{aim} {self._chance.randint(1, FARTHEST[aim])}"
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                self.mount.start()
            except AssertionError:
                # It died where it was aimed at, or a driver owned the directories for a moment.
                assert self.mount.daemon is not None
                assert time.monotonic() < deadline, self.mount.log
                if self.mount.daemon.poll() == -signal.SIGKILL:
                    self.counts["daemon while it started"] += 1
                    self.mount.options.pop("dies", None)
                self.mount.clean_up()
            else:
                return

    def pause_owner(self) -> None:
        """Let the owner do nothing for a while."""
        seconds = self._chance.uniform(0.2, 2)
        self.counts["slow owners"] += 1
        if self.mount is None:
            with self._owned():
                time.sleep(seconds)
        elif self.mount.works():
            with suppress(ProcessLookupError):
                os.kill(self.mount.pid, signal.SIGSTOP)
                time.sleep(seconds)
                os.kill(self.mount.pid, signal.SIGCONT)

    def clean_up(self) -> None:
        """Leave no process and no mount."""
        if self.driver is not None:
            self.kill_driver()
        if self.mount is not None:
            self.mount.clean_up()

    # Waiting.

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the driver work until something is so; feed the source, and replace a daemon that died where it was aimed at."""
        deadline, next_s = time.monotonic() + DEADLINE_S, 0.0
        while not condition():
            now = time.monotonic()
            assert now < deadline, f"waited in vain:\n{self._log_tail()}"
            if now >= next_s:
                self._feed()
                self._check_driver()
                if self.mount is not None and not self.mount.works():
                    self.counts["daemon at a change"] += 1
                    self.kill_daemon()
                    self.remount()
                next_s = time.monotonic() + 0.2
            time.sleep(0.002)

    def until_committed(self, more: int = 1) -> None:
        """Let it commit that many more micro-batches."""
        enough = self.batches() + more
        self.until(lambda: self.batches() >= enough)

    def until_moment(self) -> None:
        """Wait for a random moment of a write."""
        moment = self._chance.choice(list(Moment))
        enough = self.batches() + 2
        over = time.monotonic() + self._chance.uniform(0, 2)
        if moment is Moment.ANY:
            self.until(lambda: time.monotonic() >= over)
        else:
            self.until(lambda: KINDS[moment] in self._pending() or self.batches() >= enough)
            time.sleep(self._chance.uniform(0, 0.01))

    def batches(self) -> int:
        """Return the number of micro-batches that the data directory has committed."""
        queries = CommitRecord(NativeFileSystem(), tuple).read_copy(self.directories[0])
        return 1 + max((query.batch for query in queries.values()), default=-1)

    def _pending(self) -> set[WriteFileKind]:
        found = map(parse_write_file, os.listdir(self.directories[0]))
        return {file.kind for file in found if file is not None}

    def _check_driver(self) -> None:
        """Fail if the driver ended by itself, or its query failed though no Python process was killed."""
        assert self.driver is not None
        said = self._said.read_text().splitlines()
        for line in said[self._read :]:
            word = line.partition(":")[0]
            self.counts[f"queries {word}"] += 1
            if word == "failed":
                assert self._may_fail or OVERLOADED in line, line
                self.errors[line.rpartition("exception: ")[2][:60]] += 1
        self._read = len(said)
        assert self.driver.poll() in (None, 0), f"the driver ended by itself: {said[-1:]}\n{self._log_tail()}"

    def _log_tail(self) -> str:
        return self._log.read_text()[-3000:]

    # The checkpoint.

    def planned(self) -> int:
        """Return the rows of all micro-batches that Spark planned."""
        return self._rows("offsets")

    def finished(self) -> int:
        """Return the rows of all micro-batches that Spark committed."""
        return self._rows("commits")

    def _rows(self, of: str) -> int:
        with suppress(FileNotFoundError):
            names = [name for name in os.listdir(self._checkpoint / of) if name.isdecimal()]
            if names:
                lines = (self._checkpoint / "offsets" / max(names, key=int)).read_text().splitlines()
                return sum(decode_stream_offset(json.loads(lines[2])).offsets.values())
        return 0

    def restart(self) -> None:
        """Start a driver with the checkpoint as it is, or with one that was put back; or show it an old copy first."""
        options: list[str] = []
        kept = self._batches_when_kept
        if kept is not None and self.batches() >= kept + 3 and not self.form.named:
            shutil.rmtree(self.folder / "shown", ignore_errors=True)
            self._stale.rename(self.folder / "shown")
            options, self._batches_when_kept = ["--stale", str(self.folder / "shown")], None
        elif self._chance.random() < 0.6:
            self._put_back()
        if self._batches_when_kept is None and (self._checkpoint / "commits" / "0").exists():
            subprocess.run(["cp", "-a", self._checkpoint, self._stale], check=True)
            self._batches_when_kept = self.batches()
        self.start(*options)

    def _put_back(self) -> None:
        """Make the checkpoint what a copy was that somebody took before Spark noted the last micro-batch as committed."""
        # Workers of a killed driver, and the owner, may still commit a later one.
        wait_until(lambda: not any(python_orphans(self.folder)), "no worker is left", patience_s=DEADLINE_S)
        begun = {WriteFileKind.REQUESTED, WriteFileKind.CLAIMED}
        wait_until(
            lambda: self.look() < 0 or not begun & self._pending(), "no write waits", patience_s=DEADLINE_S
        )
        last = self.batches() - 1
        if last < 0 or begun & self._pending():
            return
        for folder, first in (("offsets", last + 1), ("commits", last)):
            for path in (self._checkpoint / folder).iterdir():
                name = path.name.removeprefix(".").removesuffix(".crc")
                if name.isdecimal() and int(name) >= first:
                    path.unlink()
        self.counts["checkpoints put back"] += 1

    # The topics.

    @contextmanager
    def _owned(self) -> Iterator[Engine]:
        """Own the data directories for a moment; whoever owns them before is waited for."""
        deadline = time.monotonic() + DEADLINE_S
        config = EngineConfig(replication_factor=self.form.directories, **DUTIES)
        while True:
            try:
                engine = open_directories(self.directories, replicated=self._replicated, config=config)
            except DirectoryLockedError:
                assert time.monotonic() < deadline
                time.sleep(0.005)
            else:
                break
        try:
            yield engine
        finally:
            engine.close()

    def _feed(self) -> None:
        """Let the source have more than the query has planned."""
        if self._fed >= self.planned() + AHEAD:
            return
        count = self._chance.randint(LARGEST, AHEAD)
        parts = [
            "".join(f"row {self._fed + at}\n" for at in range(first, min(first + CHUNK, count))).encode()
            for first in range(0, count, CHUNK)
        ]
        self._fed += count
        if self.mount is not None:
            for number, lines in enumerate(parts):
                path = self.mount.path / "source" / str(number % PARTITIONS) / "log"
                with suppress(OSError), path.open("ab") as log:
                    log.write(lines)
            return
        with self._owned() as engine:
            for number, lines in enumerate(parts):
                for batch in encode_lines(lines, timestamp=system_clock()):
                    engine.partition("source", number % PARTITIONS).append(batch)

    def look(self) -> int:
        """Check the target; return the number of rows of the source, or -1 if the daemon died meanwhile (AssertionError)."""
        finished = self.finished()
        try:
            if self.mount is None:
                with self._owned() as engine:
                    engine.commit_staged_writes()
                    target, source = (found_by_owner(engine, topic) for topic in ("target", "source"))
                    engine.maintenance(Timestamp(system_clock() + LATER_MS))
            else:
                target, source = (found_in_mount(self.mount.path / topic) for topic in ("target", "source"))
        except OSError:
            assert self.mount is not None
            wait_until(lambda: not self.mount.works(), "the daemon has died")
            return -1
        rows = sum(one.end for one in target.values())
        assert finished <= rows, f"{rows} rows, {finished} were committed"
        assert rows <= self.planned(), f"{rows} rows, {self.planned()} were planned"
        for number, one in target.items():
            self._seen.compare(number, one)
        known = {value for one in source.values() for _, value in one.records.values()}
        assert {value for one in target.values() for _, value in one.records.values()} <= known
        self.counts["looks"] += 1
        return sum(one.end for one in source.values())

    def finish(self) -> int:
        """Copy to the end with a driver and a daemon that live; return the number of rows (AssertionError)."""
        if self.mount is not None:
            self.kill_daemon()
            self.remount(may_die=False)
        if self.driver is None:
            self.start()
        assert self.driver is not None
        Path(f"{self._checkpoint}{END}").touch()
        assert 0 == self.driver.wait(DEADLINE_S), self._said.read_text() + self._log_tail()
        self._check_driver()
        self.driver = None
        rows = self.look()
        assert rows == sum(self._seen.ends.values()) == self.planned()
        if self.mount is not None:
            assert 0 == self.mount.stop()
            logs = "".join(path.read_text() for path in self.folder.glob("daemon*.log"))
            assert "Traceback" not in logs, logs
        wait_until(lambda: not list(python_orphans(self.folder)), "no worker of a killed driver is left")
        for directory in self.directories:
            assert [] == left_after_sweeping(directory)
        self.counts["skipped micro-batches"] += self._log.read_text().count("was committed before: skipped")
        return rows


def kill_once(scene: Copies, chance: random.Random) -> None:
    """Kill one process at a random moment, let the query go on, and check the target."""
    if scene.driver is None:
        scene.restart()
        scene.until_committed()
    if chance.random() < 0.15:
        scene.pause_owner()
    scene.until_moment()
    victim = chance.choices(("python", "driver", "daemon" if scene.mount else "python"), (76, 9, 15))[0]
    if victim == "python":
        kind = scene.kill_python()
        if not kind:
            scene.until_committed()
            return
        scene.counts[kind] += 1
    elif victim == "driver":
        scene.kill_driver()
        scene.counts["driver"] += 1
    else:
        scene.kill_daemon()
        scene.counts["daemon"] += 1
        # The driver owns the directories itself until a daemon does.
        time.sleep(chance.uniform(0, 1.5))
        scene.remount()
    if scene.driver is not None and chance.random() < 0.5:
        scene.until_committed()
    scene.look()


KILLS = ("driver", "daemon", "daemon while it started", "daemon at a change", WORKER, PARENT)


def killed(counts: Counter[str]) -> int:
    """Return the number of processes that were killed."""
    return sum(counts[name] for name in KILLS)


def run_scene(
    folder: Path, form: Form, kills: int, chance: random.Random
) -> tuple[Counter[str], Counter[str]]:
    """Kill that many processes, copy to the end, and check everything; return the counts and errors (AssertionError)."""
    scene = Copies(folder, form, chance)
    try:
        while killed(scene.counts) < kills:
            kill_once(scene, chance)
        scene.counts["rows"] += scene.finish()
        scene.counts["micro-batches"] += scene.batches()
    finally:
        scene.clean_up()
    shutil.rmtree(folder)
    return scene.counts, scene.errors


FORMS = (
    Form(1, mounted=True, named=False, cleanup="compact"),
    Form(2, mounted=True, named=False, cleanup="delete"),
    Form(1, mounted=False, named=False, cleanup="compact"),
    Form(2, mounted=True, named=True, cleanup="compact"),
    Form(2, mounted=False, named=False, cleanup="delete"),
    Form(1, mounted=True, named=False, cleanup="plain"),
    Form(1, mounted=False, named=True, cleanup="delete"),
    Form(2, mounted=True, named=False, cleanup="compact"),
)


def soak(base: Path, kills: int, seed: int, say: Callable[[str], None]) -> Counter[str]:
    """Kill that many processes, 25 in each scene (AssertionError)."""
    counts: Counter[str] = Counter()
    for number in range((kills + 24) // 25):
        form = FORMS[number % len(FORMS)]
        wanted = min(25, kills - 25 * number)
        begun = time.monotonic()
        found, errors = run_scene(base / str(number), form, wanted, random.Random(seed + number))
        counts += found
        say(f"{form}: {dict(found)} in {time.monotonic() - begun:.0f} s; {dict(errors)}")
    return counts
