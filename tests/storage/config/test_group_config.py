"""Tests of the settings of a group."""

from __future__ import annotations

import pytest

from topicfs.storage.config.group import (
    GROUP_SETTINGS,
    GroupConfig,
    OffsetReset,
    merge_group_overrides,
)
from topicfs.storage.config.listing import ConfigSource, list_group
from topicfs.storage.errors import InvalidConfigError

SECOND = 1000
DAY = 86_400 * SECOND


def test_the_defaults_are_those_of_a_shell():
    """The defaults of all group settings suit a group whose members are shell commands."""
    assert {
        "assignor": "cooperative-sticky",
        "auto.offset.reset": "earliest",
        "commit": "ask",
        "max.poll.interval.ms": "",
    } == {name: one.default_text for name, one in GROUP_SETTINGS.items()}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("P1D", DAY),
        ("PT6H", 6 * 3600 * SECOND),
        ("P1DT1H1M1.5S", DAY + 3661 * SECOND + 500),
        ("pt0s", 0),
        ("PT0.0019S", 1),
    ],
)
def test_a_duration_is_read_as_java_reads_it(text: str, milliseconds: int):
    """A duration is parsed as Java parses it, and printed as it was given."""
    config = GroupConfig.from_overrides({"auto.offset.reset": f"by_duration:{text}"})

    assert OffsetReset("by_duration", text, milliseconds) == config.auto_offset_reset
    assert f"by_duration:{text}" == GROUP_SETTINGS["auto.offset.reset"].print(config.auto_offset_reset)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("assignor", "eager"),
        ("auto.offset.reset", "newest"),
        ("auto.offset.reset", "earliest:P1D"),
        ("auto.offset.reset", "by_duration"),
        ("auto.offset.reset", "by_duration:"),
        ("auto.offset.reset", "by_duration:P"),
        ("auto.offset.reset", "by_duration:PT"),
        ("auto.offset.reset", "by_duration:P1DT"),
        ("auto.offset.reset", "by_duration:P-1D"),
        ("auto.offset.reset", "by_duration:-P1D"),
        ("commit", "never"),
        ("max.poll.interval.ms", "0"),
        ("retention.ms", "1"),
    ],
)
def test_other_names_and_values_are_refused(name: str, text: str):
    """The error for an unknown name or an invalid value names the setting."""
    with pytest.raises(InvalidConfigError, match=name):
        merge_group_overrides({"commit": "manual"}, {name: text})


def test_changes_are_merged_and_none_removes_one():
    """Changes are merged, and the value None removes an override. An unknown name is an error even with None."""
    assert {"assignor": "range"} == merge_group_overrides(
        {"commit": "manual"}, {"commit": None, "assignor": "range"}
    )
    with pytest.raises(InvalidConfigError, match="retention.ms"):
        merge_group_overrides({}, {"retention.ms": None})


def test_the_list_has_the_source_of_each_value():
    """The list has the source of each value: the group itself or the defaults."""
    shown = list_group(GROUP_SETTINGS, GroupConfig(commit="manual"), {"commit": "manual"})

    assert {
        "assignor": ("cooperative-sticky", ConfigSource.DEFAULT),
        "auto.offset.reset": ("earliest", ConfigSource.DEFAULT),
        "commit": ("manual", ConfigSource.GROUP),
        "max.poll.interval.ms": ("", ConfigSource.DEFAULT),
    } == {one.name: (one.value, one.source) for one in shown}
