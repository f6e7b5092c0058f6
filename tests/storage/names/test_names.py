"""Tests of names in a data directory."""

from __future__ import annotations

import pytest

from topicfs.storage.disk import names
from topicfs.storage.errors import InvalidNameError
from topicfs.storage.model import Offset, TopicPartition

UNIQUE = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "-", "__consumer_offsets", "t" * 249])
def test_legal_topic_names(name: str) -> None:
    """A topic name has 1 to 249 characters of [a-zA-Z0-9._-]."""
    names.check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "@status", "é", "a\n", "t" * 250])
def test_illegal_topic_names(name: str) -> None:
    """A name that breaks the rules for topic names raises a one-line error."""
    with pytest.raises(InvalidNameError) as caught:
        names.check_topic_name(name)
    assert "\n" not in str(caught.value)


def test_collisions() -> None:
    """Names that differ only in `.` and `_` collide, as in Kafka's metric names."""
    assert names.collision_key("a.b_c") == names.collision_key("a_b.c")
    assert names.collision_key("a.b") != names.collision_key("a-b")


def test_internal_topics() -> None:
    """Kafka's three internal topics count as internal. Other names that begin with two underscores do not."""
    assert [True, True, True, False] == [
        names.is_internal(name)
        for name in ("__consumer_offsets", "__transaction_state", "__share_group_state", "__mine")
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("or-ders--12", TopicPartition("or-ders-", 12)),
        ("a.b-2147483647", TopicPartition("a.b", 2147483647)),
    ],
)
def test_partition_is_after_the_last_dash(name: str, expected: TopicPartition) -> None:
    """Row 146: the last dash separates the topic from the partition."""
    assert names.PartitionDirectoryName(
        expected, names.DirectoryMark.LIVE
    ) == names.parse_partition_directory(name)
    assert name == names.partition_directory(expected)


@pytest.mark.parametrize(
    "name",
    [
        "lost+found", "orders", "-0", "orders-", "orders-x", "orders-1.5", "orders-2147483648", "orders-01",
        "orders-+1", "a b-0", "..-0", "",
        "orders-delete", f"orders-0.{UNIQUE}-gone", f"orders.{UNIQUE}-delete", f"orders-0.{UNIQUE}-delete2",
    ],
)  # fmt: skip
def test_other_directories_are_no_partitions(name: str) -> None:
    """A directory whose name cannot be parsed is not a partition."""
    assert names.parse_partition_directory(name) is None


@pytest.mark.parametrize(
    "mark", [names.DirectoryMark.DELETE, names.DirectoryMark.STRAY, names.DirectoryMark.FUTURE]
)
def test_marked_directories(mark: names.DirectoryMark) -> None:
    """The name of a deleted, stray or future directory has a unique part and a suffix for its state."""
    partition = TopicPartition("or.ders-x", 3)
    name = names.marked_directory(partition, mark, unique=UNIQUE)
    assert name == f"or.ders-x-3.{UNIQUE}-{mark.value}"
    assert names.PartitionDirectoryName(partition, mark) == names.parse_partition_directory(name)


def test_marked_names_are_cut_to_255_bytes() -> None:
    """Row 146: a long topic name is cut to make room for partition and mark. A future name is not cut, as in Kafka."""
    partition = TopicPartition("t" * 249, 123)
    deleted = names.marked_directory(partition, names.DirectoryMark.DELETE)
    future = names.marked_directory(partition, names.DirectoryMark.FUTURE)
    assert 255 == len(deleted)
    assert names.PartitionDirectoryName(TopicPartition("t" * 211, 123), names.DirectoryMark.DELETE) == (
        names.parse_partition_directory(deleted)
    )
    assert len(future) == 249 + len(f"-123.{UNIQUE}-future")


def test_unique_parts_differ() -> None:
    """Deleting topics of the same name twice leaves two directories with different names."""
    partition = TopicPartition("t", 0)
    assert names.marked_directory(partition, names.DirectoryMark.DELETE) != names.marked_directory(
        partition, names.DirectoryMark.DELETE
    )


def test_live_is_no_mark() -> None:
    """`marked_directory` refuses LIVE, which is not a mark."""
    with pytest.raises(ValueError, match="no mark"):
        names.marked_directory(TopicPartition("t", 0), names.DirectoryMark.LIVE)


@pytest.mark.parametrize("kind", names.SegmentFileKind)
@pytest.mark.parametrize("state", names.SegmentFileState)
def test_segment_files(kind: names.SegmentFileKind, state: names.SegmentFileState) -> None:
    """The name of a segment's file has 20 digits, the suffix and a temporary suffix, and can be parsed again."""
    name = names.segment_file(Offset(42), kind, state)
    assert f"00000000000000000042{kind.value}{state.value}" == name
    assert names.SegmentFileName(Offset(42), kind, state) == names.parse_segment_file(name)


@pytest.mark.parametrize(
    "name",
    [
        "42.log", "00000000000000000042.log.bak", "00000000000000000042.view", "00000000000000000042.deleted",
        "00000000000000000042.swap.log", "99999999999999999999.log", "leader-epoch-checkpoint",
        "partition.metadata",
    ],
)  # fmt: skip
def test_other_files_belong_to_no_segment(name: str) -> None:
    """A file whose name cannot be parsed does not belong to a segment."""
    assert names.parse_segment_file(name) is None
