"""Tests of one partition of the share state topic: the records written for each request, and refused requests."""

from __future__ import annotations

import uuid

import pytest

from topicfs.coordination.records.share_state_records import (
    RecordType,
    SharePartitionKey,
    ShareState,
    ShareUpdate,
    StateBatch,
    read_snapshot,
    read_state_key,
    read_update,
)
from topicfs.coordination.shares.state import shard as shard_module
from topicfs.coordination.shares.state.shard import (
    COLD_AFTER_MS,
    NotInitializedError,
    StateFencedError,
    StateRecord,
    StateShard,
    StateWrite,
)
from topicfs.storage.model import Offset, Timestamp

KEY = SharePartitionKey("g", uuid.UUID(int=7), 0)
NOW = Timestamp(1_700_000_000_000)


class Bench:
    """A shard whose appended records are in a list in memory."""

    def __init__(self) -> None:
        self.shard = StateShard()
        self.end = 0

    def apply(self, record: StateRecord | None) -> StateRecord:
        assert record is not None
        self.shard.replay(record.bytes, Offset(self.end))
        self.end += 1
        return record

    def initialize(self, epoch: int = 0, start: int = -1, key: SharePartitionKey = KEY) -> StateRecord:
        return self.apply(self.shard.initialize(key, epoch, start, NOW))

    def write(
        self, *batches: StateBatch, start: int = 0, count: int = 0, now: int = NOW, **epochs: int
    ) -> StateRecord:
        write = StateWrite(epochs.get("state_epoch", 0), epochs.get("leader_epoch", 0), start, batches, count)
        return self.apply(self.shard.write(KEY, write, Timestamp(now)))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def kind(record: StateRecord) -> RecordType:
    found = read_state_key(record.key)
    assert found is not None
    return found[0]


def test_a_state_begins_with_a_snapshot(bench):
    """A new state begins with a snapshot of epoch 0. The epoch of the next snapshot is 1.

    The number of completed records is known if the start offset is known.
    """
    first, second = bench.initialize(epoch=3), bench.initialize(epoch=4, start=10)

    assert ShareState(0, 3, 0, -1, NOW, NOW) == read_snapshot(first.value or b"")
    assert ShareState(1, 4, 0, 10, NOW, NOW, (), 0) == read_snapshot(second.value or b"")


def test_a_snapshot_follows_the_last_allowed_update(monkeypatch):
    """Row 164: after two updates a snapshot of the next epoch is written, and then updates again."""
    monkeypatch.setattr(shard_module, "UPDATES_PER_SNAPSHOT", 2)
    bench = Bench()
    bench.initialize()
    records = [bench.write(StateBatch(0, 10, 0, 1)) for _ in range(4)]

    update, snapshot = RecordType.UPDATE, RecordType.SNAPSHOT
    assert [update, update, snapshot, update] == [kind(one) for one in records]
    assert ShareState(1, 0, 0, 0, NOW, NOW, (StateBatch(0, 10, 0, 1),), 0) == read_snapshot(
        records[2].value or b""
    )
    assert ShareUpdate(1, 0, 0, (StateBatch(0, 10, 0, 1),), 0) == read_update(records[3].value or b"")


def test_a_batch_that_an_update_does_not_touch_stays(monkeypatch):
    """Row 165: a batch that no update names stays in the snapshot.

    Here the updates complete the first and the third batch and move the start. The second batch is unchanged.
    """
    monkeypatch.setattr(shard_module, "UPDATES_PER_SNAPSHOT", 0)
    bench = Bench()
    bench.initialize()
    held = StateBatch(110, 119, 1, 2)
    bench.write(StateBatch(100, 109, 1, 1), held, StateBatch(120, 129, 1, 0), start=100)
    bench.write(StateBatch(100, 109, 2, 1), start=-1, count=10)
    last = bench.write(StateBatch(120, 129, 2, 1), start=110, count=10)

    assert (
        ShareState(4, 0, 0, 110, NOW, NOW, (held, StateBatch(120, 129, 2, 1)), 10)[3:]
        == (read_snapshot(last.value or b"")[3:])
    )


def test_older_epochs_are_refused(bench):
    """Row 166: a request with an older leader or state epoch changes nothing. An epoch of -1 is not compared."""
    bench.initialize(epoch=1)
    bench.apply(bench.shard.read(KEY, 5, NOW)[1])
    before = bench.shard.state(KEY)
    for epochs in ({"state_epoch": 1, "leader_epoch": 4}, {"state_epoch": 0, "leader_epoch": 5}):
        with pytest.raises(StateFencedError, match="is older than"):
            bench.write(**epochs)
    with pytest.raises(StateFencedError):
        bench.initialize(epoch=0)
    with pytest.raises(StateFencedError):
        bench.shard.read(KEY, 4, NOW)
    assert before == bench.shard.state(KEY)
    bench.write(state_epoch=-1, leader_epoch=-1)
    assert 5 == bench.shard.state(KEY).leader_epoch


def test_a_new_leader_writes_its_epoch(bench):
    """Row 167: when a new leader reads a state, its leader epoch is written as an update without batches.

    Another read by the same leader writes nothing.
    """
    bench.initialize()
    state, record = bench.shard.read(KEY, 2, NOW)
    bench.apply(record)

    assert ShareState(0, 0, 0, -1, NOW, NOW) == state
    assert record is not None
    assert ShareUpdate(0, 2, -1) == read_update(record.value or b"")
    assert (bench.shard.state(KEY), None) == bench.shard.read(KEY, 2, NOW)
    assert 2 == bench.shard.state(KEY).leader_epoch


def test_cold_states_are_snapshotted_once(bench):
    """Row 169: if a state has not changed for five minutes, a snapshot is written.

    No further snapshot is written until the state changes.
    """
    bench.initialize(start=0)
    bench.write(StateBatch(0, 10, 0, 1), count=11)
    assert [] == bench.shard.snapshot_cold(Timestamp(NOW + COLD_AFTER_MS - 1))
    later = Timestamp(NOW + COLD_AFTER_MS)
    (record,) = bench.shard.snapshot_cold(later)
    bench.apply(record)

    assert ShareState(1, 0, 0, 0, NOW, later, (StateBatch(0, 10, 0, 1),), 11) == read_snapshot(
        record.value or b""
    )
    assert [] == bench.shard.snapshot_cold(Timestamp(later + COLD_AFTER_MS))


def test_what_is_below_every_newest_snapshot_is_redundant():
    """Records before the newest snapshots of all states are redundant. A deleted state no longer counts."""
    bench, other = Bench(), KEY._replace(partition=1)
    assert bench.shard.redundant_below() is None
    bench.initialize()
    assert bench.shard.redundant_below() is None
    bench.initialize(key=other)
    bench.initialize(epoch=1)
    assert 1 == bench.shard.redundant_below()
    bench.apply(bench.shard.delete(other))
    assert 2 == bench.shard.redundant_below()


def test_states_of_topics_that_are_gone_are_deleted(bench):
    """When a topic is deleted, its states are deleted. Such a state can be initialized again with any epoch."""
    bench.initialize(epoch=5)
    (tombstone,) = bench.shard.delete_topics(frozenset({KEY.topic_id}))
    bench.apply(tombstone)

    assert {} == bench.shard.states
    assert bench.shard.delete(KEY) is None
    with pytest.raises(NotInitializedError):
        bench.write()
    bench.initialize(epoch=0)
