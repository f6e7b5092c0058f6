"""Tests of several data directories of one engine: where partitions go, and which directories fit together."""

from __future__ import annotations

import pytest

from tests.doubles.several_disks import A, B, SeveralDisks, contents, filled, opened, places
from topicfs.storage.checkpoints.meta_properties import read_meta_properties
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.errors import DuplicatePartitionError, NotALogDirectoryError, StorageError

pytestmark = pytest.mark.slow


def test_a_new_partition_goes_where_there_are_the_fewest(disks: SeveralDisks) -> None:
    """A partition is created in the first of the directories that have the fewest partitions."""
    engine = opened(disks)
    engine.create_topic("t", partitions=3)
    engine.create_topic("u")
    engine.create_topic("v", partitions=2)
    assert {"t-0": "/a", "t-1": "/b", "t-2": "/a", "u-0": "/b", "v-0": "/a", "v-1": "/b"} == places(engine)
    engine.delete_topic("t")
    engine.create_topic("w", partitions=2)
    assert ("/a", "/a") == (places(engine)["w-0"], places(engine)["w-1"])


def test_everything_survives_a_restart(disks: SeveralDisks) -> None:
    """Records, places and settings survive a restart. Each directory has its own marker and checkpoints."""
    engine = filled(disks)
    before = places(engine)
    engine.close()
    for root in (A, B):
        names = [entry.name for entry in disks.list_directory(root) if not entry.is_directory]
        assert [
            ".kafka_cleanshutdown",
            "meta.properties",
            "recovery-point-offset-checkpoint",
            "replication-offset-checkpoint",
            "topicfs.reserve",
            "topicfs.topics",
        ] == names
    assert b"0\n1\nt 0 1\n" == disks.read_bytes(A / "recovery-point-offset-checkpoint")
    assert b"0\n1\nt 1 1\n" == disks.read_bytes(B / "recovery-point-offset-checkpoint")
    again = opened(disks)
    assert (before, ()) == (places(again), again.warnings)
    assert {"t-0": ["0"], "t-1": ["1"]} == contents(again)
    assert {"retention.ms": "-1", "max.message.bytes": "7000"} == again.topic("t").overrides


def test_directories_are_of_one_node(disks: SeveralDisks) -> None:
    """All directories, even new ones, have the same cluster ID and node ID, and each has its own directory ID."""
    opened(disks, None, A, config=EngineConfig(node_id=5)).close()
    opened(disks).close()
    first, second = (read_meta_properties(disks, root) for root in (A, B))
    assert first is not None
    assert second is not None
    assert (first.cluster_id, 5) == (second.cluster_id, second.node_id)
    assert first.directory_id != second.directory_id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((b"cluster.id=", b"cluster.id=x"), "cluster.id"),
        ((b"node.id=1", b"node.id=2"), "node.id=2"),
    ],
)
def test_directories_of_different_nodes_are_refused(
    disks: SeveralDisks, change: tuple[bytes, bytes], message: str
) -> None:
    """Directories with different cluster IDs or node IDs are refused, and nothing is changed."""
    opened(disks).close()
    meta = disks.read_bytes(B / "meta.properties")
    disks.write_bytes(B / "meta.properties", meta.replace(*change))
    with pytest.raises(StorageError, match=f"/b: has .*{message}.*/a has"):
        opened(disks)


def test_a_copy_of_a_directory_is_refused(disks: SeveralDisks) -> None:
    """Two directories with the same directory.id are refused, because one of them is a copy."""
    opened(disks).close()
    disks.write_bytes(B / "meta.properties", disks.read_bytes(A / "meta.properties"))
    with pytest.raises(StorageError, match=r"directory\.id of /a"):
        opened(disks)


def test_the_same_partition_in_two_directories_is_refused(disks: SeveralDisks) -> None:
    """If a partition is in two directories, opening for writing or reading is refused: either copy may be current."""
    filled(disks).close()
    disks.make_directory(B / "t-0")
    for view in (disks, disks.read_only_view()):
        with pytest.raises(DuplicatePartitionError, match="t-0: is in /a and in /b"):
            opened(view)


def test_a_directory_given_twice_is_refused(disks: SeveralDisks) -> None:
    """A directory that is given twice is refused."""
    with pytest.raises(StorageError, match="given twice"):
        opened(disks, None, A, A)


def test_someone_elses_directory_among_them_is_refused(disks: SeveralDisks) -> None:
    """If one directory is not a data directory, the opening of all directories is refused."""
    disks.make_directory(B)
    disks.make_directory(B / "photos")
    with pytest.raises(NotALogDirectoryError, match="/b/photos"):
        opened(disks)


def test_an_unclean_stop_of_one_recovers_that_one(disks: SeveralDisks) -> None:
    """Only the directory without a clean-shutdown marker is recovered."""
    filled(disks).close()
    disks.unlink(B / ".kafka_cleanshutdown")
    disks.write_bytes(B / "recovery-point-offset-checkpoint", b"0\n1\nt 1 0\n")
    engine = opened(disks)
    first, second = (engine.partition("t", number) for number in (0, 1))
    assert (1, 0) == (first.offsets().recovery_point, second.offsets().recovery_point)


def test_looking_at_several_directories(disks: SeveralDisks) -> None:
    """A read-only engine shows the topics of all directories and changes nothing."""
    filled(disks).close()
    before = disks.tree()
    looking = opened(disks.read_only_view())
    assert {"t-0": ["0"], "t-1": ["1"]} == contents(looking)
    assert (True, False) == (looking.read_only, looking.foreign)
    looking.close()
    assert before == disks.tree()
