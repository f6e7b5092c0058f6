"""The scrubber: a thread that reads everything now and then, at idle I/O priority, and heals what it can."""

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
from topicfs.replication.scrub.partition import PartitionScrub, ScrubbedLog, ScrubbedPartition
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
    """The position of a data directory's scrub, which goes on there after a restart.

        topicfs.scrub:  {"version": 1, "began": 1764086400000, "ended": null, "partition": "orders-0", "offset": 1048576,
                         "whole": true, "damaged": 0, "topic_id": "Fz8Xk0ZNTpWqC8yQWm1Q3A"}

    A broker passes the file over. If it is lost, the next scrub begins at the front.
    """

    began: int
    """Time in milliseconds since the epoch; likewise `ended`."""
    ended: int | None = None
    """None while it goes on."""
    partition: str = ""
    """`<topic>-<number>`; empty: the first one."""
    offset: int = 0
    """Base offset of the segment that is next."""
    whole: bool = False
    """True if no partition was passed over."""
    damaged: int = 0
    """Findings that could not be healed so far; those in the segment that is next may be found, and counted, again."""
    topic_id: str | None = None
    """Id of the partition's topic: one of the same name that was created since is scrubbed from its front."""

    def skips(self, partition: TopicPartition) -> bool:
        """Return whether the scrub has been through a partition: they are taken in the order of their names."""
        return str(partition) < self.partition

    def start_in(self, partition: TopicPartition, topic_id: str | None) -> int:
        """Return the offset from which on a partition of a topic is scrubbed."""
        return self.offset if (str(partition), topic_id) == (self.partition, self.topic_id) else 0


def read_position(files: FileSystem, directory: Path) -> ScrubPosition | None:
    """Return what the file of a data directory says; None where there is none, or where it says nothing of sense (OSError)."""
    path = directory / names.SCRUB
    if not files.exists(path):
        return None
    try:
        plain = json.loads(files.read_bytes(path))
        return _position(plain) if plain["version"] == _POSITION_VERSION else None
    except (CorruptionError, ValueError, KeyError, TypeError):
        return None


def write_position(files: FileSystem, directory: Path, position: ScrubPosition) -> None:
    """Put it into a data directory (OSError; blocking)."""
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
"""A step of the duty is followed by a rest as many times as long as the processor took for it, and at least as long as it took:
a hundredth of one processor, so that appends notice nothing, and half of the disk's time, which others have before it.
"""
_SAVE_EVERY_SECONDS = 10.0
_MAX_KEPT_FINDINGS = 1000
"""Findings of a scrub that was asked for that are remembered."""

_LOGGER = logging.getLogger(__name__)

Tell = Callable[[ScrubFinding], None]
Advance = Callable[[int], None]
"""Called with the bytes that were read since the last call."""


class Scrubber:
    """Scrubs the partitions of an engine. One scrub goes on at a time."""

    def __init__(
        self,
        partitions: Callable[[], Iterable[ScrubbedPartition]],
        directories: Callable[[], Sequence[Path]],
        files: FileSystem,
        *,
        clock: Clock,
        warn: ReportLine,
    ) -> None:
        """Make the scrubber; `directories` returns those that keep its position now."""
        self._partitions = partitions
        self._directories = directories
        self._files = files
        self._clock = clock
        self._warn = warn
        self.counts = ScrubCounts()
        """Counts since the engine was opened."""
        self._running = Lock()
        self._starting = Lock()
        """Held while the thread is started: a close waits for it, or it is not started any more."""
        self._stopping = Event()
        self._thread: Thread | None = None
        self._asked_for: Thread | None = None
        """The thread of the last scrub that somebody asked for."""
        self._told: deque[str] = deque(maxlen=_MAX_KEPT_FINDINGS)
        """What it found, the newest."""
        self._at = ScrubPosition(0)
        """Where the scrub is that goes on."""

    # The duty.

    def maintain(self, now: Timestamp, interval_hours: int) -> None:
        """Begin a scrub, or go on with one, in a thread where one is due; 0 hours: never (blocking, not for long)."""
        if interval_hours <= 0 or self._stopping.is_set() or not isinstance(self._files, NativeFileSystem):
            return
        if self._thread is not None and self._thread.is_alive():
            return
        position = self.position()
        if position is None:
            # The first one is due an interval from now.
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
        """End a scrub that goes on, after the step that it is at, and begin no other (blocking)."""
        with self._starting:
            self._stopping.set()
        for thread in (self._thread, self._asked_for):
            if thread is not None:
                thread.join()

    # One that is asked for.

    def start(self) -> None:
        """See `coordination.engine.ScrubOnDemand`."""
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
            with self._running:  # The duty goes on to its end first, and rests no more.
                self.restart()
            self.run(tell=lambda found: self._told.append(str(found)))
        except (OSError, StorageError) as error:
            self._told.append(f"scrub: {reason_of(error)}")

    def report(self) -> list[str]:
        """See `coordination.engine.ScrubOnDemand`."""
        state = "running" if self._is_asked_for else "idle"
        counts = [f"scrub {self.line}"] if self.line else []
        return [f"state {state}", *counts, f"damaged {self.damaged}", *(f"found {one}" for one in self._told)]

    # A scrub.

    def position(self) -> ScrubPosition | None:
        """Return where the last scrub stands; None where there was none (OSError)."""
        found = [read_position(self._files, directory) for directory in self._directories()]
        return max(
            (one for one in found if one is not None),
            key=lambda one: (one.began, one.ended is not None, one.partition, one.offset),
            default=None,
        )

    @property
    def line(self) -> str | None:
        """The counts since the engine was opened, as a line; None where nothing was scrubbed or healed."""
        counts = self.counts
        if not counts.read_bytes:
            return None
        return (
            f"read_bytes {counts.read_bytes} batches_healed {counts.batches_healed} "
            f"files_healed {counts.files_healed} damaged {counts.damaged}"
        )

    def restart(self) -> None:
        """Have the next scrub begin at the front, though the last one was interrupted (blocking)."""
        now = self._clock()
        self._save(ScrubPosition(now, ended=now))

    def total_bytes(self) -> int:
        """Return the bytes of all replicas' logs that the next scrub of everything will read, about (blocking)."""
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
        """Scrub what is left of the last scrub, or everything; return whether it came to its end (OSError; blocking).

        Everything, too, if the last scrub passed partitions over and this one does not. After each step it rests
        `rests` times its processor time. `only_open`: pass over partitions that nobody has opened. Findings are
        logged and passed to `tell`.
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
        """Return where the last scrub was interrupted, if this one may go on there; else the position of a new one."""
        found = self.position()
        if found is None or found.ended is not None or not (found.whole or only_open):
            return ScrubPosition(self._clock(), whole=not only_open)
        return found._replace(whole=not only_open)

    @property
    def damaged(self) -> int:
        """Number of findings of the last scrub that could not be healed, those before an interruption among them."""
        return self._at.damaged

    def _found(self, found: ScrubFinding, tell: Tell) -> None:
        if found.healed_from is None:
            self._at = self._at._replace(damaged=self._at.damaged + 1)
        self.tell_owner(found)
        tell(found)

    def _scrub(
        self, partition: ScrubbedPartition, scrub: PartitionScrub, rests: int, advance: Advance
    ) -> None:
        """Scrub a partition, unless it is stopped meanwhile."""
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
            # The other partitions are scrubbed all the same. A topic that was deleted meanwhile is not damaged.
            if any((one.name, one.topic_id) == (name, topic_id) for one in self._partitions()):
                scrub.report_end(reason_of(error))

    def tell_owner(self, found: ScrubFinding) -> None:
        """Tell the log what was healed, and as a warning what was not."""
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
    """Return the scrubber of an engine that has each partition once."""
    return Scrubber(
        lambda: _scrubbed_logs(topics()),
        lambda: [one.data.path for one in directories.online],
        directories.files,
        clock=directories.clock,
        warn=warn,
    )


def _scrubbed_logs(topics: Mapping[str, Topic]) -> Iterator[ScrubbedPartition]:
    """Yield the partitions of which there is one log each; one that nobody has opened is opened where it is asked for."""
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
    """Return a finding for a partition that is offline: nobody knows whether its records are sound."""
    found = topic.partitions().get(number)
    if found is None or (
        isinstance(found, Log) and (found.offline_reason is None or found.parts.life.now.is_final)
    ):
        return []
    assert found.directory is not None
    return [Finding(found.directory, None, found.status().state)]


def become_idle() -> None:
    """Give the calling thread idle I/O priority by util-linux's ionice, for Python has no call; CPU priority stays."""
    program = shutil.which("ionice")
    if program is None:
        return
    command = [program, "-c", "3", "-p", str(threading.get_native_id())]
    # It is only kinder to others: a machine that has no process left for it must not cost the scrub.
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, check=False, capture_output=True, timeout=10)  # noqa: S603 - words of its own, no shell
