"""Tests of the state file of replicas, and of the state that a restart reads from it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.doubles.engines import append_lines
from tests.doubles.replicated import Replicated
from tests.doubles.several_disks import break_disk, opened
from topicfs.replication.replicas.directories import state_file
from topicfs.replication.replicas.directories.replica_directory import ReplicaDirectory
from topicfs.replication.replicas.rules.history import ReplicaRun
from topicfs.replication.replicas.rules.state import ReplicaId, new_state
from topicfs.storage.errors import CorruptionError, DuplicatePartitionError
from topicfs.storage.model import Timestamp, TopicPartition

FILE = Path("/a/topicfs.replicas")


def test_what_is_written_is_read():
    """Reading a state file returns every field as it was written."""
    one, two = ReplicaId(1), ReplicaId(2)
    entry = state_file.ReplicatedTopicEntry(
        "id", MappingProxyType({"retention.ms": "1"}), 2, MappingProxyType({0: new_state((two, one))})
    )
    content = state_file.ReplicaFile(
        "cluster",
        revision=7,
        replicas=2,
        directories=MappingProxyType(
            {one: state_file.KnownDirectory("/a", "x", "/"), two: state_file.KnownDirectory("/b", "y", "/b")}
        ),
        topics=MappingProxyType({"orders": entry}),
        deleted=("gone",),
        set_id="set",
        runs=(ReplicaRun("first", Timestamp(1), (one, two)), ReplicaRun("second", Timestamp(2), (two,))),
    )
    assert content == state_file.decode_replica_file(state_file.encode_replica_file(content), file=FILE)


DAMAGED_RUNS = (
    b'[["a", -1, [1]]]',
    b'[["a", 1, 1]]',
    b'[["a", 1]]',
    b"[1]",
    b'[["a", 99999999999999999999, []]]',
)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{}", b"[]", b'{"version": 3}', b'{"version": 2}', b'{"version": 1, "revision": "x"}'),
        *(
            b'{"version":2,"revision":1,"cluster":"c","directories":{},"topics":{},"deleted":[],"set":"s","runs":%b}'
            % runs
            for runs in DAMAGED_RUNS
        ),
    ],
)
def test_a_damaged_file_is_named(data: bytes):
    """The error for a damaged state file names the path and the fault."""
    with pytest.raises(CorruptionError, match="topicfs.replicas"):
        state_file.decode_replica_file(data, file=FILE)


def test_topics_that_were_there_before_get_replicas():
    """Directories used without replicas are adopted: each partition has one replica, and may get more."""
    two = Replicated()
    two.engine.close()
    two.make_disks()
    with closing(opened(two.disks, two.clock)) as engine:
        engine.create_topic("orders", partitions=2)
        for number in range(2):
            append_lines(engine.partition("orders", number), f"{number}\n")
    two.open()
    assert [["0"], ["1"]] == [two.lines(TopicPartition("orders", number)) for number in range(2)]
    two.engine.set_replicas("orders", 2)
    two.engine.catch_up()
    assert [(1, 2), (1, 2)] == [tuple(sorted(two.in_sync(TopicPartition("orders", n)))) for n in range(2)]
    assert two.files(1) == two.files(2)


def test_a_partition_that_is_in_two_directories_is_refused():
    """If a partition is in two directories that were never replicated, a start is refused.

    Either copy may be the valid one.
    """
    two = Replicated()
    two.engine.close()
    two.make_disks()
    for root in two.roots:
        with closing(opened(two.disks, two.clock, root)) as engine:
            engine.create_topic("orders")
    with pytest.raises(DuplicatePartitionError, match="orders: is in /b and in another of the directories"):
        two.open()


def test_a_directory_that_fails_elsewhere_while_the_others_are_written_is_left_out(three, monkeypatch):
    """If a second disk fails while a first failure is recorded, the remaining directories agree on the state."""
    one, two = (three.engine._replica_dirs[ReplicaId(number)] for number in (1, 2))
    write = one.write

    def write_as_another_fails(content: state_file.ReplicaFile) -> None:
        write(content)
        two.fail("failed, as another thread has noticed")

    monkeypatch.setattr(one, "write", write_as_another_fails)
    break_disk(three.disk(3))
    three.append("a\n")
    assert ["a"] == three.lines()
    assert (1, 2) == three.in_sync()
    three.engine.controller.directory_failed(two)
    assert (1,) == three.in_sync()


def test_a_directory_that_is_found_to_fail_twice_at_once_refuses_no_append(two, monkeypatch):
    """An append succeeds even if another thread notices a directory's failure at the same time as the append."""
    two.engine._replica_dirs[ReplicaId(2)].fail("failed, as another thread has noticed")
    break_disk(two.disk(2))
    monkeypatch.setattr(ReplicaDirectory, "serves", property(lambda _: True))
    two.append("a\n")
    assert ((1,), ["a"]) == (two.in_sync(), two.lines())
