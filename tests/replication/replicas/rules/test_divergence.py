"""Tests of where a follower's log diverges from its leader's: the cases of the KIPs on truncation."""

from __future__ import annotations

import pytest

from tests.doubles.replicated import ORDERS
from tests.doubles.several_disks import break_disk
from topicfs.replication.replicas.rules.follower import diverging, truncation_point
from topicfs.replication.replicas.rules.state import ReplicaId
from topicfs.storage.checkpoints.leader_epochs import EpochEnd, EpochEntry
from topicfs.storage.model import NO_LEADER_EPOCH, Offset


def entries(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(epoch, Offset(start)) for epoch, start in pairs)


def cut(
    leader: tuple[EpochEntry, ...], leader_end: int, follower: tuple[EpochEntry, ...], end: int
) -> list[int]:
    """Return, in order, the offsets at which a follower truncates its log until the leader accepts its fetch."""
    cuts = []
    while True:
        epoch = follower[-1].epoch if follower else NO_LEADER_EPOCH
        answer = diverging(leader, Offset(leader_end), epoch, Offset(end))
        if answer is None:
            return cuts
        end = truncation_point(answer, follower, Offset(end))
        follower = tuple(entry for entry in follower if entry.start_offset < end)
        cuts.append(end)


@pytest.mark.parametrize(
    ("leader", "leader_end", "follower", "end", "cuts"),
    [
        pytest.param(entries((0, 0)), 10, entries((0, 0)), 10, [], id="equal logs"),
        pytest.param(entries((0, 0), (1, 8)), 10, entries((0, 0)), 8, [], id="a log that only lacks records"),
        pytest.param(entries((0, 0)), 10, (), 0, [], id="an empty log"),
        pytest.param(entries((0, 0), (1, 1)), 3, entries((0, 0)), 2, [1], id="KIP-101, scenario 2"),
        pytest.param(entries((0, 0), (2, 20)), 30, entries((0, 0), (1, 15)), 25, [15], id="KIP-279"),
        pytest.param(
            entries((0, 0), (4, 10), (5, 30)),
            40,
            entries((0, 0), (1, 10), (2, 12), (3, 14)),
            16,
            [10],
            id="KIP-279, several epochs that the leader never saw",
        ),
    ],
)
def test_a_follower_is_truncated_where_its_log_diverges(leader, leader_end, follower, end, cuts):
    """A follower is truncated, epoch by epoch, to the end of the last epoch that both know.

    A follower whose epochs the leader knows truncates nothing if its log is not longer. Equal logs are also the case of
    KIP-101, scenario 1: the leader fails just after its follower restarted with an old high watermark.
    """
    assert cuts == cut(leader, leader_end, follower, end)


def test_kip_101_scenario_2_on_two_disks(two):
    """Scenario 2 with real logs: the follower kept a record that its leader lost. In the end the files are equal."""
    two.append("a\n")
    two.partition().sync()
    two.append("b\n")
    two.engine.controller.logs(ORDERS)[ReplicaId(2)].sync()
    two.disk(1).crash(keep=0.0)
    two.open()
    two.append("c\n")
    assert ["a", "b", "c"] == two.lines()
    assert two.files(1) == two.files(2)


def test_kip_101_scenario_1_on_two_disks(two):
    """Scenario 1 with real logs: a follower killed before it knew the high watermark leads alone and lacks nothing."""
    two.append("a\n")
    two.append("b\n")
    assert 0 == two.engine.controller.logs(ORDERS)[ReplicaId(2)].high_watermark
    two.open(two.roots[1], left_out=two.roots[:1])
    assert 2 == two.leader()
    assert ["a", "b"] == two.lines()


def test_kip_279_on_two_disks(two):
    """With real logs, a replica that led between two epochs of the leader loses its own record; both are equal."""
    two.append("a\n")
    for leader, line in ((1, "b"), (2, "c"), (1, "d")):
        other = 3 - leader
        two.disk(leader).heal()
        two.retry()
        break_disk(two.disk(other))
        two.retry()
        if two.leader() != leader:
            two.engine.elect_unclean(ORDERS, str(two.roots[leader - 1]))
        two.append(f"{line}\n")
        assert (leader,) == two.in_sync()
    two.bring_back(2)
    assert (1, 2) == two.in_sync()
    assert ["a", "b", "d"] == two.lines()
    assert two.files(1) == two.files(2)


def test_an_epoch_above_all_of_the_leader_is_answered_with_the_leaders_end():
    """If the follower led last, the leader answers the follower's higher epoch with the end of the leader's log."""
    assert EpochEnd(3, Offset(7)) == diverging(entries((3, 0)), Offset(7), 9, Offset(12))


def test_an_unclean_election_truncates_the_other_replica(two):
    """After a requested unclean election the other replica is truncated to the offset at which the new epoch began."""
    two.append("a\n")
    break_disk(two.disk(2))
    two.append("b\n")
    two.disk(2).heal()
    break_disk(two.disk(1))
    two.retry()
    two.retry()
    assert two.leader() is None or (1,) == two.in_sync()
    two.engine.elect_unclean(ORDERS, str(two.roots[1]))
    assert 2 == two.leader()
    two.append("c\n")
    assert ["a", "c"] == two.lines()
    two.bring_back(1)
    assert (1, 2) == two.in_sync()
    assert ["a", "c"] == two.lines()
    assert two.files(1) == two.files(2)
