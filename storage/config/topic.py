"""A topic's settings: the one table of their names, defaults, units, valid values and meanings.

The parts of a row are: field (Kafka's name with underscores for dots), type, meaning, kind of value, unit, the broker
settings that give the default (the first one that is set counts), and the default. The table follows Kafka's
TopicConfig and LogConfig (kafka-storage.md#topic-settings).
"""

from collections.abc import Mapping
from typing import Annotated, NamedTuple, Self

from topicfs.storage.config import kinds
from topicfs.storage.config.setting import Setting, Synonym, read_overrides, read_table, row
from topicfs.storage.errors import InvalidConfigError
from topicfs.storage.model import TimestampType

MILLISECONDS_PER_MINUTE = 60_000
MILLISECONDS_PER_HOUR = 3_600_000


class TopicConfig(NamedTuple):
    """The settings of a topic's logs. Immutable. Read text from users with `from_overrides`, which checks it."""

    # fmt: off
    cleanup_policy: Annotated[tuple[str, ...], row("What happens to old segments: delete removes them by "
        "retention.*, compact keeps the newest record of each key, both do both; if empty, only segments that "
        "DeleteRecords released are removed.",
        kinds.WordList(("compact", "delete")), "", "log.cleanup.policy")] = ("delete",)
    compression_type: Annotated[str, row("The codec of stored batches; producer keeps each batch as it was sent.",
        kinds.OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")), "", "compression.type")] = "producer"
    compression_gzip_level: Annotated[int, row("gzip's level when compression.type is gzip; -1 is the library's own "
        "default.",
        kinds.WholeNumberOr(kinds.WholeNumber(1, 9), -1), "", "compression.gzip.level")] = -1
    compression_lz4_level: Annotated[int, row("lz4's level when compression.type is lz4.",
        kinds.WholeNumber(1, 17), "", "compression.lz4.level")] = 9
    compression_zstd_level: Annotated[int, row("zstd's level when compression.type is zstd.",
        kinds.WholeNumber(-131072, 22), "", "compression.zstd.level")] = 3
    delete_retention_ms: Annotated[int, row("How long compaction keeps tombstones and transaction markers after "
        "first seeing them.",
        kinds.long_of_at_least(0), "ms", "log.cleaner.delete.retention.ms")] = 86_400_000
    file_delete_delay_ms: Annotated[int, row("How long a file stays on disk, as .deleted, after it left the log.",
        kinds.long_of_at_least(0), "ms", "log.segment.delete.delay.ms")] = 60_000
    flush_messages: Annotated[int, row("Flush to disk whenever this many records are not flushed yet.",
        kinds.long_of_at_least(1), "records", "log.flush.interval.messages")] = kinds.LONG_MAX
    flush_ms: Annotated[int, row("Flush to disk when this much time has passed since the last flush.",
        kinds.long_of_at_least(0), "ms", "log.flush.interval.ms", "log.flush.scheduler.interval.ms")] = kinds.LONG_MAX
    index_interval_bytes: Annotated[int, row("An offset index entry is due when more than this many bytes of log "
        "follow the last entry.",
        kinds.int_of_at_least(0), "bytes", "log.index.interval.bytes")] = 4096
    max_message_bytes: Annotated[int, row("The largest record batch that a log accepts, its header included.",
        kinds.int_of_at_least(0), "bytes", "message.max.bytes")] = 1_048_588
    max_compaction_lag_ms: Annotated[int, row("The longest a record may stay uncompacted.",
        kinds.long_of_at_least(1), "ms", "log.cleaner.max.compaction.lag.ms")] = kinds.LONG_MAX
    min_compaction_lag_ms: Annotated[int, row("The shortest a record stays uncompacted.",
        kinds.long_of_at_least(0), "ms", "log.cleaner.min.compaction.lag.ms")] = 0
    message_timestamp_type: Annotated[TimestampType, row("Whether a record's timestamp is its producer's or the time "
        "of its append.",
        kinds.TimestampTypeChoice(), "", "log.message.timestamp.type")] = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: Annotated[int, row("How far a CreateTime timestamp may be before the append.",
        kinds.long_of_at_least(0), "ms", "log.message.timestamp.before.max.ms")] = kinds.LONG_MAX
    message_timestamp_after_max_ms: Annotated[int, row("How far a CreateTime timestamp may be after the append.",
        kinds.long_of_at_least(0), "ms", "log.message.timestamp.after.max.ms")] = 3_600_000
    min_cleanable_dirty_ratio: Annotated[float, row("The share of uncompacted bytes above which a log is compacted.",
        kinds.Ratio(0.0, 1.0), "", "log.cleaner.min.cleanable.ratio")] = 0.5
    min_insync_replicas: Annotated[int, row("How many replicas must have a record for acks=all, O_SYNC and fsync to "
        "succeed; at most the number of replicas.",
        kinds.int_of_at_least(1), "replicas", "min.insync.replicas")] = 1
    preallocate: Annotated[bool, row("Whether a new segment's file takes its full size on disk at once.",
        kinds.Boolean(), "", "log.preallocate")] = False
    retention_bytes: Annotated[int, row("Size that a partition keeps at least when its oldest segments are deleted; "
        "negative: no limit.",
        kinds.WholeNumber(kinds.LONG_MIN, kinds.LONG_MAX), "bytes", "log.retention.bytes")] = -1
    retention_ms: Annotated[int, row("Age of a segment's newest record at which the segment is deleted; -1: never.",
        kinds.long_of_at_least(-1), "ms", "log.retention.ms", Synonym("log.retention.minutes", MILLISECONDS_PER_MINUTE),
        Synonym("log.retention.hours", MILLISECONDS_PER_HOUR))] = 604_800_000
    segment_bytes: Annotated[int, row("Largest size of a segment's log.",
        kinds.int_of_at_least(1_048_576), "bytes", "log.segment.bytes")] = 1_073_741_824
    segment_index_bytes: Annotated[int, row("The size of a segment's offset index, and of its time index.",
        kinds.int_of_at_least(4), "bytes", "log.index.size.max.bytes")] = 10_485_760
    segment_jitter_ms: Annotated[int, row("Segments roll up to this much earlier than segment.ms, each by a random "
        "amount.",
        kinds.long_of_at_least(0), "ms", "log.roll.jitter.ms", Synonym("log.roll.jitter.hours", MILLISECONDS_PER_HOUR))] = 0
    segment_ms: Annotated[int, row("Span of record time after which a segment rolls even if it is not full.",
        kinds.long_of_at_least(1), "ms", "log.roll.ms", Synonym("log.roll.hours", MILLISECONDS_PER_HOUR))] = 604_800_000
    unclean_leader_election_enable: Annotated[bool, row("Whether a replica that is out of sync may become the "
        "leader; no meaning with one replica.",
        kinds.Boolean(), "", "unclean.leader.election.enable")] = False
    remote_storage_enable: Annotated[bool, row("Whether segments move to tiered storage; not available here, so only "
        "false is accepted.",
        kinds.Boolean(), "")] = False
    remote_log_copy_disable: Annotated[bool, row("Whether a tiered topic stops copying; no meaning without tiered "
        "storage.",
        kinds.Boolean(), "")] = False
    remote_log_delete_on_disable: Annotated[bool, row("Whether switching tiering off deletes what was copied; no "
        "meaning without tiered storage.",
        kinds.Boolean(), "")] = False
    local_retention_ms: Annotated[int, row("retention.ms of the local copy of a tiered topic; -2: the same as "
        "retention.ms.",
        kinds.long_of_at_least(-2), "ms", "log.local.retention.ms")] = -2
    local_retention_bytes: Annotated[int, row("retention.bytes of the local copy of a tiered topic; -2: the same as "
        "retention.bytes.",
        kinds.long_of_at_least(-2), "bytes", "log.local.retention.bytes")] = -2
    remote_copy_lag_ms: Annotated[int, row("The age at which a tiered topic's segment is copied; no meaning without "
        "tiered storage.",
        kinds.long_of_at_least(-1), "ms", "log.remote.copy.lag.ms")] = 0
    remote_copy_lag_bytes: Annotated[int, row("The bytes after which a tiered topic's segment is copied; no meaning "
        "without tiered storage.",
        kinds.long_of_at_least(-1), "bytes", "log.remote.copy.lag.bytes")] = -1
    errors_deadletterqueue_group_enable: Annotated[bool, row("Whether share groups may use the topic as their dead "
        "letter queue; kept, without effect here.",
        kinds.Boolean(), "")] = False
    leader_replication_throttled_replicas: Annotated[tuple[str, ...], row("Replicas whose leader throttles "
        "replication; kept, without effect with one replica.",
        kinds.ThrottledReplicas(), "")] = ()
    follower_replication_throttled_replicas: Annotated[tuple[str, ...], row("Replicas whose follower throttles "
        "replication; kept, without effect with one replica.",
        kinds.ThrottledReplicas(), "")] = ()
    internal_segment_bytes: Annotated[int | None, row("Overrides segment.bytes, even below its minimum; for tests.",
        kinds.OptionalWholeNumber(kinds.WholeNumber(kinds.INT_MIN, kinds.INT_MAX)), "bytes", hidden=True)] = None
    # fmt: on

    @classmethod
    def from_overrides(cls, overrides: Mapping[str, str], defaults: Self | None = None) -> Self:
        """Return `defaults` (None: Kafka's) with `overrides` applied. Raises InvalidConfigError for a bad override."""
        base = cls() if defaults is None else defaults
        config = base._replace(**read_overrides(SETTINGS, overrides, what="topic setting"))
        config.check_consistency()
        return config

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def effective_segment_bytes(self) -> int:
        """Size limit of a segment; internal.segment.bytes, if it is set, takes precedence."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    @property
    def effective_segment_ms(self) -> int:
        """Time limit of a segment: a compacted topic also rolls after max.compaction.lag.ms."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    def check_consistency(self) -> None:
        """Raise InvalidConfigError if values that are valid one by one contradict each other."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfigError(
                f"min.compaction.lag.ms={self.min_compaction_lag_ms}: must not be larger than "
                f"max.compaction.lag.ms={self.max_compaction_lag_ms}"
            )
        if self.remote_storage_enable:
            raise InvalidConfigError("remote.storage.enable=true: tiered storage is not available here")


SETTINGS: Mapping[str, Setting] = read_table(TopicConfig())
"""Every topic setting by Kafka's name, in the table's order."""
