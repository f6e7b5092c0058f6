"""The protocol of topics and their logs; `coordination.engine` is that of a whole engine, with groups, queues and replicas.

The log engine (`storage.manager`) implements it over a data directory; another engine, such as a Kafka
cluster, can stand in its place. All calls are synchronous and safe from any thread. Those marked *blocking* may
wait for the disk for long and belong into a thread; the others answer in microseconds.

An engine that is `remote` may have to wait for its answers, and promises this:

* *known*: what is so marked never waits, and raises nothing but what is said there. It is what the engine was last
  told, by whatever keeps it up to date without being asked; listeners are called when it changes. A topic is listed with
  all its partitions. Of one whose leader has not answered yet `unknown` has the reason.
* *asked*: what is so marked may wait. Before it waits it calls the hook of `storage.remote.RemoteEngine`.
* What changes something waits: it is called in threads that may wait. When it returns, what is *known* shows it.

Each wait has an end: what does not answer in time raises PartitionOfflineError, as does every call after `close`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from topicfs.storage.codec.records import FoundRecord
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.listing import ShownSetting
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.counts.engine_counts import EngineCounts
from topicfs.storage.model import (
    Appended,
    DirectoryStatus,
    Fetched,
    Isolation,
    Offset,
    PartitionGlance,
    PartitionOffsets,
    PartitionStatus,
    SegmentInfo,
    Timestamp,
    TimestampOffset,
)

Cancel: TypeAlias = Callable[[], None]
"""Cancels what the call that returned it began. Idempotent."""


class Listeners:
    """A set of callables as an immutable tuple: calling them needs no lock, and one may cancel itself meanwhile."""

    __slots__ = ("_listeners", "_lock")

    def __init__(self) -> None:
        self._listeners: tuple[tuple[object, Callable[[], None]], ...] = ()
        self._lock = threading.Lock()

    def add(self, listener: Callable[[], None]) -> Cancel:
        """Call `listener` from now on, until the returned callable is called. The same listener may be added twice."""
        mark = object()
        with self._lock:
            self._listeners = (*self._listeners, (mark, listener))

        def cancel() -> None:
            with self._lock:
                self._listeners = tuple(entry for entry in self._listeners if entry[0] is not mark)

        return cancel

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def notify(self) -> None:
        for _, listener in self._listeners:
            listener()


class Partition(Protocol):
    @property
    def topic(self) -> str:
        """Name of the topic (*known*)."""

    @property
    def number(self) -> int:
        """Number of the partition in its topic (*known*)."""

    @property
    def config(self) -> TopicConfig:
        """The topic's settings as they are now (*asked*)."""

    @property
    def directory(self) -> Path | None:
        """The directory of the partition's files; None for an engine that has none (*known*)."""

    @property
    def rewrites(self) -> int:
        """Number of compactions and `cuts`: after each, positions counted before are not valid. Listeners are notified (*known*)."""

    cuts: tuple[Offset, ...]
    """Offsets from which on visible records were lost in unclean elections, a new tuple after each (*known*)."""

    @property
    def log_start_offset(self) -> Offset:
        """Earliest readable offset: what `offsets` says, for callers that ask at each read and append (*known*)."""

    @property
    def newest_timestamp(self) -> Timestamp:
        """The largest timestamp; -1 where none has one, or a remote engine has seen none (*known*)."""

    @property
    def unknown(self) -> str | None:
        """The reason why `offsets` says nothing of the records: no log was loaded, or no leader has answered; None: it does (*known*)."""

    def find_bounds(self) -> None:
        """Wait until `offsets` is known (*asked*). Raises PartitionOfflineError, PartitionGoneError, NotAuthorizedError."""

    def offsets(self) -> PartitionOffsets:
        """Return log start, last stable offset, high watermark and log end (*known*). While `unknown` has a reason the range is empty."""

    def visible_end(self, isolation: Isolation) -> Offset:
        """Return the exclusive end of what a reader sees: what `offsets` says, for callers that ask at each read (*known*)."""

    def glance(self) -> PartitionGlance:
        """Return what those need who look at all partitions again and again (*known*)."""

    def status(self) -> PartitionStatus:
        """Return the state of the partition; each segment is looked up on the disk (*asked*)."""

    def check_in_sync(self) -> None:
        """Raise NotEnoughReplicasError with fewer in sync than min.insync.replicas; remote ones never do (*known*)."""

    def append(self, batches: bytearray, *, durable: bool = False, encoded_here: bool = False) -> Appended:
        """Append whole v2 batches as a leader does: all of them or none; a remote engine may raise PartlyAppendedError.

        Offsets, leader epoch and, where the topic says so, timestamps are patched in `batches`. On return readers see
        them; with `durable` they are on disk (blocking). `encoded_here`: this process's codec just made them, so
        headers need no check. Batches that an idempotent producer appended before (its last five) are left out.

        Raises InvalidRecordError, InvalidTimestampError, RecordTooLargeError, ProducerFencedError,
        OutOfOrderSequenceError, PartitionOfflineError, ReadOnlyError, OSError (ENOSPC, EIO): nothing is kept.
        NotEnoughReplicasAfterAppendError (`durable`): all is kept, on too few replicas.
        """

    def read(
        self,
        offset: Offset,
        *,
        max_bytes: int,
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> Fetched:
        """Return whole batches from the one that holds `offset` on (*asked*). Checksums are not checked.

        At least one batch where there is one, else at most `max_bytes`; nothing at or above the visible end. Raises
        OffsetOutOfRangeError outside of the log, CorruptionError for a torn file.
        """

    def available_end(self, offset: Offset) -> Offset:
        """Return the end of what `read` gives from `offset` on without waiting; not remote: the log end (*known*)."""

    def offset_for_timestamp(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int | None = None,
    ) -> TimestampOffset | None:
        """Return the first visible record at or after `timestamp` (*asked*); SearchTooLongError beyond about `max_bytes`."""

    def record_at(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int | None = None,
    ) -> FoundRecord | TimestampOffset | None:
        """Do what `offset_for_timestamp` does; a record that the search has decoded is returned itself, if readers see it (*asked*)."""

    def segments(self) -> Sequence[SegmentInfo] | None:
        """Return the segments, the oldest first and the active one last: a snapshot. None, at once, without a `directory`."""

    def segment_of(self, name: str) -> SegmentInfo | None:
        """Return the segment that a file of that name belongs to now; None where there is no such file, or no longer."""

    def open_segment_file(self, name: str) -> memoryview:
        """Return one of the files in `SegmentInfo.files`, mapped read-only (SegmentDeletedError)."""

    def delete_records(self, before: Offset) -> Offset:
        """Move the log start offset up to `before` (-1: to the high watermark); returns the new one (kafka-storage.md#deleting-records).

        Raises OffsetOutOfRangeError beyond the high watermark, PolicyViolationError on compact-only topics.
        """

    def sync(self) -> None:
        """Put everything appended so far on disk (blocking). OSError takes the partition offline, for data may be lost.

        NotEnoughReplicasError: too few replicas have it on disk; a later call may succeed.
        """

    def listen(self, listener: Callable[[], None]) -> Cancel:
        """Call `listener`, which must be quick, after the visible end or log start moved. Does not wait.

        A remote engine keeps *known* values up to date from the first listener on.
        """


class Topic(Protocol):
    """A topic: a name, an id, its settings and its partitions."""

    @property
    def name(self) -> str:
        """Name of the topic (*known*)."""

    @property
    def topic_id(self) -> str:
        """Id of the topic: base64url, 22 characters (*known*)."""

    @property
    def internal(self) -> bool:
        """True for one of Kafka's own (`__consumer_offsets`, …): never written by users (*known*)."""

    @property
    def config(self) -> TopicConfig:
        """The settings as they are now (*asked*). What a remote engine's settings do not know is left out."""

    @property
    def overrides(self) -> Mapping[str, str]:
        """The settings that this topic overrides, with Kafka's names for them (*asked*)."""

    def settings(self) -> Sequence[ShownSetting]:
        """Return every setting and where its value comes from (*asked*); a remote engine's may be unknown to `config`."""

    def partitions(self) -> Mapping[int, Partition]:
        """Return the partitions by number, ascending; a snapshot (*known*)."""

    def opened(self) -> Iterable[Partition]:
        """Return the partitions that are at hand; of very many that nobody has asked for yet, none is opened for it (*known*)."""


def records_of(topic: Topic) -> int:
    """Return the number of offsets of a topic, compaction's gaps and markers among them (*known*)."""
    bounds = (partition.offsets() for partition in topic.partitions().values())
    return sum(offsets.log_end_offset - offsets.log_start_offset for offsets in bounds)


class LogEngine(Protocol):
    """Topics, and what can be done with them."""

    @property
    def read_only(self) -> bool:
        """True if nothing may be changed (*known*)."""

    @property
    def remote(self) -> bool:
        """True if answers may have to be waited for, as over a network: see the module."""

    @property
    def foreign(self) -> bool:
        """True if the directory belongs to another process (opened read-only): nothing there may be changed or created (*known*)."""

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings for the owner, about what made no call fail: a line each, the oldest first; a snapshot (*known*)."""

    @property
    def doing(self) -> str | None:
        """The progress of a change of topics that takes long, as a line; None between two (*known*)."""

    @property
    def counts(self) -> EngineCounts:
        """The counts of what it did since it was opened (*known*)."""

    def topics(self) -> Mapping[str, Topic]:
        """Return the topics by name, ascending; a snapshot (*known*)."""

    def topic(self, name: str) -> Topic:
        """Return the topic (*known*). Raises UnknownTopicError."""

    def partition(self, topic: str, number: int) -> Partition:
        """Return the partition (*known*). Raises UnknownTopicError."""

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        overrides: Mapping[str, str] | None = None,
        topic_id: str | None = None,
    ) -> Topic:
        """Create a topic, with a new id unless one is given, which an engine may refuse (InvalidConfigError).

        Raises InvalidNameError, TopicExistsError, InvalidConfigError, ReadOnlyError, OSError.
        """

    def add_partitions(self, topic: str, *, total: int) -> None:
        """Create what is missing up to `total` partitions; fewer than there are is no change."""

    def delete_topic(self, name: str, *, with_records: bool = True) -> None:
        """Delete a topic, or only if it is empty. Raises UnknownTopicError, TopicNotEmptyError, ReadOnlyError."""

    def alter_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set overrides, or remove None ones: all or nothing (InvalidConfigError, UnknownTopicError, ReadOnlyError)."""

    def reconfigure(self, config: EngineConfig) -> None:
        """Take over other settings (blocking; see `config.live_settings`). StorageError if they are not its own."""

    def reopen_partition(self, topic: str, number: int) -> Partition:
        """Load an offline partition again, with its whole directory if that failed (blocking). Harmless if it is online.

        New objects replace the old ones, which stay offline; listeners of the engine and of the old ones are
        notified. Raises what still keeps it offline: StorageError (CorruptionError, …), OSError; UnknownTopicError,
        ReadOnlyError.
        """

    def directories(self) -> Sequence[DirectoryStatus]:
        """Return the state of each data directory; a snapshot. Empty for an engine that has none (*known*)."""

    def listen(self, listener: Callable[[], None]) -> Cancel:
        """Call `listener` after topics or partitions came or went, or were reopened. Does not wait."""

    def maintenance(self, now: Timestamp) -> None:
        """Do the duties due at `now`: flush, checkpoints, retention, delayed deletion (blocking)."""

    def keep_log_starts(self) -> None:
        """Put the log starts on disk, also for other processes that read the files (blocking, OSError)."""

    def close(self) -> None:
        """Flush, checkpoint and leave the clean-shutdown marker (blocking). Idempotent. A remote engine ends all waiting."""
