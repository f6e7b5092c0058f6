"""Group records other than positions are copied unchanged and only once, if they can be decoded."""

from __future__ import annotations

import pytest

from tests.doubles.handover import DATA, LOG_DIR, StoppingDisk, prepared_disk, served, taken
from tests.migration.test_positions import GROUP, committed, write
from topicfs.coordination.records.group_records import write_committed_offset, write_group, write_group_key
from topicfs.storage.model import TopicPartition

pytestmark = pytest.mark.slow


def generations(disk: StoppingDisk) -> dict[str, int]:
    with served(disk, DATA) as engine:
        return {name: engine.groups.describe(name).generation for name in engine.groups.listed()}


def test_records_of_groups_are_taken_along() -> None:
    """The newest record of each group is copied.

    The record is not copied if the group was deleted, or if the group reads only topics that are not copied.
    """
    disk, _ = prepared_disk(LOG_DIR)
    write(
        disk,
        LOG_DIR,
        ("read", write_group("read", {**GROUP, "generation": 3})),
        ("read", write_group("read", {**GROUP, "generation": 7})),
        ("read", write_committed_offset(committed("read", 5))),
        ("idle", write_group("idle", {**GROUP, "generation": 2})),
        ("gone", write_group("gone", GROUP)),
        ("gone", (write_group_key("gone"), None)),
        ("elsewhere", write_group("elsewhere", GROUP)),
        ("elsewhere", write_committed_offset(committed("elsewhere", 1, topic="nothing"))),
        ("simple", write_committed_offset(committed("simple", 4))),
    )
    taken(disk)
    assert {"idle": 2, "read": 7, "simple": 0} == generations(disk)


def test_a_second_takeover_leaves_a_group_that_went_on() -> None:
    """A second takeover does not overwrite the record of a group that changed here after the first takeover."""
    disk, _ = prepared_disk(LOG_DIR)
    write(
        disk,
        LOG_DIR,
        ("read", write_group("read", {**GROUP, "generation": 3})),
        ("read", write_committed_offset(committed("read", 5))),
    )
    taken(disk)
    write(disk, LOG_DIR, ("read", write_group("read", {**GROUP, "generation": 4})))
    taken(disk)
    assert {"read": 3} == generations(disk)


def test_a_record_of_another_version_is_reported_and_left() -> None:
    """If a group's record has an unknown version, the group's positions are still copied, and can be loaded."""
    disk, _ = prepared_disk(LOG_DIR)
    write(
        disk,
        LOG_DIR,
        ("newer", (write_group_key("newer"), b"\x00\x09what")),
        ("newer", write_committed_offset(committed("newer", 5))),
    )
    told = taken(disk)
    assert "group newer: its record has an unknown version, skipped" in told
    with served(disk, DATA) as engine:
        position = engine.groups.positions("newer").committed[TopicPartition("orders", 0)]
    assert 5 == position.offset
