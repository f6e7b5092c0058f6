"""Every metric: its name, kind, labels and description. docs/watching.md has the same table; a test compares them."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class MetricKind(Enum):
    """Kinds of metrics, with Prometheus' names."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric."""

    name: str
    """The metric's name in Prometheus. The name of a histogram is without `_bucket`, `_sum` and `_count`."""
    kind: MetricKind
    labels: tuple[str, ...]
    meaning: str


def _counter(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"topicfs_{name}_total", MetricKind.COUNTER, labels, meaning)


def _gauge(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"topicfs_{name}", MetricKind.GAUGE, labels, meaning)


def _histogram(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"topicfs_{name}", MetricKind.HISTOGRAM, labels, meaning)


BUILD = _gauge("build_info", "1, labeled with the running versions.", "version", "python", "engine")
START_TIME = _gauge("start_time_seconds", "When the daemon started, in seconds since 1970.")

REQUEST_DURATION = _histogram(
    "request_duration_seconds",
    'Time from reading a kernel request to its answer; request="follow" is a read that waits for records.',
    "request",
)
REQUEST_ERRORS = _counter("request_errors", "Failed requests of the kernel, by errno.", "request", "errno")
READ_BYTES = _counter("mount_read_bytes", "Bytes that programs read from files of the mount.")
WRITTEN_BYTES = _counter("mount_written_bytes", "Bytes that programs wrote to files of the mount.")
OPEN_FILES = _gauge("open_files", "Files of the mount that programs have open.")
WAITING_READS = _gauge("waiting_reads", "Reads that wait for the next record.")
MAX_WAITING_READS = _gauge("waiting_reads_limit", "Limit on waiting reads (--max-waiting).")

CONNECTIONS = _gauge("listener_connections", "Open connections of Kafka clients (--listen).")
MAX_CONNECTIONS = _gauge("listener_connections_limit", "Limit on open connections of Kafka clients.")
CLIENT_REQUEST_DURATION = _histogram(
    "listener_request_duration_seconds",
    "Time from reading a Kafka client's request to its answer, including waits for records or group members.",
    "request",
)
ANSWERED_ERRORS = _counter(
    "listener_request_errors", "Answers to Kafka clients that have an error.", "request", "error"
)
CLIENT_CONNECTIONS = _gauge("client_connections", "Open connections of a Kafka client.", "client", "software")
CLIENT_REQUESTS = _counter("client_requests", "Requests of a Kafka client.", "client", "software")
CLIENT_ERRORS = _counter(
    "client_request_errors", "Answers to a Kafka client that have an error.", "client", "software"
)
CLIENT_RECEIVED = _counter(
    "client_received_bytes", "Bytes of a Kafka client's requests.", "client", "software"
)
CLIENT_SENT = _counter("client_sent_bytes", "Bytes of the answers to a Kafka client.", "client", "software")

APPENDS = _counter("appends", "Appends of clients to a topic's logs.", "topic")
RECORDS = _counter("appended_records", "Records appended by clients to a topic's logs.", "topic")
BATCHES = _counter("appended_batches", "Record batches appended by clients to a topic's logs.", "topic")
APPENDED_BYTES = _counter(
    "appended_bytes", "Bytes of batches appended by clients to a topic's logs.", "topic"
)
FETCHED_BYTES = _counter("fetched_bytes", "Bytes of batches read from a topic's logs.", "topic")

TOPIC_PARTITIONS = _gauge("topic_partitions", "Open partitions of a topic.", "topic")
TOPIC_RECORDS = _gauge(
    "topic_records", "Number of offsets between log start and log end in a topic's open partitions.", "topic"
)
TOPIC_ENDS = _gauge("topic_end_offsets", "Sum of the log ends of a topic's open partitions.", "topic")
TOPIC_OFFLINE = _gauge("topic_offline_partitions", "Offline partitions of a topic.", "topic")
TOPIC_BYTES = _gauge("topic_log_bytes", "Bytes of batches in a topic's open partitions.", "topic")

TOPICS = _gauge("topics", "Topics.")
PARTITIONS = _gauge("partitions", "All partitions.")
OPEN_PARTITIONS = _gauge("open_partitions", "Open partitions.")
OFFLINE_PARTITIONS = _gauge("offline_partitions", "Offline partitions.")
UNDER_REPLICATED = _gauge(
    "under_replicated_partitions", "Partitions with an assigned replica that is not in sync."
)
ROLLS = _counter("segment_rolls", "Segments that were closed because a new one was started.")
FLUSH_DURATION = _histogram(
    "log_flush_duration_seconds", "Duration of log flushes: Kafka's log-flush-rate-and-time."
)
CLEANINGS = _counter("log_cleanings", "Passes of compaction over a log.")
CLEANED_BYTES = _counter("log_cleaned_bytes", "Bytes freed by compaction.")
RECOVERIES = _counter("log_recoveries", "Logs that were recovered because they were not closed cleanly.")
RECOVERY_CUT = _counter(
    "log_recovery_cut_bytes", "Bytes of incomplete or damaged batches that recovery removed."
)
ISR_SHRINKS = _counter("isr_shrinks", "Number of times that replicas of a partition fell out of sync.")
ISR_EXPANDS = _counter("isr_expands", "Number of times that a replica came back in sync.")
WARNINGS = _gauge("warnings", "Warnings shown in @status.")

DIRECTORY_ONLINE = _gauge("directory_online", "1 if a data directory is online, 0 if it failed.", "directory")
DIRECTORY_PARTITIONS = _gauge("directory_partitions", "Partitions in a data directory.", "directory")
DIRECTORY_SIZE = _gauge("directory_size_bytes", "Size of a data directory's disk.", "directory")
DIRECTORY_FREE = _gauge(
    "directory_free_bytes", "Free bytes on a data directory's disk for the daemon.", "directory"
)

GROUPS = _gauge("groups", "Groups of readers.")
GROUP_MEMBERS = _gauge("group_members", "Members of all groups.")
GROUP_LAG = _gauge(
    "group_lag_records", "Total lag of a group in a topic, up to the last stable offsets.", "group", "topic"
)

CACHE_HITS = _counter("cache_hits", "For a cluster: reads answered from the cache.")
CACHE_MISSES = _counter("cache_misses", "For a cluster: reads that needed a broker.")

METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All metrics, in display order."""
