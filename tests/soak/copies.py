"""A streaming query copies one topic to another while its processes are killed; the test checks the target.

A kill hits the driver with its JVM, one of its Python processes (a task's worker, the stream's planner, a committer,
or their parent), or the daemon that owns the data directories. Meanwhile the target is compacted or loses its oldest
segments, owners are slow, and checkpoints are reset to an earlier state.

The sum of the target's log end offsets is the number of rows ever appended. This number is never below the number of
rows in the micro-batches that Spark committed, and never above the number of rows that Spark planned. In the end it
is exactly the number of rows in the source. No value is at two offsets, and an offset keeps its value until retention
or compaction may remove it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount
from tests.pipeline.crashes import DEADLINE_SECONDS, KilledQuery, Moment, left_after_sweeping
from tests.soak import say
from tests.soak.copied import (
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
from topicfs.storage.disk.names import WriteFileKind
from topicfs.storage.disk.native import system_clock
from topicfs.storage.errors import DirectoryLockedError
from topicfs.storage.model import Timestamp

SETTINGS = {
    "plain": {},
    "compact": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
    "delete": {"cleanup.policy": "delete", "retention.bytes": "6000"},
}
"""Settings of the target by the policy that removes its records."""
SMALL = {"internal.segment.bytes": "3000", "file.delete.delay.ms": "0"}
DUTIES = {"retention_check_interval_ms": 300, "cleaner_backoff_ms": 300, "initial_task_delay_ms": 100}
LATER_MS = 1000
"""Milliseconds by which the clock is advanced so that all duties are due."""
AHEAD = 3 * LARGEST
"""Number of rows by which the source is kept ahead of the last row that the query has put into a batch."""
OVERLOADED = "Python worker failed to connect back"
"""Spark's error if a worker does not start in time on a busy machine."""
TEND_EVERY_SECONDS = 0.2
"""Seconds between two checks of the driver and the daemon while the test waits."""
CHUNK = 50
"""Number of rows in one append, smaller than a segment."""
FARTHEST = {"rename": 60, "removal": 60, "truncation": 40, "opening": 300}
"""Maximum number of operations of each kind before a daemon is killed at such an operation."""


class Form(NamedTuple):
    """The variant of a scene: the owner, the kind of query, and the target's cleanup.policy."""

    directories: int
    mounted: bool
    named: bool
    """True if the query writes within foreachBatch."""
    cleanup: str

    def __str__(self) -> str:
        owner = "mounted" if self.mounted else "alone"
        writer = "foreachBatch" if self.named else "stream"
        return f"{self.directories} × {owner}, {writer}, {self.cleanup}"


class Copies(KilledQuery):
    """A query from topic to topic, its checkpoint, and the observations of its topics."""

    def __init__(self, folder: Path, form: Form, chance: random.Random) -> None:
        """Create the topics, and start the daemon if `form` has a daemon."""
        super().__init__(folder, [folder / f"d{number}" for number in range(form.directories)])
        self.form = form
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        """Number of query failures, by the first words of the error."""
        self._chance = chance
        self._checkpoint = folder / "checkpoint"
        self._stale = folder / "stale"
        self._batches_when_kept: int | None = None
        self._read = self._fed = 0
        self._may_fail = False
        self._tended = 0.0
        self._seen = Seen(form.cleanup)
        with self._owned() as engine:
            engine.create_topic("source", partitions=PARTITIONS, overrides=SMALL)
            engine.create_topic("target", partitions=PARTITIONS, overrides=SMALL | SETTINGS[form.cleanup])
        if form.mounted:
            self.mount = Mount(
                folder,
                directories=",".join(map(str, self.directories)),
                replicated=form.directories > 1,
                engine=DUTIES | {"replication_factor": form.directories},
            ).start()

    # Processes.

    def start(self, *options: object) -> None:
        """Start a driver process with the query."""
        self._may_fail, self._read = False, 0
        named = ["--named"] if self.form.named else []
        arguments = ",".join(map(str, self.directories)), self._checkpoint, *options, *named
        seed = self._chance.randrange(1 << 30)
        self.start_driver("tests.soak.copying_driver", *arguments, "--seed", seed)

    def kill_python(self) -> str:
        """Kill one of Spark's Python processes; return its kind, or an empty string if there is none."""
        assert self.driver is not None
        found = list(python_processes(self.driver.pid))
        if not found:
            return ""
        # Mostly choose a worker: only workers hold a write, but most of the processes are not workers.
        busy = [one for one in found if one[1] == WORKER]
        pid, kind = self._chance.choice(busy if busy and self._chance.random() < 0.8 else found)
        self._may_fail = True
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return kind

    def kill_daemon(self) -> None:
        assert self.mount is not None
        self.mount.options.pop("dies", None)
        super().kill_daemon()

    def remount(self) -> None:
        """Start the daemon again. In half of the cases, let it be killed at one of its next changes of the disk."""
        assert self.mount is not None
        if self._chance.random() < 0.5:
            aim = self._chance.choice(list(AIMS))
            self.mount.options["dies"] = f"{aim} {self._chance.randint(1, FARTHEST[aim])}"
        super().remount()

    def pause_owner(self) -> None:
        """Pause the owner for a random time, so that requests have to wait."""
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

    def tend(self) -> None:
        """Feed the source, check the driver, and restart a daemon that was killed at a change of the disk."""
        if time.monotonic() < self._tended + TEND_EVERY_SECONDS:
            return
        self._feed()
        self._check_driver()
        if self.mount is not None and not self.mount.works():
            self.kills["daemon at a change"] += 1
            self.kill_daemon()
            self.remount()
        self._tended = time.monotonic()

    def _check_driver(self) -> None:
        """Fail if the driver ended by itself, or if its query failed although no Python process was killed."""
        assert self.driver is not None
        said = self.said.read_text().splitlines()
        for line in said[self._read :]:
            word = line.partition(":")[0]
            self.counts[f"queries {word}"] += 1
            if word == "failed":
                assert self._may_fail or OVERLOADED in line, line
                self.errors[line.rpartition("exception: ")[2][:60]] += 1
        self._read = len(said)
        assert self.driver.poll() in (None, 0), f"the driver ended by itself: {said[-1:]}; see {self.log}"

    # Checkpoint.

    def planned(self) -> int:
        """Return the number of rows in all micro-batches that Spark planned."""
        return self._rows("offsets")

    def finished(self) -> int:
        """Return the number of rows in all micro-batches that Spark committed."""
        return self._rows("commits")

    def _rows(self, of: str) -> int:
        with suppress(FileNotFoundError):
            names = [name for name in os.listdir(self._checkpoint / of) if name.isdecimal()]
            if names:
                lines = (self._checkpoint / "offsets" / max(names, key=int)).read_text().splitlines()
                return sum(decode_stream_offset(json.loads(lines[2])).offsets.values())
        return 0

    def restart(self) -> None:
        """Start a driver with the checkpoint, as it is or after a reset.

        Sometimes the driver first gets an old copy of the checkpoint, which it must refuse.
        """
        options: list[str] = []
        kept = self._batches_when_kept
        if kept is not None and self.committed() >= kept + 3 and not self.form.named:
            shutil.rmtree(self.folder / "shown", ignore_errors=True)
            self._stale.rename(self.folder / "shown")
            options, self._batches_when_kept = ["--stale", str(self.folder / "shown")], None
        elif self._chance.random() < 0.6:
            self._put_back()
        if self._batches_when_kept is None and (self._checkpoint / "commits" / "0").exists():
            subprocess.run(["cp", "-a", self._checkpoint, self._stale], check=True)
            self._batches_when_kept = self.committed()
        self.start(*options)

    def _put_back(self) -> None:
        """Reset the checkpoint to its state before Spark recorded the last micro-batch as committed."""
        # Workers of a killed driver, or the owner, may still commit that micro-batch.
        wait_until(
            lambda: not any(python_orphans(self.folder)),
            "no worker is left",
            timeout_seconds=DEADLINE_SECONDS,
        )
        begun = {WriteFileKind.REQUESTED, WriteFileKind.CLAIMED}
        wait_until(
            lambda: self.look() < 0 or not begun & self.pending(),
            "no write waits",
            timeout_seconds=DEADLINE_SECONDS,
        )
        last = self.committed() - 1
        if last < 0 or begun & self.pending():
            return
        for folder, first in (("offsets", last + 1), ("commits", last)):
            for path in (self._checkpoint / folder).iterdir():
                name = path.name.removeprefix(".").removesuffix(".crc")
                if name.isdecimal() and int(name) >= first:
                    path.unlink()
        self.counts["checkpoints put back"] += 1

    # Topics.

    @contextmanager
    def _owned(self) -> Iterator[Engine]:
        """Own the data directories during a `with` block, which begins once no other process has them."""
        config = EngineConfig(replication_factor=self.form.directories, **DUTIES)
        opened: list[Engine] = []

        def opens() -> bool:
            with suppress(DirectoryLockedError):
                replicated = self.form.directories > 1
                opened.append(open_directories(self.directories, replicated=replicated, config=config))
            return bool(opened)

        wait_until(opens, "nobody owns the directories", timeout_seconds=DEADLINE_SECONDS)
        with closing(opened[0]) as engine:
            yield engine

    def _feed(self) -> None:
        """Append rows to the source if it has fewer than AHEAD rows beyond those that the query has planned."""
        if self._fed >= self.planned() + AHEAD:
            return
        first = self._fed
        self._fed += self._chance.randint(LARGEST, AHEAD)
        with self._owned() if self.mount is None else nullcontext() as engine:
            for at in range(first, self._fed, CHUNK):
                lines = "".join(f"row {row}\n" for row in range(at, min(at + CHUNK, self._fed))).encode()
                number = at // CHUNK % PARTITIONS
                if engine is not None:
                    for batch in encode_lines(lines, timestamp=system_clock()):
                        engine.partition("source", number).append(batch)
                elif self.mount is not None:
                    with suppress(OSError), (self.mount.path / f"source/{number}/log").open("ab") as log:
                        log.write(lines)

    def look(self) -> int:
        """Check the target; return the source's number of rows, or -1 if the daemon was killed during the check.

        Raises AssertionError.
        """
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
        assert finished <= rows, f"the target has {rows} rows, but {finished} were committed"
        assert rows <= self.planned(), f"the target has {rows} rows, but {self.planned()} were planned"
        for number, one in target.items():
            self._seen.compare(number, one)
        known = {value for one in source.values() for _, value in one.records.values()}
        assert {value for one in target.values() for _, value in one.records.values()} <= known
        self.counts["looks"] += 1
        return sum(one.end for one in source.values())

    def finish(self) -> int:
        """Copy to the end without kills; return the number of rows. Raises AssertionError."""
        if self.mount is not None:
            self.kill_daemon()
            super().remount()
        if self.driver is None:
            self.start()
        assert self.driver is not None
        Path(f"{self._checkpoint}{END}").touch()
        assert 0 == self.driver.wait(DEADLINE_SECONDS), f"{self.said.read_text()}; see {self.log}"
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
        self.counts["skipped micro-batches"] += self.log.read_text().count("was committed before: skipped")
        return rows


def kill_once(scene: Copies, chance: random.Random) -> None:
    """Kill one process at a random moment, let the query continue, and check the target."""
    if scene.driver is None:
        scene.restart()
        scene.until_committed()
    if chance.random() < 0.15:
        scene.pause_owner()
    scene.until_moment(chance.choice(list(Moment)), chance)
    victim = chance.choices(("python", "driver", "daemon" if scene.mount else "python"), (76, 9, 15))[0]
    if victim == "python":
        victim = scene.kill_python()
        if not victim:
            scene.until_committed()
            return
    elif victim == "driver":
        scene.kill_driver()
    else:
        scene.kill_daemon()
        # For a random time the driver itself is the owner.
        time.sleep(chance.uniform(0, 1.5))
        scene.remount()
    scene.kills[victim] += 1
    if scene.driver is not None and chance.random() < 0.5:
        scene.until_committed()
    scene.look()


def run_scene(folder: Path, form: Form, kills: int, chance: random.Random) -> Copies:
    """Kill `kills` processes, copy to the end, check everything, and return the scene. Raises AssertionError."""
    scene = Copies(folder, form, chance)
    try:
        while scene.kills.total() < kills:
            kill_once(scene, chance)
        scene.counts["rows"] += scene.finish()
        scene.counts["micro-batches"] += scene.committed()
    finally:
        scene.clean_up()
    shutil.rmtree(folder)
    return scene


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


def soak(base: Path, kills: int, seed: int) -> None:
    """Kill `kills` processes, 25 in each scene; raises AssertionError."""
    for number in range((kills + 24) // 25):
        begun = time.monotonic()
        wanted = min(25, kills - 25 * number)
        scene = run_scene(
            base / str(number), FORMS[number % len(FORMS)], wanted, random.Random(seed + number)
        )
        found = f"{dict(scene.kills)}, {dict(scene.counts)}, {dict(scene.errors)}"
        say(f"{scene.form}: {found} in {time.monotonic() - begun:.0f} s")
