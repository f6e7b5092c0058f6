"""Tests of groups over replicas: each in-sync replica has their positions, which survive a failed disk or machine."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.doubles.group_reader import Reader, positions, wait_until_shared
from tests.doubles.replicated import ORDERS, Replicated
from tests.doubles.several_disks import break_disk
from topicfs.coordination.membership import GroupState, Position
from topicfs.replication import EmbeddedEngine, open_engine
from topicfs.storage.disk import names
from topicfs.storage.errors import GroupError
from topicfs.storage.manager import Machine
from topicfs.storage.model import TopicPartition

PLACES = [TopicPartition("orders", number) for number in range(2)]


def served() -> Replicated:
    two = Replicated()
    two.engine.create_topic("orders", partitions=2)
    two.engine.create_topic(names.CONSUMER_OFFSETS, partitions=2)
    return two


def test_members_share_partitions_and_commit_into_every_replica() -> None:
    """Both directories have the same records. Each of them alone shows the group as a single broker would."""
    two = served()
    readers = [Reader(two.engine, "g", "orders", name=name) for name in ("one", "two")]
    wait_until_shared(readers, PLACES)
    for reader in readers:
        reader.commit(reader.partitions[0], 7)
    for number in range(2):
        place = TopicPartition(names.CONSUMER_OFFSETS, number)
        assert two.files(1, place) == two.files(2, place)
    two.engine.close()
    for root in two.roots:
        with closing(
            open_engine(root, machine=Machine(files=two.disks.read_only_view()), read_only=True)
        ) as alone:
            assert {7} == {one.offset for one in alone.groups.positions("g").committed.values()}


@pytest.mark.parametrize("broken", [1, 2])
def test_a_disk_that_fails_costs_no_position(broken: int) -> None:
    """While a directory has failed, commits continue in the other one. The returning directory gets these commits."""
    two = served()
    reader = Reader(two.engine, "g", "orders")
    wait_until_shared([reader], PLACES)
    reader.commit(PLACES[0], 3)
    break_disk(two.disk(broken))
    reader.commit(PLACES[0], 5)
    reader.commit(PLACES[1], 4)
    assert {PLACES[0]: 5, PLACES[1]: 4} == positions(two.engine)
    other = Reader(two.engine, "g", "orders")
    wait_until_shared([reader, other], PLACES)


def test_groups_survive_the_end_of_a_process_and_of_the_machine() -> None:
    """Positions, generation and settings survive the end of a process or machine. Memberships end with the process."""
    two = served()
    two.engine.groups.create("g")
    two.engine.groups.alter_config("g", {"commit": "manual"})
    two.engine.groups.set_positions("g", {place: Position(2) for place in PLACES})
    for number in range(2):
        two.engine.partition(names.CONSUMER_OFFSETS, number).sync()
    for begin in (two.reopen, two.kill, two.crash):
        begin()
        assert dict.fromkeys(PLACES, 2) == positions(two.engine)
        assert "manual" == two.engine.groups.config("g").commit
        assert GroupState.EMPTY is two.engine.groups.describe("g").state


def test_the_directories_of_replicas_serve_no_groups_themselves() -> None:
    """Engines of single directories only keep logs. Groups belong to the replicated engine, and end with it."""
    two = served()
    two.engine.groups.set_positions("g", {PLACES[0]: Position(2)})
    assert not isinstance(two.engine._replica_dirs[1].engine, EmbeddedEngine)
    two.engine.close()
    with pytest.raises(GroupError):
        two.engine.groups.listed()


def test_positions_expire_by_the_settings_of_the_replicated_engine() -> None:
    """Positions expire by the settings of the replicated engine."""
    two = served()
    two.append("a\n", ORDERS)
    two.engine.groups.set_positions("g", {PLACES[0]: Position(1)})
    two.engine.maintenance(two.clock())
    assert {PLACES[0]: 1} == positions(two.engine)
    two.wait(8 * 86_400_000)
    assert {} == positions(two.engine)
