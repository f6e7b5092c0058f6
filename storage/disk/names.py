"""The file and directory names of a data directory; this module builds and parses all of them.

    DATA/                                         data directory (Kafka: one of log.dirs)
    ├── meta.properties  .lock  .kafka_cleanshutdown
    ├── recovery-point-offset-checkpoint  log-start-offset-checkpoint
    ├── replication-offset-checkpoint  cleaner-offset-checkpoint
    ├── topicfs.topics  topicfs.reserve  topicfs.handover  topicfs.mirror  topicfs.queues  topicfs.replicas
    ├── topicfs.scrub  topicfs.producers
    ├── topicfs.writes  topicfs.write.…                                            ours, which a broker ignores
    ├── <topic>-<partition>/                      a partition
    │   ├── <20 digits>.log .index .timeindex .txnindex .snapshot     then perhaps .deleted .cleaned .swap
    │   ├── <20 digits>.view                                          ours, which a broker ignores
    │   └── leader-epoch-checkpoint  partition.metadata
    ├── <topic>-<partition>.<32 hex>-delete/      deleted, to be removed    (also -stray, -future)
    └── __cluster_metadata-0/  remote-log-index-cache/                    Kafka's own, ignored

The rules are Kafka's (kafka-storage.md#directory, kafka-storage.md#names).
"""

import re
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import NamedTuple
from uuid import uuid4

from topicfs.storage.errors import InvalidConfigError, InvalidNameError, TopicExistsError
from topicfs.storage.model import Offset, TopicPartition

MAX_PARTITIONS = 10_000
"""Largest number of partitions of one topic; partition numbers are lower."""
META_PROPERTIES = "meta.properties"
LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
TOPIC_SETTINGS = "topicfs.topics"
"""The topics' overrides, in a plain file that a broker ignores."""
RESERVE = "topicfs.reserve"
HANDOVER = "topicfs.handover"
MIRROR = "topicfs.mirror"
QUEUES = "topicfs.queues"
"""The settings of share groups, and the records that share groups rejected."""
REPLICAS = "topicfs.replicas"
"""The replicas of all partitions; the file is the same in each data directory that replicates."""
SCRUB = "topicfs.scrub"
"""The progress of the scrub, and the time at which the last scrub ended."""
COMMITTED_WRITES = "topicfs.writes"
"""The last committed write of each query or application."""
PRODUCERS = "topicfs.producers"
"""The progress of named producers."""
DATA_DIRECTORY_FILES = frozenset({
    META_PROPERTIES, CLEAN_SHUTDOWN, RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS,
    TOPIC_SETTINGS, RESERVE, HANDOVER, MIRROR, QUEUES, REPLICAS, SCRUB, COMMITTED_WRITES, PRODUCERS,
})  # fmt: skip
"""Plain files that identify a data directory. `.lock` does not, because other programs use that name too."""

OWN_COPY_SUFFIX = ".own.deleted"
"""Suffix of the copy that will replace a file with other hard links. Loading removes a copy that was left behind."""
VIEW_SUFFIX = ".view"
"""Suffix of a mount's cache of the positions at which a segment's rendered records begin; a broker ignores it."""

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state"})
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
SKIPPED_DIRECTORIES = frozenset({f"{CLUSTER_METADATA_TOPIC}-0", "remote-log-index-cache"})
"""Kafka's directories that contain no topic."""

MAX_TOPIC_LENGTH = 249
MAX_NAME_BYTES = 255
"""Largest size of a file name in bytes that file systems allow."""
MAX_PARTITION = 2**31 - 1

_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_MARKED_DIRECTORY = r"(?P<partition>.+)\.(?P<unique>[^.]+)-(?P<mark>delete|stray|future)"
_SEGMENT_FILE = re.compile(
    r"(?P<base>[0-9]{20})\.(?P<kind>log|index|timeindex|txnindex|snapshot)"
    r"(\.(?P<state>deleted|cleaned|swap))?"
)
_VIEW_FILE = re.compile(r"([0-9]{20})\.view(?:\.tmp)?")
_WRITE_FILE = (
    r"topicfs\.write\.(?P<query>[0-9A-Za-z._-]{1,64})(@(?P<target>[0-9A-Za-z_-]{1,64}))?\.(?P<batch>once|0|[1-9][0-9]{0,18})"
    r"(\.(?P<part>[0-9A-Za-z-]{1,64}))?\.(?P<kind>staged|requested|claimed|refused)"
)
_MAX_OFFSET = 2**63 - 1


def check_topic_name(name: str) -> None:
    """Raise InvalidNameError unless `name` may be the name of a topic."""
    if not name:
        raise InvalidNameError("a topic's name must not be empty")
    if name in (".", ".."):
        raise InvalidNameError(f"{name}: a topic's name must not be . or ..")
    if not _TOPIC.fullmatch(name):
        raise InvalidNameError(f"{name!r}: a topic's name has only letters, digits, '.', '_' and '-' (ASCII)")
    if len(name) > MAX_TOPIC_LENGTH:
        raise InvalidNameError(
            f"{name}: a topic's name has at most {MAX_TOPIC_LENGTH} characters, not {len(name)}"
        )


@lru_cache(maxsize=4096)  # A listing has the partitions of a topic one after the other.
def is_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidNameError:
        return False
    return True


def collision_key(topic: str) -> str:
    """Return the key that must be unique among topics, because metric names do not distinguish `.` from `_`."""
    return topic.replace(".", "_")


def is_internal(topic: str) -> bool:
    """Return whether the topic is one of Kafka's own topics, which users never write."""
    return topic in INTERNAL_TOPICS


class DirectoryMark(Enum):
    """The state of a partition, which the end of its directory's name shows."""

    LIVE = ""
    DELETE = "delete"
    STRAY = "stray"
    FUTURE = "future"


_MARKS = tuple(f"-{mark.value}" for mark in DirectoryMark if mark.value)


class PartitionDirectoryName(NamedTuple):
    partition: TopicPartition
    """The partition; in a marked directory's name, its topic may be cut short."""
    mark: DirectoryMark


def partition_directory(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def marked_directory(partition: TopicPartition, mark: DirectoryMark, *, unique: str | None = None) -> str:
    """Return a directory's name with `unique` (32 hex digits; None: random). Shorten a long topic, unless FUTURE."""
    if mark is DirectoryMark.LIVE:
        raise ValueError("a live directory has no mark")
    tail = f"-{partition.partition}.{unique or uuid4().hex}-{mark.value}"
    topic = partition.topic if mark is DirectoryMark.FUTURE else partition.topic[: MAX_NAME_BYTES - len(tail)]
    return topic + tail


def parse_partition_directory(name: str) -> PartitionDirectoryName | None:
    """Parse a directory's name that ends in a dash and a plain decimal number. None: not a partition's."""
    marked = re.fullmatch(_MARKED_DIRECTORY, name) if name.endswith(_MARKS) else None
    if marked:
        partition = _parse_topic_partition(marked["partition"])
        return PartitionDirectoryName(partition, DirectoryMark(marked["mark"])) if partition else None
    partition = _parse_topic_partition(name)
    return PartitionDirectoryName(partition, DirectoryMark.LIVE) if partition else None


def _parse_topic_partition(name: str) -> TopicPartition | None:
    topic, _, number = name.rpartition("-")
    if not is_topic_name(topic) or not _PARTITION.fullmatch(number):
        return None
    partition = int(number)
    return TopicPartition(topic, partition) if partition <= MAX_PARTITION else None


class SegmentFileKind(Enum):
    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"


class SegmentFileState(Enum):
    """The temporary suffix of a file's name, after the suffix for its kind."""

    LIVE = ""
    DELETED = ".deleted"
    CLEANED = ".cleaned"
    SWAP = ".swap"


class SegmentFileName(NamedTuple):
    base_offset: Offset
    kind: SegmentFileKind
    state: SegmentFileState = SegmentFileState.LIVE


def segment_file(
    base_offset: Offset, kind: SegmentFileKind, state: SegmentFileState = SegmentFileState.LIVE
) -> str:
    """Build a name: the base offset in 20 digits, the suffix for the kind, and the temporary suffix."""
    # Not `value`: that property takes as long as all other work here, and a start builds a thousand names.
    return f"{base_offset:020d}{kind._value_}{state._value_}"


@lru_cache(
    maxsize=4096
)  # The same few names occur in every directory, and each is parsed several times while the directory is loaded.
def parse_segment_file(name: str) -> SegmentFileName | None:
    """Parse the name of a file in a partition's directory. None: not a segment's file."""
    match = _SEGMENT_FILE.fullmatch(name)
    if not match or int(match["base"]) > _MAX_OFFSET:
        return None
    state = SegmentFileState("." + match["state"]) if match["state"] else SegmentFileState.LIVE
    return SegmentFileName(Offset(int(match["base"])), SegmentFileKind("." + match["kind"]), state)


EMPTY_LOG = (
    segment_file(Offset(0), SegmentFileKind.LOG),
    segment_file(Offset(0), SegmentFileKind.OFFSET_INDEX),
    segment_file(Offset(0), SegmentFileKind.TIME_INDEX),
    LEADER_EPOCHS,
)
"""The files of a cleanly closed log that never had a record. All of them are empty."""


def view_file(base_offset: Offset) -> str:
    return f"{base_offset:020d}{VIEW_SUFFIX}"


def parse_view_file(name: str) -> Offset | None:
    """Return the base offset of the segment of a view file, finished or temporary. None: not a view file's name."""
    match = _VIEW_FILE.fullmatch(name)
    return Offset(int(match[1])) if match else None


class WriteId(NamedTuple):
    """The identity of a write committed as a whole: a micro-batch, an application's version, or a single write."""

    query: str
    """The ID of the query: letters, digits, dots, underscores and dashes; at most 64 characters."""
    batch: int | None = None
    """Number of the micro-batch, or the application's version; None: a single write, which is never repeated."""
    target: str = ""
    """ID of the topic that the query writes to; empty if each row names its topic."""

    @property
    def series(self) -> str:
        """The common name of all micro-batches of one query into one target."""
        return f"{self.query}@{self.target}" if self.target else self.query

    def __str__(self) -> str:
        return self.series if self.batch is None else f"{self.series} batch {self.batch}"


WRITE_PREFIX = "topicfs.write."


class WriteFileKind(Enum):
    """The kind of a write's file, which the end of its name shows; `storage.staging` has the order of the kinds."""

    STAGED = "staged"
    REQUESTED = "requested"
    CLAIMED = "claimed"
    REFUSED = "refused"


class WriteFile(NamedTuple):
    write: WriteId
    kind: WriteFileKind
    part: str = ""
    """Distinguishes the staged files of one write; empty for other kinds."""


def write_file(write: WriteId, kind: WriteFileKind, part: str = "") -> str:
    """Build the name of a file of a write. Raises ValueError if the query ID cannot be part of a file name."""
    batch = "once" if write.batch is None else write.batch
    name = ".".join(["topicfs.write", write.series, str(batch), *([part] if part else []), kind.value])
    if parse_write_file(name) != (write, kind, part):
        raise ValueError(f"{name!r} is not the name of a write's file")
    return name


def parse_write_file(name: str) -> WriteFile | None:
    """Parse a plain file's name. None: not a write's file."""
    match = re.fullmatch(_WRITE_FILE, name)
    if not match or (match["kind"] == WriteFileKind.STAGED.value) != bool(match["part"]):
        return None
    batch = None if match["batch"] == "once" else int(match["batch"])
    write = WriteId(match["query"], batch, match["target"] or "")
    return WriteFile(write, WriteFileKind(match["kind"]), match["part"] or "")


def check_new_topic(name: str, existing: Iterable[str]) -> None:
    """Raise InvalidNameError or TopicExistsError unless a topic `name` can be added to the `existing` topics."""
    check_topic_name(name)
    if name == CLUSTER_METADATA_TOPIC:
        raise InvalidNameError(f"{name}: reserved for Kafka's own metadata log")
    key = collision_key(name)
    for other in existing:
        if other == name:
            raise TopicExistsError(f"{name}: the topic exists already")
        if collision_key(other) == key:
            raise TopicExistsError(
                f"{name}: collides with topic {other} ('.' and '_' are the same in metric names)"
            )


def check_partitions(count: int) -> None:
    """Raise InvalidConfigError unless a topic may have `count` partitions."""
    if not 1 <= count <= MAX_PARTITIONS:
        raise InvalidConfigError(f"partitions={count}: must be a whole number from 1 to {MAX_PARTITIONS}")
