"""Tests of Kafka's table of topic settings: defaults, units, smallest and largest values, broker settings."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import SETTINGS, TopicConfig
from topicfs.storage.errors import InvalidConfigError

INT, LONG = str(2**31 - 1), str(2**63 - 1)
PAST_INT, PAST_LONG = str(2**31), str(2**63)


class Row(NamedTuple):
    """A row of kafka-storage.md#topic-settings."""

    name: str
    default: str
    unit: str
    valid: tuple[str, ...]
    """Values at the edges of the valid range, as they are printed."""
    invalid: tuple[str, ...]
    synonym: str | None
    """The broker setting that gives the default, or None if there is none."""


def at_least(name: str, default: str, unit: str, bounds: tuple[int, str], synonym: str | None) -> Row:
    """Return the row of an integer setting whose range is from a minimum to Java's largest integer."""
    minimum, largest = bounds
    past = PAST_INT if largest == INT else PAST_LONG
    return Row(
        name, default, unit, (str(minimum), largest), (str(minimum - 1), past, "", "1.0", "x"), synonym
    )


def truth(name: str, synonym: str | None) -> Row:
    return Row(name, "false", "", ("true", "false"), ("yes", "1", ""), synonym)


TABLE = [
    Row("cleanup.policy", "delete", "", ("compact", "delete", "compact,delete", ""), ("Compact", "compact,", "compact,compact"), "log.cleanup.policy"),
    Row("compression.type", "producer", "", ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), ("none", "", "GZIP"), "compression.type"),
    Row("compression.gzip.level", "-1", "", ("1", "9", "-1"), ("0", "10", "-2"), "compression.gzip.level"),
    Row("compression.lz4.level", "9", "", ("1", "17"), ("0", "18", "-1"), "compression.lz4.level"),
    Row("compression.zstd.level", "3", "", ("-131072", "22", "0"), ("-131073", "23"), "compression.zstd.level"),
    at_least("delete.retention.ms", "86400000", "ms", (0, LONG), "log.cleaner.delete.retention.ms"),
    at_least("file.delete.delay.ms", "60000", "ms", (0, LONG), "log.segment.delete.delay.ms"),
    at_least("flush.messages", LONG, "records", (1, LONG), "log.flush.interval.messages"),
    at_least("flush.ms", LONG, "ms", (0, LONG), "log.flush.interval.ms"),
    at_least("index.interval.bytes", "4096", "bytes", (0, INT), "log.index.interval.bytes"),
    at_least("max.message.bytes", "1048588", "bytes", (0, INT), "message.max.bytes"),
    at_least("max.compaction.lag.ms", LONG, "ms", (1, LONG), "log.cleaner.max.compaction.lag.ms"),
    at_least("min.compaction.lag.ms", "0", "ms", (0, LONG), "log.cleaner.min.compaction.lag.ms"),
    Row("message.timestamp.type", "CreateTime", "", ("LogAppendTime", "CreateTime"), ("createtime", "0", ""), "log.message.timestamp.type"),
    at_least("message.timestamp.before.max.ms", LONG, "ms", (0, LONG), "log.message.timestamp.before.max.ms"),
    at_least("message.timestamp.after.max.ms", "3600000", "ms", (0, LONG), "log.message.timestamp.after.max.ms"),
    Row("min.cleanable.dirty.ratio", "0.5", "", ("0.0", "1.0"), ("-0.1", "1.1", "NaN", ""), "log.cleaner.min.cleanable.ratio"),
    at_least("min.insync.replicas", "1", "replicas", (1, INT), "min.insync.replicas"),
    truth("preallocate", "log.preallocate"),
    Row("retention.bytes", "-1", "bytes", (str(-(2**63)), "-1", "0", LONG), (PAST_LONG, "", "1_000", "1e3", "\N{ARABIC-INDIC DIGIT ONE}"), "log.retention.bytes"),
    at_least("retention.ms", "604800000", "ms", (-1, LONG), "log.retention.ms"),
    at_least("segment.bytes", "1073741824", "bytes", (1_048_576, INT), "log.segment.bytes"),
    at_least("segment.index.bytes", "10485760", "bytes", (4, INT), "log.index.size.max.bytes"),
    at_least("segment.jitter.ms", "0", "ms", (0, LONG), "log.roll.jitter.ms"),
    at_least("segment.ms", "604800000", "ms", (1, LONG), "log.roll.ms"),
    truth("unclean.leader.election.enable", "unclean.leader.election.enable"),
    # The value "true" is refused: see test_tiered_storage_is_refused.
    Row("remote.storage.enable", "false", "", ("false",), ("yes", ""), None),
    truth("remote.log.copy.disable", None),
    truth("remote.log.delete.on.disable", None),
    at_least("local.retention.ms", "-2", "ms", (-2, LONG), "log.local.retention.ms"),
    at_least("local.retention.bytes", "-2", "bytes", (-2, LONG), "log.local.retention.bytes"),
    at_least("remote.copy.lag.ms", "0", "ms", (-1, LONG), "log.remote.copy.lag.ms"),
    at_least("remote.copy.lag.bytes", "-1", "bytes", (-1, LONG), "log.remote.copy.lag.bytes"),
    truth("errors.deadletterqueue.group.enable", None),
    Row("leader.replication.throttled.replicas", "", "", ("*", "0:1", "0:1,2:3", ""), ("1", "a:b", "*,1:2", "1:2,3"), None),
    Row("follower.replication.throttled.replicas", "", "", ("*", "0:1", "0:1,2:3", ""), ("1", "a:b", "*,1:2"), None),
    Row("internal.segment.bytes", "", "bytes", ("1", "-1", INT, ""), (PAST_INT, "x"), None),
]  # fmt: skip

LATER_SYNONYMS = [
    ("log.retention.minutes", "2", "retention.ms", "120000"),
    ("log.retention.hours", "2", "retention.ms", "7200000"),
    ("log.retention.hours", "-1", "retention.ms", "-1"),
    ("log.roll.hours", "2", "segment.ms", "7200000"),
    ("log.roll.jitter.hours", "2", "segment.jitter.ms", "7200000"),
    ("log.flush.scheduler.interval.ms", "2", "flush.ms", "2"),
]


def cases(which: str) -> list[tuple[Row, str]]:
    return [(row, value) for row in TABLE for value in getattr(row, which)]


def test_the_table_is_whole() -> None:
    """topicfs has the settings of Kafka's table, in the same order."""
    assert [row.name for row in TABLE] == list(SETTINGS)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_defaults_and_units(row: Row) -> None:
    """Each setting has Kafka's default in Kafka's spelling, and Kafka's unit."""
    found = SETTINGS[row.name]
    assert (row.default, row.unit) == (found.default_text, found.row.unit)


@pytest.mark.parametrize(("row", "value"), cases("valid"), ids=lambda one: getattr(one, "name", one))
def test_values_at_the_edges_are_taken(row: Row, value: str) -> None:
    """A value at the edge of the range is accepted, and printed as it was given."""
    lag = {"max.compaction.lag.ms": value} if row.name == "min.compaction.lag.ms" and value != "0" else {}
    assert SETTINGS[row.name].text_in(TopicConfig.from_overrides({row.name: value, **lag})) == value


@pytest.mark.parametrize(("row", "value"), cases("invalid"), ids=lambda one: getattr(one, "name", one))
def test_values_beyond_the_edges_are_refused(row: Row, value: str) -> None:
    """The error for a value beyond the edge of the range is one line with the setting, the value and the valid values."""
    with pytest.raises(InvalidConfigError) as caught:
        TopicConfig.from_overrides({row.name: value})
    assert re.fullmatch(rf"{re.escape(f'{row.name}={value}')}: must be .+", str(caught.value))


@pytest.mark.parametrize("row", [row for row in TABLE if row.synonym], ids=lambda row: row.name)
def test_a_brokers_setting_gives_the_default(row: Row) -> None:
    """The broker setting named in the row sets the topic setting's default."""
    assert row.synonym is not None
    value = row.valid[0]
    read = EngineConfig.from_properties({row.synonym: value})
    assert SETTINGS[row.name].text_in(read.config.topic_defaults) == value
    assert (row.synonym, []) == (read.given[row.name], read.ignored)


@pytest.mark.parametrize(("name", "value", "topic_name", "expected"), LATER_SYNONYMS)
def test_a_brokers_other_spellings(name: str, value: str, topic_name: str, expected: str) -> None:
    """The broker's settings in minutes and hours are converted. A negative value means no limit."""
    read = EngineConfig.from_properties({name: value})
    assert SETTINGS[topic_name].text_in(read.config.topic_defaults) == expected
    assert read.given[topic_name] == name
