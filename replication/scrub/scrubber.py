"""The scrubber: a thread that periodically reads all logs, at idle I/O priority, and repairs damage if possible."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

from topicfs.replication.scrub.findings import ScrubCounts, ScrubFinding
from topicfs.replication.scrub.partition import PartitionScrub, ScrubbedLog, ScrubbedPartition, Tell
from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.directories.directories import Directories
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import Clock, FileSystem
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.engine import Topic
from topicfs.storage.errors import CorruptionError, Finding, StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.messages import ReportLine, printable, reason_of
from topicfs.storage.model import Timestamp, TopicPartition

_POSITION_VERSION = 1


class ScrubPosition(NamedTuple):
    """How far the scrub of a data directory has come, so that it continues after a restart.

        topicfs.scrub:  {"version": 1, "began": 1764086400000, "ended": null, "partition": "orders-0", "offset": 1048576,
                         "whole": true, "damaged": 0, "topic_id": "Fz8Xk0ZNTpWqC8yQWm1Q3A"}

    Brokers ignore the file. If it is lost, the next scrub starts from the beginning.
    """

    began: int
    """When the scrub began, in milliseconds since the epoch."""
    ended: int | None = None
    """When the scrub ended, in milliseconds since the epoch; None while it is in progress."""
    partition: str = ""
    """The partition being scrubbed, `<topic>-<number>`; empty before the first partition."""
    offset: int = 0
    """Base offset of the next segment to scrub."""
    whole: bool = False
    """True if no partition was skipped."""
    damaged: int = 0
    """Number of findings that are not repaired. Findings in the next segment may be counted again."""
    topic_id: str | None = None
    """Id of the partition's topic. If a newer topic has the name, its partition is scrubbed from its beginning."""

    def skips(self, partition: TopicPartition) -> bool:
        """Return whether the scrub has finished a partition. Partitions are scrubbed in the order of their names."""
        return str(partition) < self.partition

    def start_in(self, partition: TopicPartition, topic_id: str | None) -> int:
        """Return the offset from which to scrub a partition."""
        return self.offset if (str(partition), topic_id) == (self.partition, self.topic_id) else 0


def read_position(files: FileSystem, directory: Path) -> ScrubPosition | None:
    """Read a data directory's file; None if it is missing or invalid. Raises OSError."""
    path = directory / names.SCRUB
    if not files.exists(path):
        return None
    try:
        plain = json.loads(files.read_bytes(path))
        return _position(plain) if plain["version"] == _POSITION_VERSION else None
    except (CorruptionError, ValueError, KeyError, TypeError):
        return None


def write_position(files: FileSystem, directory: Path, position: ScrubPosition) -> None:
    """Write the file into a data directory (blocking). Raises OSError."""
    plain = {"version": _POSITION_VERSION, **position._asdict()}
    write_atomically(files, directory / names.SCRUB, json.dumps(plain).encode() + b"\n")


def _position(plain: dict[str, Any]) -> ScrubPosition:
    ended = plain["ended"]
    return ScrubPosition(
        began=int(plain["began"]),
        ended=None if ended is None else int(ended),
        partition=str(plain["partition"]),
        offset=max(int(plain["offset"]), 0),
        whole=bool(plain.get("whole", False)),
        damaged=int(plain.get("damaged", 0)),
        topic_id=plain.get("topic_id"),
    )


MILLISECONDS_AN_HOUR = 3_600_000
PAUSE_FACTOR = 99
"""The pause after a background step: 99 times the step's CPU time, and at least the step's duration.

So the scrub uses a hundredth of one CPU, which does not disturb appends, and half of the disk's time, at the lowest
priority.
"""
_SAVE_EVERY_SECONDS = 10.0
_MAX_KEPT_FINDINGS = 1000
"""How many findings of a scrub that a user started are remembered."""

_LOGGER = logging.getLogger(__name__)

Advance = Callable[[int], None]
"""Called with the number of bytes read since the last call."""


class Scrubber:
    """Scrubs the partitions of an engine, one scrub at a time."""

    def __init__(
        self,
        partitions: Callable[[], Iterable[ScrubbedPartition]],
        directories: Callable[[], Sequence[Path]],
        files: FileSystem,
        *,
        clock: Clock,
        warn: ReportLine,
    ) -> None:
        """Make the scrubber; `directories` returns the directories that store its position."""
        self._partitions = partitions
        self._directories = directories
        self._files = files
        self._clock = clock
        self._warn = warn
        self.counts = ScrubCounts()
        """Totals since the engine was opened."""
        self._running = Lock()
        self._starting = Lock()
        """Held while a thread is being started, so that `stop` waits for the start or prevents it."""
        self._stopping = Event()
        self._thread: Thread | None = None
        self._asked_for: Thread | None = None
        """The thread of the last scrub started by a user."""
        self._told: deque[str] = deque(maxlen=_MAX_KEPT_FINDINGS)
        """The newest findings of the last scrub started by a user."""
        self._at = ScrubPosition(0)
        """The position of the scrub in progress."""

    # Periodic scrubs.

    def maintain(self, now: Timestamp, interval_hours: int) -> None:
        """Start or continue a scrub in a thread if one is due; `interval_hours` 0 means never (blocks briefly)."""
        if interval_hours <= 0 or self._stopping.is_set() or not isinstance(self._files, NativeFileSystem):
            return
        if self._thread is not None and self._thread.is_alive():
            return
        position = self.position()
        if position is None:
            # The first scrub is due after the first interval.
            self._save(ScrubPosition(began=now, ended=now))
        elif position.ended is None or not 0 <= now - position.ended < interval_hours * MILLISECONDS_AN_HOUR:
            with self._starting:
                if not self._stopping.is_set():
                    self._thread = Thread(target=self._run_idly, name="scrub", daemon=True)
                    self._thread.start()

    def _run_idly(self) -> None:
        become_idle()
        try:
            self.run(rests=PAUSE_FACTOR, only_open=True)
        except (OSError, StorageError) as error:
            if not self._stopping.is_set():
                self._warn(f"scrub: {reason_of(error)}")

    def stop(self) -> None:
        """Stop a scrub after its present step, and let no other scrub start (blocking)."""
        with self._starting:
            self._stopping.set()
        for thread in (self._thread, self._asked_for):
            if thread is not None:
                thread.join()

    # Scrubs started by a user.

    def start(self) -> None:
        """Implements `coordination.engine.ScrubOnDemand.start`."""
        with self._starting:
            if not self._stopping.is_set() and not self._is_asked_for:
                self._told.clear()
                self._asked_for = Thread(target=self._run_asked_for, name="scrub-now", daemon=True)
                self._asked_for.start()

    @property
    def _is_asked_for(self) -> bool:
        return self._asked_for is not None and self._asked_for.is_alive()

    def _run_asked_for(self) -> None:
        become_idle()
        try:
            with (
                self._running
            ):  # If a periodic scrub is in progress, it first runs to its end, from now on without pauses.
                self.restart()
            self.run(tell=lambda found: self._told.append(str(found)))
        except (OSError, StorageError) as error:
            self._told.append(f"scrub: {reason_of(error)}")

    def report(self) -> list[str]:
        """Implements `coordination.engine.ScrubOnDemand.report`."""
        state = "running" if self._is_asked_for else "idle"
        counts = [f"scrub {self.line}"] if self.line else []
        return [f"state {state}", *counts, f"damaged {self.damaged}", *(f"found {one}" for one in self._told)]

    # The scrub itself.

    def position(self) -> ScrubPosition | None:
        """Return the position of the last scrub; None if there was none. Raises OSError."""
        found = [read_position(self._files, directory) for directory in self._directories()]
        return max(
            (one for one in found if one is not None),
            key=lambda one: (one.began, one.ended is not None, one.partition, one.offset),
            default=None,
        )

    @property
    def line(self) -> str | None:
        """The totals since the engine was opened, as a line; None if nothing was scrubbed or repaired."""
        counts = self.counts
        if not counts.read_bytes:
            return None
        return (
            f"read_bytes {counts.read_bytes} batches_healed {counts.batches_healed} "
            f"files_healed {counts.files_healed} damaged {counts.damaged}"
        )

    def restart(self) -> None:
        """Let the next scrub start from the beginning, even if the last scrub was interrupted (blocking)."""
        now = self._clock()
        self._save(ScrubPosition(now, ended=now))

    def total_bytes(self) -> int:
        """Return the approximate number of bytes that the next full scrub will read from all replicas (blocking)."""
        position = self._begun(only_open=False)
        left = [one for one in self._partitions() if not position.skips(one.name)]
        return sum(replica.log.parts.state.log_bytes() for one in left for replica in one.replicas())

    def run(
        self,
        *,
        rests: int = 0,
        only_open: bool = False,
        advance: Advance = lambda _: None,
        tell: Tell = lambda _: None,
    ) -> bool:
        """Continue an interrupted scrub, or scrub everything; return whether the scrub was completed (blocking).

        Starts over if the interrupted scrub skipped partitions and this scrub does not. After each step, pauses for
        `rests` times the step's CPU time. With `only_open`, skips partitions that nobody has opened. Findings are
        logged and passed to `tell`. Raises OSError.
        """
        with self._running:
            self._at = self._begun(only_open=only_open)
            self._save(self._at)
            try:
                for partition in sorted(self._partitions(), key=lambda one: str(one.name)):
                    if not self._at.skips(partition.name) and (partition.is_open or not only_open):
                        scrub = PartitionScrub(partition, self.counts, lambda found: self._found(found, tell))
                        self._scrub(partition, scrub, rests, advance)
                    if self._stopping.is_set():
                        return False
                self._at = self._at._replace(ended=self._clock(), partition="", offset=0)
                return True
            finally:
                self._save(self._at)

    def _begun(self, *, only_open: bool) -> ScrubPosition:
        """Return the position of an interrupted scrub that can be continued, else the position of a new scrub."""
        found = self.position()
        if found is None or found.ended is not None or not (found.whole or only_open):
            return ScrubPosition(self._clock(), whole=not only_open)
        return found._replace(whole=not only_open)

    @property
    def damaged(self) -> int:
        """Number of findings of the last scrub that were not repaired, including findings before an interruption."""
        return self._at.damaged

    def _found(self, found: ScrubFinding, tell: Tell) -> None:
        if found.healed_from is None:
            self._at = self._at._replace(damaged=self._at.damaged + 1)
        self.tell_owner(found)
        tell(found)

    def _scrub(
        self, partition: ScrubbedPartition, scrub: PartitionScrub, rests: int, advance: Advance
    ) -> None:
        """Scrub a partition until its end or until `stop` is called."""
        saved = began = time.monotonic()
        worked = time.thread_time()
        before = self.counts.read_bytes
        try:
            name, topic_id = partition.name, partition.topic_id
            for base in scrub.run(self._at.start_in(name, topic_id)):
                self._at = self._at._replace(partition=str(name), offset=base, topic_id=topic_id)
                advance(self.counts.read_bytes - before)
                before = self.counts.read_bytes
                if rests and not self._is_asked_for:
                    took = max(rests * (time.thread_time() - worked), time.monotonic() - began)
                    self._stopping.wait(took)
                if self._stopping.is_set():
                    return
                began, worked = time.monotonic(), time.thread_time()
                if began - saved > _SAVE_EVERY_SECONDS:
                    self._save(self._at)
                    saved = began
        except (OSError, StorageError) as error:
            # Continue with the other partitions. If the topic was deleted meanwhile, there is no damage to
            # report.
            if any((one.name, one.topic_id) == (name, topic_id) for one in self._partitions()):
                scrub.report_end(reason_of(error))

    def tell_owner(self, found: ScrubFinding) -> None:
        """Log a repair; report unrepaired damage as a warning."""
        if found.healed_from is None:
            self._warn(str(found))
        else:
            _LOGGER.warning("%s", printable(str(found)))

    def _save(self, position: ScrubPosition) -> None:
        for directory in self._directories():
            try:
                write_position(self._files, directory, position)
            except OSError as error:
                self._warn(f"scrub position: {reason_of(error)}")


def scrubber_of_logs(
    topics: Callable[[], Mapping[str, Topic]], directories: Directories, warn: ReportLine
) -> Scrubber:
    """Return the scrubber for an engine that has one copy of each partition."""
    return Scrubber(
        lambda: _scrubbed_logs(topics()),
        lambda: [one.data.path for one in directories.online],
        directories.files,
        clock=directories.clock,
        warn=warn,
    )


def _scrubbed_logs(topics: Mapping[str, Topic]) -> Iterator[ScrubbedPartition]:
    """Yield the partitions, each with its only log. If a partition is not open, asking for its log opens it."""
    for topic in topics.values():
        opened = {one.number for one in topic.opened()}
        for number in topic.partitions():
            yield ScrubbedPartition(
                name=TopicPartition(topic.name, number),
                replicas=partial(_only, topic, number),
                guard=nullcontext,
                absent=partial(_unread, topic, number),
                topic_id=topic.topic_id,
                is_open=number in opened,
            )


def _only(topic: Topic, number: int) -> list[ScrubbedLog]:
    found = topic.partitions().get(number)
    return [ScrubbedLog(str(found.directory.parent), found)] if isinstance(found, Log) else []


def _unread(topic: Topic, number: int) -> list[Finding]:
    """Return a finding for a partition that is offline, because its records cannot be checked."""
    found = topic.partitions().get(number)
    if found is None or (
        isinstance(found, Log) and (found.offline_reason is None or found.parts.life.now.is_final)
    ):
        return []
    assert found.directory is not None
    return [Finding(found.directory, None, found.status().state)]


def become_idle() -> None:
    """Give this thread idle I/O priority with util-linux's ionice, because Python has no function for it.

    The thread's CPU priority does not change.
    """
    program = shutil.which("ionice")
    if program is None:
        return
    command = [program, "-c", "3", "-p", str(threading.get_native_id())]
    # The priority only helps other processes: if ionice cannot be started, scrub at normal priority.
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, check=False, capture_output=True, timeout=10)  # noqa: S603 - words of its own, no shell
