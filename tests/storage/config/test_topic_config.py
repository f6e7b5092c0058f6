"""Tests of topic settings: overrides, messages, and rules of single settings."""

from __future__ import annotations

import pytest

from topicfs.storage.config.topic import SETTINGS, TopicConfig
from topicfs.storage.errors import InvalidConfigError
from topicfs.storage.model import TimestampType


@pytest.mark.parametrize("name", SETTINGS)
def test_printed_values_read_back(name: str) -> None:
    """The printed value of each setting can be parsed again, to the same value."""
    config = TopicConfig()
    assert config == TopicConfig.from_overrides({name: SETTINGS[name].text_in(config)})


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_says_what_it_is(name: str) -> None:
    """The description of each setting is a full sentence."""
    assert SETTINGS[name].row.meaning.endswith(".")


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
