"""The main loop of a mirror: in each round it asks each broker once for new records of the partitions it leads.

Topics are changed between rounds, in one thread. In a round, each broker has its own thread and each partition has
one leader, so no partition is handled by two threads at the same time. After a round without new records, the
requests let the brokers wait for new records before they answer.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from topicfs.cluster.brokers import fetch
from topicfs.cluster.brokers.brokers import Backoff, Brokers, Leader, Metadata
from topicfs.cluster.errors import LEADER_NOT_AVAILABLE, MirrorError, UnreachableError, error_of
from topicfs.cluster.mirror.copy import MirroredPartition
from topicfs.cluster.mirror.journal import MirrorJournal
from topicfs.cluster.mirror.topics import TopicCopies, TopicNames
from topicfs.cluster.protocol.connection import MAX_THROTTLE_SECONDS
from topicfs.replication import open_engine
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.directories.contents import find_partitions
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.errors import ClusterError, NotAuthorizedError
from topicfs.storage.manager import LogManager
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import Isolation, TopicPartition

MIRROR_FETCH_BYTES = 32 << 20
"""Size limit of one broker's answer."""
MIRROR_POLL_MS = 1000
"""How long a broker may wait for new records. Each answer, however small, costs a pass over all copies."""
TOPIC_POLL_SECONDS = 5.0
"""Interval for refreshing the topics."""
LEADER_RETRY_SECONDS = 0.25
"""Interval for refreshing the topics while a partition's leader is unknown."""
IDLE_TIMEOUT_SECONDS = 60.0
"""Time without new records after which a run with `once` gives up."""
MAX_FETCH_THREADS = 16
TOLD_THROTTLE_SECONDS = 30.0
"""The shortest throttle time that is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """The options of a mirror: what to copy, from where, and when to end."""

    names: TopicNames = field(default_factory=TopicNames)
    begin: int = fetch.EARLIEST
    """First offset of a new copy: EARLIEST, LATEST, or a timestamp in milliseconds."""
    once: bool = False
    """True: end once the copies have reached the high watermarks that the source had at the start."""
    throttle: int | None = None
    """Maximum number of bytes fetched per second."""
    metadata_seconds: float = TOPIC_POLL_SECONDS
    idle_timeout_seconds: float = IDLE_TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a run."""

    topics: int
    partitions: int
    copied_bytes: int
    problems: tuple[str, ...]
    """Why partitions are incomplete, one text for each reason."""


def mirror(
    directory: Path, brokers: Brokers, options: MirrorOptions, report: ReportLine, stop: threading.Event
) -> Summary:
    """Copy topics into a data directory until `stop` is set, or with `once` until they are complete (blocking).

    Raises UnreachableError at the start; later it waits for the cluster. Raises MirrorError if the directory does not
    belong to this mirror, DirectoryLockedError, OSError. The next run continues after the records copied so far.
    """
    metadata = brokers.metadata()
    journal = _own_journal(directory, metadata)
    config = EngineConfig(follows=True, creation_overrides={})
    with closing(open_engine(directory, config=config, max_opened_at_start=sys.maxsize)) as engine:
        topics = TopicCopies(engine, directory, brokers, options.names, report)
        topics.take_over(journal)
        topics.follow(metadata)
        run = _MirrorRun(engine, topics, brokers, options, stop)
        run.rounds(metadata)
        ends = topics.ends()
    # Write the journal after the close: it may only mention data that is on disk.
    replace(topics.journal, ends=ends).write(directory, NativeFileSystem())
    return run.summary()


def _own_journal(directory: Path, metadata: Metadata) -> MirrorJournal:
    """Return the directory's journal; for a new directory, return a new journal. Raises MirrorError."""
    files = NativeFileSystem(read_only=True)
    if not metadata.cluster_id:
        raise MirrorError("the cluster reports no id, which a mirror needs")
    journal = MirrorJournal.read(directory, files) or MirrorJournal(metadata.cluster_id)
    if journal.cluster_id != metadata.cluster_id:
        raise MirrorError(
            f"{directory}: a mirror of the cluster {journal.cluster_id}, not of {metadata.cluster_id}; "
            f"mirror into another directory"
        )
    # Check before the engine opens the directory, because opening already adds settings for the topics in it.
    topics = {one.topic for one in find_partitions(files, [directory])} if files.exists(directory) else set()
    for name in sorted(topics - journal.topics.keys()):
        raise MirrorError(
            f"{directory}: has topic {name}, which the mirror did not create; mirror into another directory"
        )
    return journal


class _MirrorRun:
    """One run of a mirror."""

    def __init__(
        self,
        engine: LogManager,
        topics: TopicCopies,
        brokers: Brokers,
        options: MirrorOptions,
        stop: threading.Event,
    ) -> None:
        self._engine, self._topics, self._brokers = engine, topics, brokers
        self._options, self._stop = options, stop
        self._resume_at: dict[int, float] = defaultdict(float)
        """When each broker may be asked again."""
        self._backoff: dict[int, Backoff] = defaultdict(Backoff)
        self._sessions: dict[int, fetch.FetchSession] = {}
        self._most_bytes = min(MIRROR_FETCH_BYTES, options.throttle or MIRROR_FETCH_BYTES)

    def rounds(self, metadata: Metadata) -> None:
        options, wait_ms = self._options, 0
        looked = last_news = time.monotonic()
        with ThreadPoolExecutor(MAX_FETCH_THREADS, thread_name_prefix="mirror") as threads:
            while not self._stop.is_set():
                began, copies = time.monotonic(), self._copies_by_leader(metadata)
                came = sum(threads.map(partial(self._serve, wait_ms=wait_ms), copies, copies.values()))
                self._topics.note_placed()
                self._engine.maintenance(system_clock())
                ended = all(one.complete or one.refused for one in self._topics.copies.values())
                if options.once and ended and not self._topics.disputed:
                    return
                if came and options.throttle:
                    self._stop.wait(began + came / options.throttle - time.monotonic())
                now = time.monotonic()
                last_news = now if came else last_news
                if options.once and now - last_news > options.idle_timeout_seconds:
                    return
                wait_ms = 0 if came else MIRROR_POLL_MS
                if not copies:
                    self._stop.wait(MIRROR_POLL_MS / 1000)
                stale = self._topics.disputed or any(one.stale for one in self._topics.copies.values())
                if now - looked > (
                    min(LEADER_RETRY_SECONDS, options.metadata_seconds) if stale else options.metadata_seconds
                ):
                    looked, metadata = now, self._look(metadata)

    def summary(self) -> Summary:
        copies = self._topics.copies.values()
        incomplete = [
            one.problem or f"{one.partition}: no answer from a leader" for one in copies if not one.complete
        ]
        incomplete += self._topics.disputed.values()
        return Summary(
            topics=len({one.partition.topic for one in copies}),
            partitions=len(copies),
            copied_bytes=sum(one.copied_bytes for one in copies),
            problems=tuple(incomplete if self._options.once else ()),
        )

    def _look(self, metadata: Metadata) -> Metadata:
        """Refresh the metadata and apply changed topics; return the old metadata if the cluster is unreachable."""
        try:
            metadata = self._brokers.metadata(seconds=TOPIC_POLL_SECONDS)
            self._topics.follow(metadata)
        except ClusterError as error:
            self._topics.say_once("metadata", str(error))
            return metadata
        for one in self._topics.copies.values():
            one.stale = False
        self._topics.say_once("metadata", None)
        return metadata

    def _copies_by_leader(self, metadata: Metadata) -> dict[int, list[tuple[MirroredPartition, Leader]]]:
        """Return the copies to fetch, grouped by the broker that leads them.

        The copies that have waited longest come first. Paused copies are left out.
        """
        found: dict[int, list[tuple[MirroredPartition, Leader]]] = defaultdict(list)
        now = time.monotonic()
        for copy in sorted(self._topics.copies.values(), key=lambda one: one.served_at):
            leader = metadata.leader(copy.partition)
            if leader.node in metadata.brokers:
                if copy.due and now >= self._resume_at[leader.node]:
                    found[leader.node].append((copy, leader))
            elif copy.due:
                copy.failed(error_of(LEADER_NOT_AVAILABLE, str(copy.partition)), code=LEADER_NOT_AVAILABLE)
        return found

    def _serve(self, node: int, copies: Sequence[tuple[MirroredPartition, Leader]], *, wait_ms: int) -> int:
        """Fetch records for `copies` from one broker; return the number of bytes that advanced them (blocking)."""
        leaders = {copy.partition: (copy, leader) for copy, leader in copies}
        try:
            for copy, leader in copies:
                if not copy.verified and copy.due:
                    copy.verify(self._brokers, leader)
            self._place(node, [copy for copy, _ in copies if not copy.placed])
            wanted = [
                copy.wanted(leader) for copy, leader in copies if copy.placed and copy.verified and copy.due
            ]
            if not wanted:
                return 0
            session = self._sessions.setdefault(
                node, fetch.FetchSession(self._brokers, node, Isolation.READ_UNCOMMITTED)
            )
            answer = session.fetch(wanted, max_bytes=self._most_bytes, wait_ms=wait_ms)
            self._throttled(node, leaders.values(), answer)
            came = self._take(answer, leaders)
            # A throttled answer omits all partitions.
            if not answer.throttle_ms:
                self._note_epochs(
                    node, [(copy, leader) for copy, leader in copies if copy.lacks_epoch(leader)]
                )
                for one in wanted if not any(len(one.records) for one in answer.partitions.values()) else ():
                    leaders[one.partition][0].has_all(answer.partitions.get(one.partition))
        except (MirrorError, NotAuthorizedError):
            raise
        except ClusterError as error:
            # End the session: the broker counts the whole answer as received. It would not send the records
            # again that this error left unapplied.
            self._sessions.pop(node, None)
            self._unanswered(node, [copy for copy, _ in copies], error)
            return 0
        self._backoff.pop(node, None)
        self._topics.say_once(f"broker {node}", None)
        return came

    def _throttled(
        self, node: int, copies: Iterable[tuple[MirroredPartition, Leader]], answer: fetch.FetchAnswer
    ) -> None:
        """Pause for the broker's throttle time, and report it if it is long or stops the copies."""
        seconds = answer.throttle_ms / 1000
        self._resume_at[node] = time.monotonic() + min(seconds, MAX_THROTTLE_SECONDS)
        text = f"broker {node}: the quota of this client is used up; ask for a larger consumer_byte_rate"
        if answer.throttle_ms and not answer.partitions:
            for copy, _ in copies:
                copy.problem = f"{copy.partition}: {text}"
        if seconds >= TOLD_THROTTLE_SECONDS or answer.partitions:
            self._topics.say_once(f"quota of {node}", None if answer.partitions else text)

    def _take(
        self, answer: fetch.FetchAnswer, leaders: Mapping[TopicPartition, tuple[MirroredPartition, Leader]]
    ) -> int:
        """Apply an answer to the copies; return the number of bytes that advanced them (blocking)."""
        came = 0
        for partition, fetched in answer.partitions.items():
            copy, leader = leaders[partition]
            before = copy.log.log_end_offset
            copy.take(fetched, self._brokers, leader)
            if copy.log.log_end_offset != before:
                came += max(1, len(fetched.records))
                copy.served_at = time.monotonic()
        return came

    def _note_epochs(self, node: int, copies: Sequence[tuple[MirroredPartition, Leader]]) -> None:
        """Ask for the ends of those leader epochs in which no batch has been written yet."""
        if copies:
            epochs = {copy.partition: leader.epoch for copy, leader in copies}
            ends = fetch.epoch_ends(self._brokers, node, epochs, epochs)
            for copy, leader in copies:
                copy.note_epoch(leader, ends.get(copy.partition))

    def _place(self, node: int, copies: Sequence[MirroredPartition]) -> None:
        """Find the first offsets of new copies."""
        if not copies:
            return
        partitions = [copy.partition for copy in copies]
        found = fetch.list_offsets(self._brokers, node, partitions, self._options.begin)
        if self._options.begin not in (fetch.EARLIEST, fetch.LATEST):
            late = [one for one, bound in found.items() if not bound.error and bound.offset < 0]
            found |= fetch.list_offsets(self._brokers, node, late, fetch.LATEST) if late else {}
        for copy in copies:
            bound = found[copy.partition]
            if bound.error:
                copy.failed(error_of(bound.error, str(copy.partition)), code=bound.error)
            else:
                copy.place(bound.offset)

    def _unanswered(self, node: int, copies: Sequence[MirroredPartition], error: ClusterError) -> None:
        backoff = self._backoff[node]
        self._resume_at[node] = time.monotonic() + backoff.next()
        if backoff.failures > 1 or not isinstance(error, UnreachableError):
            self._topics.say_once(f"broker {node}", str(error))
        for copy in copies:
            copy.stale, copy.problem = True, str(error)
