"""Tests that our coordinator and a broker write the same records for the same requests.

The requests are those of real consumers.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from tests.doubles.engines import engine_on
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.coordination.groups import requests
from topicfs.coordination.groups.rebalance import GroupLimits
from topicfs.coordination.groups.runtime.shard import Shard
from topicfs.coordination.membership import Position
from topicfs.coordination.records.group_records import read_value
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.codec.columns import decode
from topicfs.storage.model import TopicPartition

VECTORS = Path(__file__).parents[3] / "vectors/kafka/log-dirs"
LOG = "00000000000000000000.log"


def shard(disk: SimulatedDisk, clock: ManualClock, topic_id: uuid.UUID) -> Shard:
    topic = engine_on(disk, clock=clock).create_topic("__consumer_offsets", partitions=1)
    made = Shard(
        topic.partitions()[0],
        clock=clock,
        limits=GroupLimits(initial_rebalance_delay_ms=0),
        topic_ids=lambda _: topic_id,
        changed=lambda _: None,
    )
    made.load(lambda: False)
    return made


def written(disk: SimulatedDisk) -> bytes:
    return disk.tree()[f"/data/__consumer_offsets-0/{LOG}"]


def test_a_console_consumers_life_has_the_same_bytes(disk: SimulatedDisk, clock: ManualClock):
    """For a console consumer the coordinator writes the same four batches as a broker.

    They store the empty group, its first generation, a committed position, and the group without members.
    """
    brokers = (VECTORS / "__consumer_offsets-0" / LOG).read_bytes()
    stable = read_value(2, [one for columns in decode(brokers) for one in columns][1].value or b"")[1]
    (member,) = stable["members"]
    ours = shard(disk, clock, decode_id("A1IHizfsSxChlbFuLcK9Lw"))
    joined: list[requests.JoinAnswer] = []

    clock.now = 1795234091410
    request = requests.JoinRequest(
        group="p",
        proposed_id=member["memberId"],
        client_id=member["clientId"],
        session_timeout_ms=member["sessionTimeout"],
        rebalance_timeout_ms=member["rebalanceTimeout"],
        protocols=(requests.Protocol("range", member["subscription"]),),
        version=3,
    )
    ours.append([ours.coordinator.join(request, joined.append)])
    clock.now = stable["currentStateTimestamp"]
    ours.fire_timers()
    clock.now = 1795234091425
    sync = requests.SyncRequest(
        group="p",
        member_id=member["memberId"],
        generation=joined[0].generation,
        assignments={member["memberId"]: member["assignment"]},
    )
    ours.append([ours.coordinator.sync(sync, lambda answer: None)])
    clock.now = 1795234091623
    commit = requests.OffsetCommitRequest(
        group="p",
        member_id=member["memberId"],
        generation=1,
        positions={TopicPartition("c-zstd", 0): Position(3000, leader_epoch=0)},
    )
    ours.append([ours.commit(commit, lambda codes: None)])
    clock.now = 1795234091640
    ours.append(
        [ours.coordinator.leave("p", [requests.LeavingMember(member["memberId"])], lambda codes: None)]
    )

    assert brokers[:664].hex() == written(disk)[:664].hex()
    assert 664 == len(written(disk).rstrip(b"\0")) or written(disk)[664:].strip(b"\0") == b""


def test_the_positions_that_kafkas_reset_tool_set_have_the_same_bytes(
    disk: SimulatedDisk, clock: ManualClock
):
    """A group that never had members gets one batch with positions, and no group record."""
    brokers = (VECTORS / "__consumer_offsets-1" / LOG).read_bytes()
    ours = shard(disk, clock, decode_id("OGeqLn3KTT6epM7A0p1hNQ"))
    clock.now = 1795234092806
    codes: list[object] = []
    positions = {
        TopicPartition("t", 2): Position(1),
        TopicPartition("t", 1): Position(1),
        TopicPartition("t", 0): Position(101, leader_epoch=0),
    }
    request = requests.OffsetCommitRequest(group="test-group-1795234091904", positions=positions)
    ours.append([ours.commit(request, codes.append)])

    assert [dict.fromkeys(positions, requests.Code.NONE)] == codes
    assert brokers[:316].hex() == written(disk)[:316].hex()
