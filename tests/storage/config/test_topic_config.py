"""Tests of the table of topic settings: names, defaults, validation, printing."""

from __future__ import annotations

import pytest

from topicfs.storage.config.topic import SETTINGS, TopicConfig
from topicfs.storage.errors import InvalidConfigError
from topicfs.storage.model import TimestampType

LONG_MAX = 2**63 - 1

KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": str(LONG_MAX),
    "flush.ms": str(LONG_MAX),
    "index.interval.bytes": "4096",
    "max.message.bytes": "1048588",
    "max.compaction.lag.ms": str(LONG_MAX),
    "min.compaction.lag.ms": "0",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(LONG_MAX),
    "message.timestamp.after.max.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.5",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
    "remote.storage.enable": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "local.retention.ms": "-2",
    "local.retention.bytes": "-2",
    "remote.copy.lag.ms": "0",
    "remote.copy.lag.bytes": "-1",
    "errors.deadletterqueue.group.enable": "false",
    "leader.replication.throttled.replicas": "",
    "follower.replication.throttled.replicas": "",
    "internal.segment.bytes": "",
}

BAD_VALUES = [
    ("cleanup.policy", "Delete"),
    ("cleanup.policy", "delete,delete"),
    ("cleanup.policy", "delete,"),
    ("compression.type", "none"),
    ("compression.gzip.level", "10"),
    ("compression.lz4.level", "0"),
    ("compression.zstd.level", "23"),
    ("delete.retention.ms", "-1"),
    ("file.delete.delay.ms", "-1"),
    ("flush.messages", "0"),
    ("flush.ms", str(LONG_MAX + 1)),
    ("index.interval.bytes", "2147483648"),
    ("max.message.bytes", "-1"),
    ("max.compaction.lag.ms", "0"),
    ("min.compaction.lag.ms", "1.5"),
    ("message.timestamp.type", "createtime"),
    ("message.timestamp.before.max.ms", "1e3"),
    ("message.timestamp.after.max.ms", ""),
    ("min.cleanable.dirty.ratio", "1.01"),
    ("min.cleanable.dirty.ratio", "NaN"),
    ("min.insync.replicas", "0"),
    ("preallocate", "yes"),
    ("retention.bytes", "1_000"),
    ("retention.ms", "-2"),
    ("retention.ms", "\N{ARABIC-INDIC DIGIT ONE}"),
    ("segment.bytes", "1048575"),
    ("segment.index.bytes", "3"),
    ("segment.jitter.ms", "-1"),
    ("segment.ms", "0"),
    ("local.retention.ms", "-3"),
    ("remote.copy.lag.bytes", "-2"),
    ("leader.replication.throttled.replicas", "1:2,3"),
    ("internal.segment.bytes", "many"),
]


def test_defaults_are_kafkas() -> None:
    """Every setting has Kafka's name and prints Kafka's default."""
    config = TopicConfig()
    assert KAFKA_DEFAULTS == {name: SETTINGS[name].text_in(config) for name in SETTINGS}


@pytest.mark.parametrize("name", SETTINGS)
def test_printed_values_read_back(name: str) -> None:
    """The printed value of each setting can be parsed again, to the same value."""
    config = TopicConfig()
    assert config == TopicConfig.from_overrides({name: SETTINGS[name].text_in(config)})


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_says_what_it_is(name: str) -> None:
    """The description of each setting is a full sentence, and names the unit if the setting is a quantity."""
    row = SETTINGS[name].row
    assert row.meaning.endswith(".")
    assert not name.endswith(".ms") or row.unit == "ms"
    assert not name.endswith(".bytes") or row.unit == "bytes"


@pytest.mark.parametrize(("name", "value"), BAD_VALUES)
def test_bad_values_are_refused(name: str, value: str) -> None:
    """The error for an invalid value is one line with the setting, the value and the valid values."""
    with pytest.raises(InvalidConfigError) as caught:
        TopicConfig.from_overrides({name: value})
    message = str(caught.value)
    assert message.startswith(f"{name}={value}: must be ")
    assert "\n" not in message


def test_error_says_what_is_valid() -> None:
    """The words after `must be` in an error describe the valid values of the setting."""
    with pytest.raises(
        InvalidConfigError, match=r"^segment.bytes=1: must be a whole number from 1048576 to 2147483647$"
    ):
        TopicConfig.from_overrides({"segment.bytes": "1"})


def test_unknown_names_are_refused() -> None:
    """A name that is not a topic setting is refused, even if it is a broker setting."""
    for name in ("no.such.setting", "log.segment.bytes", "segment_bytes", ""):
        with pytest.raises(InvalidConfigError, match="no such topic setting"):
            TopicConfig.from_overrides({name: "1"})


def test_overrides_replace_defaults() -> None:
    """A setting without an override has the value of the given defaults, and not Kafka's default."""
    defaults = TopicConfig(retention_ms=5, segment_ms=6)
    config = TopicConfig.from_overrides({"retention.ms": " -1 "}, defaults)
    assert (-1, 6) == (config.retention_ms, config.segment_ms)


def test_values_that_do_not_fit_together_are_refused() -> None:
    """min.compaction.lag.ms may not exceed max.compaction.lag.ms, whatever the sources of the two values are."""
    with pytest.raises(InvalidConfigError, match="must not be larger than max"):
        TopicConfig.from_overrides({"min.compaction.lag.ms": "10"}, TopicConfig(max_compaction_lag_ms=9))


def test_tiered_storage_is_refused() -> None:
    """A setting of a feature that topicfs lacks is refused; otherwise it would have no effect."""
    with pytest.raises(InvalidConfigError, match="tiered storage"):
        TopicConfig.from_overrides({"remote.storage.enable": "true"})


def test_cleanup_policies() -> None:
    """cleanup.policy is a list that may be empty."""
    both = TopicConfig.from_overrides({"cleanup.policy": "compact, delete"})
    neither = TopicConfig.from_overrides({"cleanup.policy": ""})
    assert (True, True) == (both.compacts, both.deletes)
    assert (False, False) == (neither.compacts, neither.deletes)


def test_internal_segment_bytes_overrides_segment_bytes() -> None:
    """With internal.segment.bytes, tests can use segments below the minimum of segment.bytes."""
    assert TopicConfig().segment_bytes == TopicConfig().effective_segment_bytes
    assert 200 == TopicConfig.from_overrides({"internal.segment.bytes": "200"}).effective_segment_bytes
    assert SETTINGS["internal.segment.bytes"].row.hidden


def test_compacted_topics_roll_for_the_compaction_lag() -> None:
    """A compacted topic rolls after the smaller of segment.ms and max.compaction.lag.ms."""
    config = TopicConfig(segment_ms=100, max_compaction_lag_ms=30)
    compacted = TopicConfig(segment_ms=100, max_compaction_lag_ms=30, cleanup_policy=("compact",))
    assert (100, 30) == (config.effective_segment_ms, compacted.effective_segment_ms)


def test_timestamp_type_is_a_value_of_its_own() -> None:
    """`message_timestamp_type` is a TimestampType, not text."""
    config = TopicConfig.from_overrides({"message.timestamp.type": "LogAppendTime"})
    assert TimestampType.LOG_APPEND_TIME is config.message_timestamp_type
