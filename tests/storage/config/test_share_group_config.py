"""Tests of the settings of share groups: Kafka's names and bounds, and topicfs's defaults."""

from __future__ import annotations

import pytest

from topicfs.storage.config.listing import list_group
from topicfs.storage.config.share_group import SHARE_GROUP_SETTINGS, ShareGroupSettings
from topicfs.storage.errors import InvalidConfigError


def test_the_defaults():
    """The defaults equal a broker's defaults, except for the start offset and the isolation level."""
    shown = {one.name: one.value for one in list_group(SHARE_GROUP_SETTINGS, ShareGroupSettings(), {})}

    assert {
        "share.record.lock.duration.ms": "30000",
        "share.delivery.count.limit": "5",
        "share.partition.max.record.locks": "2000",
        "share.auto.offset.reset": "earliest",
        "share.isolation.level": "read_committed",
    } == shown


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.record.lock.duration.ms", "999"),
        ("share.record.lock.duration.ms", "3600001"),
        ("share.delivery.count.limit", "1"),
        ("share.delivery.count.limit", "11"),
        ("share.partition.max.record.locks", "99"),
        ("share.auto.offset.reset", "none"),
        ("share.auto.offset.reset", "by_duration:soon"),
        ("share.isolation.level", "committed"),
        ("assignor", "sticky"),
    ],
)
def test_values_that_are_refused(name: str, value: str):
    """Values out of bounds, unknown words and unknown names are refused."""
    with pytest.raises(InvalidConfigError):
        ShareGroupSettings.from_overrides({name: value})


def test_a_group_may_begin_some_time_ago():
    """A duration in share.auto.offset.reset is parsed as a broker parses it."""
    settings = ShareGroupSettings.from_overrides({"share.auto.offset.reset": "by_duration:PT1H"})

    assert 3_600_000 == settings.share_auto_offset_reset.milliseconds
    shown = {
        one.name: one for one in list_group(SHARE_GROUP_SETTINGS, settings, {"share.auto.offset.reset": ""})
    }
    assert "by_duration:PT1H" == shown["share.auto.offset.reset"].value
    assert "group" == shown["share.auto.offset.reset"].source.value
