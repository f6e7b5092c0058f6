"""The protocol of topics and their logs; `coordination.engine` adds groups, queues and replicas.

The log engine (`storage.manager`) implements it over data directories; another engine, such as a Kafka cluster, can
take its place. All calls are synchronous and safe from any thread. Calls marked *blocking* may wait long for the disk
and belong in a thread; the others take microseconds.

An engine that is `remote` may have to wait for its answers. It promises:

* *known*: a call so marked never waits, and raises only the errors named there. It returns what the engine last learned;
the engine is kept up to date without requests, and calls listeners when it changes. A topic is listed with all its
partitions. While the leader of a partition has not answered yet, `unknown` has the reason.
* *asked*: a call so marked may wait. Before it waits, it calls the hook of `storage.remote.RemoteEngine`.
* Calls that change something wait, and are made in threads that may wait. On return, *known* calls show the change.

Each wait ends: a missing answer raises PartitionOfflineError, as does every call after `close`.
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
    PartitionOffsets,
    PartitionStatus,
    PartitionSummary,
    SegmentInfo,
    Timestamp,
    TimestampOffset,
)

Cancel: TypeAlias = Callable[[], None]
"""Cancels what the call that returned it began. Idempotent."""


class Listeners:
    """A set of callables, as an immutable tuple: calling them needs no lock, and one may cancel itself meanwhile."""

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
        """Name of the topic. Never waits."""

    @property
    def number(self) -> int:
        """Number of the partition in its topic. Never waits."""

    @property
    def config(self) -> TopicConfig:
        """The topic's settings as they are now. May wait."""

    @property
    def directory(self) -> Path | None:
        """The directory of the partition's files; None for an engine that has none. Never waits."""

    @property
    def rewrites(self) -> int:
        """Number of compactions and `cuts`; each invalidates earlier positions and notifies listeners. Never waits."""

    cuts: tuple[Offset, ...]
    """Offsets from which visible records were lost in unclean elections; a new tuple after each election. Never
    waits.
    """

    @property
    def log_start_offset(self) -> Offset:
        """Earliest readable offset, as in `offsets`, for callers that need it at each read and append. Never waits."""

    @property
    def newest_timestamp(self) -> Timestamp:
        """The largest timestamp; -1 if no record has one, or if a remote engine has seen none. Never waits."""

    @property
    def unknown(self) -> str | None:
        """Why `offsets` is unknown: no log was loaded, or no leader has answered. None: it is known. Never waits."""

    def find_bounds(self) -> None:
        """Wait until `offsets` is known.

        Raises PartitionOfflineError, PartitionGoneError, NotAuthorizedError. May wait.
        """

    def offsets(self) -> PartitionOffsets:
        """Return the bounds of the log; an empty range while `unknown` has a reason. Never waits."""

    def visible_end(self, isolation: Isolation) -> Offset:
        """Return the exclusive end that a reader sees, as in `offsets`, for callers that often need it. Never waits."""

    def summary(self) -> PartitionSummary:
        """Return a summary, for callers that look at all partitions again and again. Never waits."""

    def status(self) -> PartitionStatus:
        """Return the state of the partition; looks up each segment on disk. May wait."""

    def check_in_sync(self) -> None:
        """Raise NotEnoughReplicasError below min.insync.replicas in sync; a remote engine never does. Never waits."""

    def append(self, batches: bytearray, *, durable: bool = False, encoded_here: bool = False) -> Appended:
        """Append whole v2 batches as a leader: all or none; a remote engine may raise PartlyAppendedError.

        Offsets, leader epoch and, if the topic says so, timestamps are written into `batches`. On return readers see
        them; with `durable` they are on disk. `encoded_here`: this process's codec just made them, so headers need no
        check. Batches that an idempotent producer appended before (its last five) are skipped.

        Raises InvalidRecordError, InvalidTimestampError, RecordTooLargeError, ProducerFencedError,
        OutOfOrderSequenceError, PartitionOfflineError, ReadOnlyError, OSError (ENOSPC, EIO): nothing is kept.
        NotEnoughReplicasAfterAppendError (`durable`): all is kept, on too few replicas. Blocks.
        """

    def read(
        self,
        offset: Offset,
        *,
        max_bytes: int,
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> Fetched:
        """Return whole batches from the one that contains `offset` on. Checksums are not checked.

        `max_bytes` limits all but the first batch; nothing at or above the visible end is returned. Raises
        OffsetOutOfRangeError outside the log, CorruptionError for a torn file. May wait.
        """

    def available_end(self, offset: Offset) -> Offset:
        """Return the end of what `read` can return from `offset` on without waiting.

        An engine that is not remote returns the log end. Never waits.
        """

    def offset_for_timestamp(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int | None = None,
    ) -> TimestampOffset | None:
        """Return the first visible record at or after `timestamp`; SearchTooLongError beyond `max_bytes`. May wait."""

    def record_at(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int | None = None,
    ) -> FoundRecord | TimestampOffset | None:
        """Do what `offset_for_timestamp` does, but return a visible record itself if it was decoded. May wait."""

    def segments(self) -> Sequence[SegmentInfo] | None:
        """Return a snapshot of the segments, oldest first, active last; None at once if `directory` is None."""

    def segment_of(self, name: str) -> SegmentInfo | None:
        """Return the segment to which the file `name` belongs now; None if there is no such file, or no longer."""

    def open_segment_file(self, name: str) -> memoryview:
        """Return one of the files in `SegmentInfo.files`, mapped read-only. Raises SegmentDeletedError."""

    def delete_records(self, before: Offset) -> Offset:
        """Move the log start up to `before` (-1: the high watermark); return it (kafka-storage.md#deleting-records).

        Raises OffsetOutOfRangeError beyond the high watermark, PolicyViolationError on compact-only topics.
        """

    def sync(self) -> None:
        """Flush everything appended so far to disk. OSError takes the partition offline: data may be lost.

        NotEnoughReplicasError: too few replicas have it on disk; a later call may succeed. Blocks.
        """

    def listen(self, listener: Callable[[], None]) -> Cancel:
        """Call `listener`, which must be quick, after the visible end or the log start moved. Does not wait.

        A remote engine keeps *known* values up to date from the first listener on.
        """


class Topic(Protocol):
    """A topic: a name, an id, its settings and its partitions."""

    @property
    def name(self) -> str:
        """Name of the topic. Never waits."""

    @property
    def topic_id(self) -> str:
        """ID of the topic: base64url, 22 characters. Never waits."""

    @property
    def internal(self) -> bool:
        """True for Kafka's own topics (`__consumer_offsets`, …), which users never write. Never waits."""

    @property
    def config(self) -> TopicConfig:
        """The present settings. Settings of a remote engine that TopicConfig does not have are left out. May wait."""

    @property
    def overrides(self) -> Mapping[str, str]:
        """The settings that this topic overrides, with Kafka's names for them. May wait."""

    def settings(self) -> Sequence[ShownSetting]:
        """Return every setting and its source; a remote engine may have some that `config` lacks. May wait."""

    def partitions(self) -> Mapping[int, Partition]:
        """Return the partitions, sorted by number; a snapshot. Never waits."""

    def opened(self) -> Iterable[Partition]:
        """Return the partitions that are open; those that nobody has used yet are not opened for this. Never waits."""


def records_of(topic: Topic) -> int:
    """Return the number of offsets of a topic, including gaps of compaction and markers. Never waits."""
    bounds = (partition.offsets() for partition in topic.partitions().values())
    return sum(offsets.log_end_offset - offsets.log_start_offset for offsets in bounds)


class LogEngine(Protocol):
    """Topics, and the operations on them."""

    @property
    def read_only(self) -> bool:
        """True if nothing may be changed. Never waits."""

    @property
    def remote(self) -> bool:
        """True if answers may have to be waited for, as over a network: see the module."""

    @property
    def foreign(self) -> bool:
        """True if another process owns the directory, so that nothing there may be changed (read-only). Never waits."""

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings for the owner about problems that made no call fail: one line each, oldest first. Never waits."""

    @property
    def doing(self) -> str | None:
        """The progress of a change of topics that takes long, as a line; None if there is none. Never waits."""

    @property
    def counts(self) -> EngineCounts:
        """Counters of what the engine did since it was opened. Never waits."""

    def topics(self) -> Mapping[str, Topic]:
        """Return the topics, sorted by name; a snapshot. Never waits."""

    def topic(self, name: str) -> Topic:
        """Return the topic. Raises UnknownTopicError. Never waits."""

    def partition(self, topic: str, number: int) -> Partition:
        """Return the partition. Raises UnknownTopicError. Never waits."""

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        overrides: Mapping[str, str] | None = None,
        topic_id: str | None = None,
    ) -> Topic:
        """Create a topic, with a new ID unless one is given, which an engine may refuse (InvalidConfigError).

        Raises InvalidNameError, TopicExistsError, InvalidConfigError, ReadOnlyError, OSError.
        """

    def add_partitions(self, topic: str, *, total: int) -> None:
        """Create the missing partitions up to `total`; a smaller total changes nothing."""

    def delete_topic(self, name: str, *, with_records: bool = True) -> None:
        """Delete a topic; without `with_records`, only an empty one.

        Raises UnknownTopicError, TopicNotEmptyError, ReadOnlyError.
        """

    def alter_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set overrides, or remove those given as None: all or nothing.

        Raises InvalidConfigError, UnknownTopicError, ReadOnlyError.
        """

    def reconfigure(self, config: EngineConfig) -> None:
        """Apply other settings (blocking; see `config.live_settings`). Raises StorageError if it has none of its own."""

    def reopen_partition(self, topic: str, number: int) -> Partition:
        """Load an offline partition again, with its whole directory if that failed. Harmless if online.

        New objects replace the old ones, which stay offline; listeners of the engine and of the old ones are
        notified. Raises what still keeps it offline: StorageError (CorruptionError, …), OSError; UnknownTopicError,
        ReadOnlyError. Blocks.
        """

    def directories(self) -> Sequence[DirectoryStatus]:
        """Return the state of each data directory; a snapshot. Empty for an engine without any. Never waits."""

    def listen(self, listener: Callable[[], None]) -> Cancel:
        """Call `listener` after topics or partitions were added, removed or reopened. Does not wait."""

    def maintenance(self, now: Timestamp) -> None:
        """Do the duties due at `now`: flush, checkpoints, retention, delayed deletion. Blocks."""

    def keep_log_starts(self) -> None:
        """Write the log starts to disk, also for other processes that read the files. Blocks. Raises OSError."""

    def close(self) -> None:
        """Flush, checkpoint and write the clean-shutdown marker. Idempotent. Ends all remote waits. Blocks."""
