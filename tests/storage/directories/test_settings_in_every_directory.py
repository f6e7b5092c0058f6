"""Tests that topic settings are stored in each data directory, and that the newest copy counts."""

from __future__ import annotations

import errno

import pytest

from tests.doubles.several_disks import A, B, SeveralDisks, filled, opened, topic_files
from topicfs.storage.topics.registry import PendingChange, RegistryCopy, TopicEntry, merge_copies

pytestmark = pytest.mark.slow


def test_settings_are_stored_in_every_directory(disks: SeveralDisks) -> None:
    """Each of two directories has all settings when it is opened alone."""
    filled(disks).close()
    first, second = topic_files(disks)
    assert first == second
    assert ["/a", "/b"] == first["directories"]
    disks.unlink(A / "topicfs.topics")
    assert "7000" == opened(disks).topic("t").overrides["max.message.bytes"]
    first, second = topic_files(disks)
    assert first == second


def test_the_newest_copy_of_the_settings_counts(disks: SeveralDisks) -> None:
    """After a kill between writes to two directories the newer copy of the settings counts."""
    engine = filled(disks)
    old = disks.read_bytes(A / "topicfs.topics")
    engine.alter_config("t", {"max.message.bytes": "9000"})
    engine.close()
    disks.write_bytes(A / "topicfs.topics", old)
    assert 9000 == opened(disks).topic("t").config.max_message_bytes
    first, second = topic_files(disks)
    assert first == second


def test_what_an_older_copy_alone_knows_is_kept() -> None:
    """A topic that only an older copy of the settings has is kept.

    The topic is dropped if the older copy says that the topic is being created.
    """
    newer = RegistryCopy({"t": TopicEntry("new")}, 5)
    older = RegistryCopy(
        {
            "t": TopicEntry("old"),
            "u": TopicEntry("u"),
            "making": TopicEntry("m", {}, PendingChange.CREATE, 2),
            "dying": TopicEntry("d", {}, PendingChange.DELETE),
        },
        3,
    )
    expected = {
        "t": TopicEntry("new"),
        "u": TopicEntry("u"),
        "dying": TopicEntry("d", {}, PendingChange.DELETE),
    }
    assert RegistryCopy(expected, 5) == merge_copies([older, newer])


def test_a_change_that_finds_no_room_in_one_directory_is_made_in_none(disks: SeveralDisks) -> None:
    """If one disk has no room for a change, no directory makes the change, and the full disk stays online."""
    engine = filled(disks)
    disks.disks[B].fail("write_bytes", suffix="topicfs.topics.tmp", number=errno.ENOSPC, times=2)
    with pytest.raises(OSError, match="No space"):
        engine.alter_config("t", {"max.message.bytes": "9000"})
    assert 7000 == engine.topic("t").config.max_message_bytes
    assert ["online", "online"] == [status.state for status in engine.directories()]
    engine.close()
    again = opened(disks)
    assert 7000 == again.topic("t").config.max_message_bytes
    again.alter_config("t", {"max.message.bytes": "9000"})
    assert topic_files(disks)[0] == topic_files(disks)[1]
