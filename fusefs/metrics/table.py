"""Every metric: its name, kind, labels and description. docs/watching.md has the same table; a test compares them."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class MountGauges(NamedTuple):
    """The state of a mount at one moment."""

    open_files: int
    waiting_reads: int
    waiting_reads_limit: int


class MetricKind(Enum):
    """Kinds of metrics, with Prometheus' names."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric."""

    name: str
    """As Prometheus stores it; for a histogram without `_bucket`, `_sum` and `_count`."""
    kind: MetricKind
    labels: tuple[str, ...]
    meaning: str


def _counter(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"topicfs_{name}_total", MetricKind.COUNTER, labels, meaning)


def _gauge(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"topicfs_{name}", MetricKind.GAUGE, labels, meaning)


def _histogram(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"topicfs_{name}", MetricKind.HISTOGRAM, labels, meaning)


BUILD = _gauge("build_info", "1, with what is running.", "version", "python", "engine")
START_TIME = _gauge("start_time_seconds", "When the daemon started, in seconds since 1970.")

REQUEST_DURATION = _histogram(
    "request_duration_seconds",
    "How long requests of the kernel took, from their reading to their answer; follow is a read that waits for records.",
    "request",
)
REQUEST_ERRORS = _counter(
    "request_errors", "Requests of the kernel that got an error, by its errno.", "request", "errno"
)
READ_BYTES = _counter("mount_read_bytes", "Bytes that programs read from files of the mount.")
WRITTEN_BYTES = _counter("mount_written_bytes", "Bytes that programs wrote to files of the mount.")
OPEN_FILES = _gauge("open_files", "Files of the mount that programs have open.")
WAITING_READS = _gauge("waiting_reads", "Reads that wait for the next record.")
MAX_WAITING_READS = _gauge("waiting_reads_limit", "How many reads may wait at once (--max-waiting).")

APPENDS = _counter("appends", "Appends of clients to a topic's logs.", "topic")
RECORDS = _counter("appended_records", "Records that they appended.", "topic")
BATCHES = _counter("appended_batches", "Record batches that they appended.", "topic")
APPENDED_BYTES = _counter("appended_bytes", "Bytes of these batches.", "topic")
FETCHED_BYTES = _counter("fetched_bytes", "Bytes of batches that were read from a topic's logs.", "topic")

TOPIC_PARTITIONS = _gauge("topic_partitions", "Partitions of a topic that are open.", "topic")
TOPIC_RECORDS = _gauge("topic_records", "Offsets between log start and log end in these partitions.", "topic")
TOPIC_ENDS = _gauge("topic_end_offsets", "Sum of the log ends of these partitions.", "topic")
TOPIC_OFFLINE = _gauge("topic_offline_partitions", "Those of them that do not serve.", "topic")
TOPIC_BYTES = _gauge("topic_log_bytes", "Bytes of batches in these partitions.", "topic")

TOPICS = _gauge("topics", "Topics.")
PARTITIONS = _gauge("partitions", "Partitions, opened or not.")
OPEN_PARTITIONS = _gauge("open_partitions", "Partitions that are open.")
OFFLINE_PARTITIONS = _gauge("offline_partitions", "Partitions that do not serve.")
UNDER_REPLICATED = _gauge(
    "under_replicated_partitions", "Partitions of which a replica that is assigned is not in sync."
)
ROLLS = _counter("segment_rolls", "Segments that were closed because another one was begun.")
FLUSH_DURATION = _histogram(
    "log_flush_duration_seconds", "How long flushes of a log took: Kafka's log-flush-rate-and-time."
)
CLEANINGS = _counter("log_cleanings", "Passes of compaction over a log.")
CLEANED_BYTES = _counter("log_cleaned_bytes", "Bytes that compaction made free.")
RECOVERIES = _counter("log_recoveries", "Logs that were recovered, because they were not closed in order.")
RECOVERY_CUT = _counter(
    "log_recovery_cut_bytes", "Bytes that recovery cut off, for they were no whole batches."
)
ISR_SHRINKS = _counter("isr_shrinks", "Times at which replicas of a partition fell out of sync.")
ISR_EXPANDS = _counter("isr_expands", "Times at which a replica came in sync again.")
WARNINGS = _gauge("warnings", "Warnings that @status shows now.")

DIRECTORY_ONLINE = _gauge(
    "directory_online", "1 where a data directory serves, 0 where it failed.", "directory"
)
DIRECTORY_PARTITIONS = _gauge("directory_partitions", "Partitions in a data directory.", "directory")
DIRECTORY_SIZE = _gauge("directory_size_bytes", "Size of the disk that holds a data directory.", "directory")
DIRECTORY_FREE = _gauge(
    "directory_free_bytes", "Bytes of that disk which are free for the daemon.", "directory"
)

GROUPS = _gauge("groups", "Groups of readers.")
GROUP_MEMBERS = _gauge("group_members", "Members of all groups.")
GROUP_LAG = _gauge(
    "group_lag_records",
    "Offsets between a group's positions in a topic and the last stable offsets there.",
    "group",
    "topic",
)

CACHE_HITS = _counter("cache_hits", "Over a cluster: reads that needed no broker.")
CACHE_MISSES = _counter("cache_misses", "Over a cluster: reads for which a broker was asked.")

METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All metrics, in display order."""
