"""The engine's own settings, with the names and defaults of Kafka's broker (kafka-storage.md#broker-settings).

Settings of a `server.properties` that have no meaning here (listeners, quorums, …) are reported to the caller.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, get_type_hints

from topicfs.storage.config.kinds import (
    INT_MAX,
    Boolean,
    WholeNumber,
    int_of_at_least,
    long_of_at_least,
    read_value,
    split_list,
)
from topicfs.storage.config.setting import Setting, Synonym, row
from topicfs.storage.config.topic import SETTINGS, TopicConfig
from topicfs.storage.errors import InvalidConfigError

KEEP_FOREVER: Mapping[str, str] = MappingProxyType({"retention.ms": "-1"})
"""Overrides that new topics get. Records that a user restores have old timestamps, so without these overrides
the next retention pass would delete them.
"""


class EngineConfig(NamedTuple):
    """The settings of an engine over its data directories. Immutable."""

    topic_defaults: TopicConfig = TopicConfig()

    creation_overrides: Mapping[str, str] = KEEP_FOREVER
    """Overrides for every topic created here; overrides that are given for one topic take precedence."""

    follows: bool = False
    """True if another engine leads these logs. This engine then only repeats what the other engine appends, compacts
    and removes.
    """

    # fmt: off
    node_id: Annotated[int, row("The node named in a new data directory's meta.properties.",
        int_of_at_least(0), "", "node.id", "broker.id")] = 1
    num_partitions: Annotated[int, row("Number of partitions of a topic that is created without a number.",
        int_of_at_least(1), "partitions", "num.partitions")] = 1
    replication_factor: Annotated[int, row("Number of replicas of each partition of a new topic, in data directories "
        "with replicas.",
        int_of_at_least(1), "replicas", "default.replication.factor")] = 1
    follower_rate: Annotated[int, row("How fast a replica that is behind may catch up.",
        long_of_at_least(0), "bytes/s", "follower.replication.throttled.rate")] = 2**63 - 1
    move_rate: Annotated[int, row("How fast a replica may be copied when it moves to another data directory.",
        long_of_at_least(0), "bytes/s", "replica.alter.log.dirs.io.max.bytes.per.second")] = 2**63 - 1
    auto_create_topics: Annotated[bool, row("Whether a Kafka client that names a missing topic creates it.",
        Boolean(), "", "auto.create.topics.enable")] = True
    max_request_bytes: Annotated[int, row("Largest size of a Kafka client's request.",
        int_of_at_least(1), "bytes", "socket.request.max.bytes")] = 104_857_600
    max_queued_bytes: Annotated[int, row("Memory for large requests and answers of all Kafka clients together; 0 or "
        "less: no limit.",
        long_of_at_least(-1), "bytes", "queued.max.request.bytes")] = 268_435_456
    max_connections: Annotated[int, row("Largest number of connections of Kafka clients.",
        int_of_at_least(0), "connections", "max.connections")] = 1_000
    max_connections_per_ip: Annotated[int, row("Largest number of connections of Kafka clients from one address.",
        int_of_at_least(0), "connections", "max.connections.per.ip")] = INT_MAX
    max_idle_ms: Annotated[int, row("Time after which a Kafka client's connection without requests is closed; -1: never.",
        long_of_at_least(-1), "ms", "connections.max.idle.ms")] = 600_000
    failed_authentication_delay_ms: Annotated[int, row("How long the answer to a failed authentication is delayed.",
        int_of_at_least(0), "ms", "connection.failed.authentication.delay.ms")] = 100
    recovery_threads: Annotated[int, row("How many logs are loaded at a time.",
        int_of_at_least(1), "threads", "num.recovery.threads.per.data.dir")] = 2
    initial_task_delay_ms: Annotated[int, row("Time from the opening to the first duties.",
        long_of_at_least(0), "ms", "log.initial.task.delay.ms")] = 30_000
    flush_check_interval_ms: Annotated[int, row("How often to look for logs whose flush.ms has passed. A broker "
        "never looks by default, so that a topic's flush.ms has no effect there.",
        long_of_at_least(1), "ms", "log.flush.scheduler.interval.ms")] = 1_000
    recovery_point_interval_ms: Annotated[int, row("How often recovery points are written.",
        int_of_at_least(0), "ms", "log.flush.offset.checkpoint.interval.ms")] = 60_000
    log_start_offset_interval_ms: Annotated[int, row("How often log start offsets are written.",
        int_of_at_least(0), "ms", "log.flush.start.offset.checkpoint.interval.ms")] = 60_000
    high_watermark_interval_ms: Annotated[int, row("How often high watermarks are written.",
        long_of_at_least(0), "ms", "replica.high.watermark.checkpoint.interval.ms")] = 5_000
    retention_check_interval_ms: Annotated[int, row("How often to look for segments to delete.",
        long_of_at_least(1), "ms", "log.retention.check.interval.ms")] = 300_000
    cleaner_enable: Annotated[bool, row("Whether compacted topics are compacted.",
        Boolean(), "", "log.cleaner.enable")] = True
    cleaner_backoff_ms: Annotated[int, row("How long the cleaner pauses when no log is dirty enough.",
        long_of_at_least(0), "ms", "log.cleaner.backoff.ms")] = 15_000
    cleaner_dedupe_buffer_bytes: Annotated[int, row("Memory for the keys of one cleaning pass, 24 bytes each; a log "
        "with more dirty keys takes several passes.",
        long_of_at_least(1), "bytes", "log.cleaner.dedupe.buffer.size")] = 134_217_728
    scrub_interval_hours: Annotated[int, row("Time from the end of one scrub to the next, which reads everything and "
        "repairs what it can; 0: never. Kafka has no scrub.",
        int_of_at_least(0), "h", "log.scrub.interval.hours")] = 168
    producer_id_expiration_ms: Annotated[int, row("How long a producer without an open transaction is remembered "
        "after its last record.",
        WholeNumber(1, INT_MAX), "ms", "producer.id.expiration.ms")] = 86_400_000
    producer_id_check_interval_ms: Annotated[int, row("How often to look for producers to forget.",
        WholeNumber(1, INT_MAX), "ms", "producer.id.expiration.check.interval.ms")] = 600_000
    transactional_id_expiration_ms: Annotated[int, row("How long a transactional id is remembered after its last "
        "transaction.",
        int_of_at_least(1), "ms", "transactional.id.expiration.ms")] = 604_800_000
    transaction_max_timeout_ms: Annotated[int, row("The longest timeout that a transactional producer may ask for.",
        int_of_at_least(1), "ms", "transaction.max.timeout.ms")] = 900_000
    transaction_topic_num_partitions: Annotated[int, row("Number of partitions of __transaction_state, which is "
        "created with the first transactional producer.",
        int_of_at_least(1), "partitions", "transaction.state.log.num.partitions")] = 50
    transaction_timeout_check_interval_ms: Annotated[int, row("How often to look for transactions whose timeout has "
        "passed.",
        int_of_at_least(1), "ms", "transaction.abort.timed.out.transaction.cleanup.interval.ms")] = 10_000
    transactional_id_check_interval_ms: Annotated[int, row("How often to look for transactional ids to forget.",
        int_of_at_least(1), "ms", "transaction.remove.expired.transaction.cleanup.interval.ms")] = 3_600_000
    offsets_topic_num_partitions: Annotated[int, row("Number of partitions of __consumer_offsets, which is created "
        "with the first group.",
        int_of_at_least(1), "partitions", "offsets.topic.num.partitions")] = 50
    offsets_retention_minutes: Annotated[int, row("How long the positions of a group without members are kept.",
        int_of_at_least(1), "min", "offsets.retention.minutes")] = 10_080
    offsets_retention_check_interval_ms: Annotated[int, row("How often to look for expired positions.",
        long_of_at_least(1), "ms", "offsets.retention.check.interval.ms")] = 600_000
    offset_metadata_max_bytes: Annotated[int, row("Largest size of the metadata of a committed position.",
        int_of_at_least(0), "bytes", "offset.metadata.max.bytes")] = 4_096
    group_max_size: Annotated[int, row("Largest number of members of a group.",
        int_of_at_least(1), "members", "group.max.size")] = INT_MAX
    group_min_session_timeout_ms: Annotated[int, row("The shortest session timeout that a consumer may ask for.",
        int_of_at_least(0), "ms", "group.min.session.timeout.ms")] = 6_000
    group_max_session_timeout_ms: Annotated[int, row("The longest session timeout that a consumer may ask for.",
        int_of_at_least(0), "ms", "group.max.session.timeout.ms")] = 1_800_000
    group_initial_rebalance_delay_ms: Annotated[int, row("How long an empty group waits for more members. A broker "
        "waits three seconds, which would delay a shell command here.",
        int_of_at_least(0), "ms", "group.initial.rebalance.delay.ms")] = 0
    # fmt: on

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "FromProperties":
        """Parse a `server.properties`; if it sets retention, KEEP_FOREVER is not used. Raises InvalidConfigError."""
        values, topic_values = (_values_of(table, properties) for table in (broker_settings(), SETTINGS))
        defaults = TopicConfig()._replace(**topic_values)
        defaults.check_consistency()
        overrides = {} if "retention_ms" in topic_values else KEEP_FOREVER
        config = cls(topic_defaults=defaults, creation_overrides=MappingProxyType(dict(overrides)), **values)
        return FromProperties(
            config,
            ignored=[name for name in properties if name not in known_names()],
            log_directories=_log_directories(properties),
            given=MappingProxyType(
                {
                    name: found.name
                    for name, one in (*SETTINGS.items(), *broker_settings().items())
                    if (found := _given(one, properties))
                }
            ),
        )


class FromProperties(NamedTuple):
    """The settings read from a `server.properties`."""

    config: EngineConfig
    ignored: list[str]
    """Names in the file that are not used here, in the file's order."""
    log_directories: tuple[str, ...]
    """The data directories that the file names, as it spells them; empty if it names none."""
    given: Mapping[str, str]
    """For each setting in the file, the name that the file uses; the key is the setting's first name in Kafka."""


@cache
def broker_settings() -> Mapping[str, Setting]:
    """Return the engine's settings in the table's order; the key is the first of the setting's names in Kafka."""
    defaults = EngineConfig()
    table = {}
    for field, annotation in get_type_hints(EngineConfig, include_extras=True).items():
        for one in getattr(annotation, "__metadata__", ()):
            name = one.synonyms[0].name
            table[name] = Setting(name, field, getattr(defaults, field), one)
    return table


def _log_directories(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Read log.dirs, or log.dir if log.dirs is missing. Raises InvalidConfigError for an empty list or item."""
    found = next((name for name in LOG_DIRECTORIES if name in properties), None)
    if found is None:
        return ()
    directories = split_list(properties[found])
    if not all(directories) or not directories:
        raise InvalidConfigError(
            f"{found}={properties[found]}: must be a comma-separated list of directories"
        )
    return directories


def _given(one: Setting, properties: Mapping[str, str]) -> Synonym | None:
    return next((synonym for synonym in one.row.synonyms if synonym.name in properties), None)


def _values_of(table: Mapping[str, Setting], properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the values that a file gives to the settings of `table`; the keys are names of fields."""
    return {
        one.field: _synonym_value(one, synonym, properties[synonym.name])
        for one in table.values()
        if (synonym := _given(one, properties))
    }


def _synonym_value(one: Setting, synonym: Synonym, text: str) -> Any:
    """Parse the value of a synonym, and convert it to the unit of the setting."""
    kind = one.row.kind
    if synonym.factor == 1:
        return read_value(synonym.name, text, kind)
    whole = read_value(synonym.name, text, WholeNumber(-1, INT_MAX))
    milliseconds = whole if whole < 0 else whole * synonym.factor
    return read_value(synonym.name, str(milliseconds), kind)


LOG_DIRECTORIES = ("log.dirs", "log.dir")
"""The settings that name a broker's data directories; the first one that the file has counts."""


@cache
def known_names() -> frozenset[str]:
    """Return the names of all settings that `from_properties` uses."""
    tables = (*broker_settings().values(), *SETTINGS.values())
    return frozenset([*LOG_DIRECTORIES, *(synonym.name for one in tables for synonym in one.row.synonyms)])
