"""The protocol of topics and their logs; `coordination.engine` adds groups, queues and replicas.

The log engine (`storage.manager`) implements it over data directories; another engine, such as a Kafka cluster, can
take its place. All calls are synchronous and safe from any thread. A call marked "Blocks" may wait long for the disk,
and belongs in a thread; other calls take microseconds.

An engine that is `remote` may have to wait for its answers. It promises:

* A call marked "Never waits" raises only the errors named there. It returns what the engine last learned. The engine
  learns of changes by itself, and then calls listeners. A topic is listed with all its partitions.
  While the leader of a partition has not answered yet, `unknown` has the reason.
* A call marked "May wait" first calls the hook of `storage.remote.RemoteEngine` if it has to wait.
* Calls that change something wait, and are made in threads that may wait. Afterwards, all calls show the change.

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
"""Cancels what was begun by the call that returned this function. Idempotent."""


class Listeners:
    """An immutable tuple of functions: calling them needs no lock, and a function may cancel itself when called."""

    __slots__ = ("_listeners", "_lock")

    def __init__(self) -> None:
        self._listeners: tuple[tuple[object, Callable[[], None]], ...] = ()
        self._lock = threading.Lock()

    def add(self, listener: Callable[[], None]) -> Cancel:
        """Call `listener` from now on, until the returned function is called. A listener may be added twice."""
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
        """The directory of the partition's files; None if the engine has no such directory. Never waits."""

    @property
    def rewrites(self) -> int:
        """Number of compactions and `cuts`; each invalidates earlier positions and notifies listeners. Never waits."""

    cuts: tuple[Offset, ...]
    """Offsets from which unclean elections lost visible records. Each election makes a new tuple. Never waits."""

    @property
    def log_start_offset(self) -> Offset:
        """Earliest readable offset, as in `offsets`, for callers that need it at each read and append. Never waits."""

    @property
    def newest_timestamp(self) -> Timestamp:
        """The largest timestamp; -1 if no record has a timestamp, or if a remote engine has seen none. Never waits."""

    @property
    def unknown(self) -> str | None:
        """Why `offsets` is not known: the log was not loaded, or no leader answered. None: it is known. Never waits."""

    def find_bounds(self) -> None:
        """Wait until `offsets` is known. Raises PartitionOfflineError, PartitionGoneError, NotAuthorizedError."""

    def offsets(self) -> PartitionOffsets:
        """Return the bounds of the log; an empty range while `unknown` has a reason. Never waits."""

    def visible_end(self, isolation: Isolation) -> Offset:
        """Return the exclusive end of the visible offsets, as in `offsets`, for frequent callers. Never waits."""

    def summary(self) -> PartitionSummary:
        """Return a summary, for callers that often look at all partitions. Never waits."""

    def status(self) -> PartitionStatus:
        """Return the state of the partition. Each segment is looked up on disk. May wait."""

    def check_in_sync(self) -> None:
        """Raise NotEnoughReplicasError if too few replicas are in sync; a remote engine never does. Never waits."""

    def append(self, batches: bytearray, *, durable: bool = False, encoded_here: bool = False) -> Appended:
        """Append whole v2 batches as a leader: all or none. A remote engine may raise PartlyAppendedError.

        Offsets, leader epoch and, if the topic's settings require it, timestamps are written into `batches`. On
        return readers see the batches; with `durable` they are also on disk, and the call blocks. `encoded_here`:
        this process's codec just made the batches, so headers need no check. Batches that an idempotent producer
        appended before (its last five) are skipped.

        Raises InvalidRecordError, InvalidTimestampError, RecordTooLargeError, ProducerFencedError,
        OutOfOrderSequenceError, PartitionOfflineError, ReadOnlyError, OSError (ENOSPC, EIO): the log then keeps no
        batch. Raises NotEnoughReplicasAfterAppendError (`durable`): too few replicas have the batches, but the log
        keeps them.
        """

    def read(
        self, offset: Offset, *, max_bytes: int, isolation: Isolation = Isolation.READ_COMMITTED
    ) -> Fetched:
        """Return whole batches, from the batch that contains `offset` on. Checksums are not checked. May wait.

        `max_bytes` limits all batches but the first; no batch at or above the visible end is returned. Raises
        OffsetOutOfRangeError for an offset outside the log, CorruptionError for a torn file.
        """

    def available_end(self, offset: Offset) -> Offset:
        """Return the end up to which `read` from `offset` never waits: the log end in an engine that is not remote."""

    def offset_for_timestamp(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int | None = None,
    ) -> TimestampOffset | None:
        """Return the first visible record from `timestamp` on; None if there is none. May wait.

        Raises SearchTooLongError if the search would read more than `max_bytes`.
        """

    def record_at(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int | None = None,
    ) -> FoundRecord | TimestampOffset | None:
        """Do what `offset_for_timestamp` does, but return the record itself if it was decoded. May wait."""

    def segments(self) -> Sequence[SegmentInfo] | None:
        """Return the segments, oldest first, the active segment last; a snapshot. None if `directory` is None."""

    def segment_of(self, name: str) -> SegmentInfo | None:
        """Return the segment to which the file `name` belongs now; None if there is no such file now."""

    def open_segment_file(self, name: str) -> memoryview:
        """Return a file of `SegmentInfo.files`, mapped read-only. Raises SegmentDeletedError."""

    def delete_records(self, before: Offset) -> Offset:
        """Move the log start up to `before` (-1: the high watermark); return the new start.

        Rules: kafka-storage.md#deleting-records. Raises OffsetOutOfRangeError above the high watermark,
        PolicyViolationError for a topic that is only compacted.
        """

    def sync(self) -> None:
        """Flush all appended batches to disk. Blocks.

        Raises OSError, which takes the partition offline because data may be lost. Raises NotEnoughReplicasError if
        too few replicas have the batches on disk; a later call may succeed.
        """

    def listen(self, listener: Callable[[], None]) -> Cancel:
        """Call `listener`, which must be quick, after the visible end or the log start has moved. Does not wait.

        From the first listener on, a remote engine keeps its data about the partition up to date.
        """


class Topic(Protocol):
    """A topic: a name, an ID, settings and partitions."""

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
        """The present settings. A remote engine leaves out settings that TopicConfig does not have. May wait."""

    @property
    def overrides(self) -> Mapping[str, str]:
        """The settings that this topic overrides, by Kafka's names. May wait."""

    def settings(self) -> Sequence[ShownSetting]:
        """Return every setting and its source. A remote engine may have settings that `config` lacks. May wait."""

    def partitions(self) -> Mapping[int, Partition]:
        """Return the partitions, sorted by number; a snapshot. Never waits."""

    def opened(self) -> Iterable[Partition]:
        """Return the partitions that are open, without opening those that nobody has used yet. Never waits."""


def records_of(topic: Topic) -> int:
    """Return the number of offsets of a topic, including gaps from compaction and markers. Never waits."""
    bounds = (partition.offsets() for partition in topic.partitions().values())
    return sum(offsets.log_end_offset - offsets.log_start_offset for offsets in bounds)


class LogEngine(Protocol):
    """Topics, and the operations on them."""

    @property
    def read_only(self) -> bool:
        """True if nothing may be changed. Never waits."""

    @property
    def remote(self) -> bool:
        """True if the engine may have to wait for answers, for example over a network: see the module."""

    @property
    def foreign(self) -> bool:
        """True if another process owns the directory, so that this engine is read-only. Never waits."""

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings for the owner about problems for which no call failed: one line each, oldest first. Never waits."""

    @property
    def doing(self) -> str | None:
        """A line with the progress of a long change of topics; None if there is no such change. Never waits."""

    @property
    def counts(self) -> EngineCounts:
        """Counters of the engine's work since it was opened. Never waits."""

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
        """Create a topic, with a new ID unless `topic_id` is given.

        Raises InvalidNameError, TopicExistsError, InvalidConfigError (also if the engine refuses the ID),
        ReadOnlyError, OSError.
        """

    def add_partitions(self, topic: str, *, total: int) -> None:
        """Create the missing partitions up to `total`; change nothing if the topic has as many or more."""

    def delete_topic(self, name: str, *, with_records: bool = True) -> None:
        """Delete a topic. If `with_records` is False, refuse to delete a topic that has records.

        Raises UnknownTopicError, TopicNotEmptyError, ReadOnlyError.
        """

    def alter_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set overrides (None: remove), all or none. Raises InvalidConfigError, UnknownTopicError, ReadOnlyError."""

    def reconfigure(self, config: EngineConfig) -> None:
        """Apply other settings (see `config.live_settings`). Blocks. Raises StorageError if the engine is a cluster."""

    def reopen_partition(self, topic: str, number: int) -> Partition:
        """Load an offline partition again; if its whole directory failed, load the directory. Blocks.

        Harmless if the partition is online. New objects replace the old objects, which stay offline. Listeners of the
        engine and of the old objects are notified. Raises the error that still keeps the partition offline:
        StorageError (CorruptionError, …), OSError; UnknownTopicError, ReadOnlyError.
        """

    def directories(self) -> Sequence[DirectoryStatus]:
        """Return the state of each data directory; a snapshot. Empty if the engine has no directories. Never waits."""

    def listen(self, listener: Callable[[], None]) -> Cancel:
        """Call `listener` after topics or partitions were added, removed or reopened. Does not wait."""

    def maintenance(self, now: Timestamp) -> None:
        """Do the duties that are due at `now`: flushes, checkpoints, retention, delayed deletions. Blocks."""

    def keep_log_starts(self) -> None:
        """Write the log starts to disk, where other processes that read the files see them. Blocks. Raises OSError."""

    def close(self) -> None:
        """Flush, write checkpoints and the clean-shutdown marker, and end all remote waits. Blocks. Idempotent."""
