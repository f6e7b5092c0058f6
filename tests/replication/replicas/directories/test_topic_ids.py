"""Tests that the file with the topic id in a replica's directory is restored, never with another topic's id."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.replicated import Replicated, with_orders
from tests.doubles.several_disks import break_disk
from topicfs.storage.checkpoints.partition_metadata import encode_partition_metadata
from topicfs.storage.disk.names import PARTITION_METADATA, TOPIC_SETTINGS

OTHER = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture
def two() -> Replicated:
    both = with_orders()
    both.append("one\n")
    return both


def path(two: Replicated, number: int) -> Path:
    return two.roots[number - 1] / "orders-0" / PARTITION_METADATA


def lose(two: Replicated, number: int, content: bytes | None) -> None:
    """Overwrite the file of replica `number` with `content`, or remove the file if `content` is None."""
    disk = two.disk(number)
    if content is None:
        disk.unlink(path(two, number))
    else:
        disk.write_bytes(path(two, number), content)


@pytest.mark.parametrize("registry", [True, False], ids=["with topicfs.topics", "without it"])
@pytest.mark.parametrize("content", [None, b"", b"version: 0\ntopic_id: !", b"\xff\0"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_lost_topic_id_is_written_again_at_the_start(two, number, content, registry):
    """A lost topic id is restored from the directory's last recorded state, and logged. The replica stays in sync."""
    good = two.disks.read_bytes(path(two, number))
    two.engine.close()
    lose(two, number, content)
    if not registry:
        two.disk(number).unlink(two.roots[number - 1] / TOPIC_SETTINGS)
    two.open()
    assert good == two.disks.read_bytes(path(two, number))
    assert (["one"], (1, 2)) == (two.lines(), two.in_sync())
    assert any("its partition.metadata was missing or damaged" in line for line in two.engine.warnings)
    two.append("two\n")
    assert two.files(1) == two.files(2)


def test_lost_topic_ids_of_both_replicas_are_written_again(two):
    """If the topic id files of both replicas are lost, both files are restored, although no copy is left."""
    two.engine.close()
    for number in (1, 2):
        lose(two, number, b"")
    two.open()
    assert (["one"], (1, 2)) == (two.lines(), two.in_sync())


def test_another_topics_id_is_reported_and_left(two):
    """A file with another topic's id is reported and kept, because it may be the only copy of that topic."""
    two.engine.close()
    lose(two, 2, encode_partition_metadata(OTHER))
    two.open()
    assert encode_partition_metadata(OTHER) == two.disks.read_bytes(path(two, 2))
    assert any(f"in /b with the topic id {OTHER}: not a replica" in line for line in two.engine.warnings)
    assert ["one"] == two.lines()


def test_a_topic_recreated_meanwhile_takes_nothing_of_the_old_one(two):
    """If a topic is recreated while a directory is out of service, the directory's replica of the old topic is deleted.

    A lost topic id is first restored as the id of the old topic.
    """
    break_disk(two.disk(2))
    two.append("two\n")
    two.engine.delete_topic("orders")
    two.engine.create_topic("orders", replicas=1)
    two.append("anew\n")
    two.disk(2).heal()
    lose(two, 2, None)
    two.bring_back(2)
    two.engine.set_replicas("orders", 2)
    two.engine.catch_up()
    assert (["anew"], (1, 2)) == (two.lines(), two.in_sync())
    assert two.files(1) == two.files(2)


@pytest.mark.parametrize("content", [None, b"", encode_partition_metadata(OTHER)])
def test_a_topic_id_that_is_lost_while_it_serves_is_written_again_by_a_scrub(two, content):
    """A scrub restores a lost topic id file from the id that the engine has in memory."""
    good = two.disks.read_bytes(path(two, 2))
    lose(two, 2, content)
    assert [("/b/orders-0/partition.metadata", "memory")] == [
        (str(one.finding.file), one.healed_from) for one in two.scrub()
    ]
    assert good == two.disks.read_bytes(path(two, 2))
    assert 1 == two.engine.scrubber.counts.files_healed
