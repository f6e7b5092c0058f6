"""A topic's settings: the one table of their names, defaults, units, valid values and meanings.

Read a row as: field (Kafka's name with underscores for dots), type, kind of value, unit, meaning, the broker
settings it falls back to (the first one present wins), default. The table follows Kafka's TopicConfig and
LogConfig (kafka-storage.md#topic-settings).
"""

from collections.abc import Mapping
from typing import Annotated, NamedTuple, Self

from topicfs.storage.config.kinds import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    Boolean,
    OneOf,
    OptionalWholeNumber,
    Ratio,
    ThrottledReplicas,
    TimestampTypeChoice,
    WholeNumber,
    WholeNumberOr,
    WordList,
    int_of_at_least,
    long_of_at_least,
)
from topicfs.storage.config.setting import Setting, SettingRow, Synonym, read_table, synonyms
from topicfs.storage.errors import InvalidConfigError
from topicfs.storage.messages import did_you_mean
from topicfs.storage.model import TimestampType

MILLISECONDS_PER_MINUTE = 60_000
MILLISECONDS_PER_HOUR = 3_600_000


class TopicConfig(NamedTuple):
    """The settings of a topic's logs. Immutable: a change makes a new value.

    Values given to the constructor are taken as they are; text from users goes through `from_overrides`.
    """

    cleanup_policy: Annotated[
        tuple[str, ...],
        SettingRow(
            WordList(("compact", "delete")),
            "",
            "What happens to old segments: delete removes them by retention.*, compact keeps the newest "
            "record of each key, both do both; with nothing, only what DeleteRecords released is removed.",
            synonyms("log.cleanup.policy"),
        ),
    ] = ("delete",)
    compression_type: Annotated[
        str,
        SettingRow(
            OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
            "",
            "The codec batches are kept in; producer keeps each batch as it comes.",
            synonyms("compression.type"),
        ),
    ] = "producer"
    compression_gzip_level: Annotated[
        int,
        SettingRow(
            WholeNumberOr(WholeNumber(1, 9), -1),
            "",
            "gzip's level when compression.type is gzip; -1 is the library's own default.",
            synonyms("compression.gzip.level"),
        ),
    ] = -1
    compression_lz4_level: Annotated[
        int,
        SettingRow(
            WholeNumber(1, 17),
            "",
            "lz4's level when compression.type is lz4.",
            synonyms("compression.lz4.level"),
        ),
    ] = 9
    compression_zstd_level: Annotated[
        int,
        SettingRow(
            WholeNumber(-131072, 22),
            "",
            "zstd's level when compression.type is zstd.",
            synonyms("compression.zstd.level"),
        ),
    ] = 3
    delete_retention_ms: Annotated[
        int,
        SettingRow(
            long_of_at_least(0),
            "ms",
            "How long compaction keeps tombstones and transaction markers after first seeing them.",
            synonyms("log.cleaner.delete.retention.ms"),
        ),
    ] = 86_400_000
    file_delete_delay_ms: Annotated[
        int,
        SettingRow(
            long_of_at_least(0),
            "ms",
            "How long a file stays on disk, as .deleted, after it left the log.",
            synonyms("log.segment.delete.delay.ms"),
        ),
    ] = 60_000
    flush_messages: Annotated[
        int,
        SettingRow(
            long_of_at_least(1),
            "records",
            "Flush to disk whenever this many records are not flushed yet.",
            synonyms("log.flush.interval.messages"),
        ),
    ] = LONG_MAX
    flush_ms: Annotated[
        int,
        SettingRow(
            long_of_at_least(0),
            "ms",
            "Flush to disk when the last flush is this long ago.",
            synonyms("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        ),
    ] = LONG_MAX
    index_interval_bytes: Annotated[
        int,
        SettingRow(
            int_of_at_least(0),
            "bytes",
            "An offset index entry is due when more than this many bytes of log follow the last one.",
            synonyms("log.index.interval.bytes"),
        ),
    ] = 4096
    max_message_bytes: Annotated[
        int,
        SettingRow(
            int_of_at_least(0),
            "bytes",
            "The largest record batch a log takes, its header included.",
            synonyms("message.max.bytes"),
        ),
    ] = 1_048_588
    max_compaction_lag_ms: Annotated[
        int,
        SettingRow(
            long_of_at_least(1),
            "ms",
            "The longest a record may stay uncompacted.",
            synonyms("log.cleaner.max.compaction.lag.ms"),
        ),
    ] = LONG_MAX
    min_compaction_lag_ms: Annotated[
        int,
        SettingRow(
            long_of_at_least(0),
            "ms",
            "The shortest a record stays uncompacted.",
            synonyms("log.cleaner.min.compaction.lag.ms"),
        ),
    ] = 0
    message_timestamp_type: Annotated[
        TimestampType,
        SettingRow(
            TimestampTypeChoice(),
            "",
            "Whether a record's timestamp is its producer's or the time of its append.",
            synonyms("log.message.timestamp.type"),
        ),
    ] = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: Annotated[
        int,
        SettingRow(
            long_of_at_least(0),
            "ms",
            "How far a CreateTime timestamp may lie before the append.",
            synonyms("log.message.timestamp.before.max.ms"),
        ),
    ] = LONG_MAX
    message_timestamp_after_max_ms: Annotated[
        int,
        SettingRow(
            long_of_at_least(0),
            "ms",
            "How far a CreateTime timestamp may lie after the append.",
            synonyms("log.message.timestamp.after.max.ms"),
        ),
    ] = 3_600_000
    min_cleanable_dirty_ratio: Annotated[
        float,
        SettingRow(
            Ratio(0.0, 1.0),
            "",
            "The share of uncompacted bytes above which a log is compacted.",
            synonyms("log.cleaner.min.cleanable.ratio"),
        ),
    ] = 0.5
    min_insync_replicas: Annotated[
        int,
        SettingRow(
            int_of_at_least(1),
            "replicas",
            "How many replicas must hold a record for acks=all, O_SYNC and fsync to succeed; at most all there are.",
            synonyms("min.insync.replicas"),
        ),
    ] = 1
    preallocate: Annotated[
        bool,
        SettingRow(
            Boolean(),
            "",
            "Whether a new segment's file takes its full size on disk at once.",
            synonyms("log.preallocate"),
        ),
    ] = False
    retention_bytes: Annotated[
        int,
        SettingRow(
            WholeNumber(LONG_MIN, LONG_MAX),
            "bytes",
            "How many bytes a partition keeps at least before its oldest segments go; negative: no limit.",
            synonyms("log.retention.bytes"),
        ),
    ] = -1
    retention_ms: Annotated[
        int,
        SettingRow(
            long_of_at_least(-1),
            "ms",
            "The age of its newest record at which a segment goes; -1: never.",
            synonyms(
                "log.retention.ms",
                Synonym("log.retention.minutes", MILLISECONDS_PER_MINUTE),
                Synonym("log.retention.hours", MILLISECONDS_PER_HOUR),
            ),
        ),
    ] = 604_800_000
    segment_bytes: Annotated[
        int,
        SettingRow(
            int_of_at_least(1_048_576),
            "bytes",
            "The size a segment's log does not exceed.",
            synonyms("log.segment.bytes"),
        ),
    ] = 1_073_741_824
    segment_index_bytes: Annotated[
        int,
        SettingRow(
            int_of_at_least(4),
            "bytes",
            "The size of a segment's offset index, and of its time index.",
            synonyms("log.index.size.max.bytes"),
        ),
    ] = 10_485_760
    segment_jitter_ms: Annotated[
        int,
        SettingRow(
            long_of_at_least(0),
            "ms",
            "Segments roll up to this much earlier than segment.ms, each by a random amount.",
            synonyms("log.roll.jitter.ms", Synonym("log.roll.jitter.hours", MILLISECONDS_PER_HOUR)),
        ),
    ] = 0
    segment_ms: Annotated[
        int,
        SettingRow(
            long_of_at_least(1),
            "ms",
            "The span of record time after which a segment rolls though it is not full.",
            synonyms("log.roll.ms", Synonym("log.roll.hours", MILLISECONDS_PER_HOUR)),
        ),
    ] = 604_800_000
    unclean_leader_election_enable: Annotated[
        bool,
        SettingRow(
            Boolean(),
            "",
            "Whether a replica that is out of sync may lead; no meaning with one replica.",
            synonyms("unclean.leader.election.enable"),
        ),
    ] = False
    remote_storage_enable: Annotated[
        bool,
        SettingRow(
            Boolean(),
            "",
            "Whether segments move to tiered storage; not available here, so only false is taken.",
        ),
    ] = False
    remote_log_copy_disable: Annotated[
        bool,
        SettingRow(
            Boolean(),
            "",
            "Whether a tiered topic stops copying; no meaning without tiered storage.",
        ),
    ] = False
    remote_log_delete_on_disable: Annotated[
        bool,
        SettingRow(
            Boolean(),
            "",
            "Whether switching tiering off deletes what was copied; no meaning without tiered storage.",
        ),
    ] = False
    local_retention_ms: Annotated[
        int,
        SettingRow(
            long_of_at_least(-2),
            "ms",
            "retention.ms of the local copy of a tiered topic; -2: the same as retention.ms.",
            synonyms("log.local.retention.ms"),
        ),
    ] = -2
    local_retention_bytes: Annotated[
        int,
        SettingRow(
            long_of_at_least(-2),
            "bytes",
            "retention.bytes of the local copy of a tiered topic; -2: the same as retention.bytes.",
            synonyms("log.local.retention.bytes"),
        ),
    ] = -2
    remote_copy_lag_ms: Annotated[
        int,
        SettingRow(
            long_of_at_least(-1),
            "ms",
            "The age at which a tiered topic's segment is copied; no meaning without tiered storage.",
            synonyms("log.remote.copy.lag.ms"),
        ),
    ] = 0
    remote_copy_lag_bytes: Annotated[
        int,
        SettingRow(
            long_of_at_least(-1),
            "bytes",
            "The bytes after which a tiered topic's segment is copied; no meaning without tiered storage.",
            synonyms("log.remote.copy.lag.bytes"),
        ),
    ] = -1
    errors_deadletterqueue_group_enable: Annotated[
        bool,
        SettingRow(
            Boolean(),
            "",
            "Whether share groups may use the topic as their dead letter queue; kept, without effect here.",
        ),
    ] = False
    leader_replication_throttled_replicas: Annotated[
        tuple[str, ...],
        SettingRow(
            ThrottledReplicas(),
            "",
            "Replicas whose leader throttles replication; kept, without effect with one replica.",
        ),
    ] = ()
    follower_replication_throttled_replicas: Annotated[
        tuple[str, ...],
        SettingRow(
            ThrottledReplicas(),
            "",
            "Replicas whose follower throttles replication; kept, without effect with one replica.",
        ),
    ] = ()
    internal_segment_bytes: Annotated[
        int | None,
        SettingRow(
            OptionalWholeNumber(WholeNumber(INT_MIN, INT_MAX)),
            "bytes",
            "Overrides segment.bytes, also below its minimum: for tests.",
            hidden=True,
        ),
    ] = None

    @classmethod
    def from_overrides(cls, overrides: Mapping[str, str], defaults: Self | None = None) -> Self:
        """Return `defaults` (Kafka's when None) with `overrides`, by Kafka's names, in place of theirs.

        Raises InvalidConfigError for an unknown name, a bad value, or values that do not fit together.
        """
        base = cls() if defaults is None else defaults
        values = {field_name(name): setting(name).parse(text) for name, text in overrides.items()}
        config = base._replace(**values)
        config.check_consistency()
        return config

    def value_text(self, name: str) -> str:
        """Return a setting's value in Kafka's spelling. InvalidConfigError: unknown name."""
        return setting(name).text_in(self)

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """True if segments go by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def effective_segment_bytes(self) -> int:
        """The size limit of a segment: internal.segment.bytes where it is set."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    @property
    def effective_segment_ms(self) -> int:
        """The time limit of a segment: compacted topics also roll for max.compaction.lag.ms."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    def check_consistency(self) -> None:
        """Raise InvalidConfigError when values that are valid one by one do not fit together."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfigError(
                f"min.compaction.lag.ms={self.min_compaction_lag_ms}: must not be larger than "
                f"max.compaction.lag.ms={self.max_compaction_lag_ms}"
            )
        if self.remote_storage_enable:
            raise InvalidConfigError("remote.storage.enable=true: tiered storage is not available here")


def field_name(name: str) -> str:
    """Return the TopicConfig field of a setting's Kafka name."""
    return name.replace(".", "_")


SETTINGS: Mapping[str, Setting] = read_table(TopicConfig())
"""Every topic setting by Kafka's name, in the table's order."""


def setting(name: str) -> Setting:
    """Look up a setting by Kafka's name; raises InvalidConfigError."""
    found = SETTINGS.get(name)
    if found is None:
        raise InvalidConfigError(f"{name}: no such topic setting{did_you_mean(name, SETTINGS)}")
    return found
