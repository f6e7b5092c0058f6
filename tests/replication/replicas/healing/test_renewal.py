"""Tests of replicas that compaction made different: a damaged replica is replaced by a copy of a sound one."""

from __future__ import annotations

import errno
from itertools import count

import pytest

from tests.doubles.flips import flip
from tests.doubles.mortal_disk import End
from tests.doubles.powered_replicas import PoweredReplicas
from tests.doubles.records import batch, read_records
from tests.doubles.replicated import ORDERS, Replicated
from tests.doubles.several_disks import break_disk
from topicfs.storage.compaction.cleaner import clean
from topicfs.storage.disk.names import DirectoryMark, parse_partition_directory
from topicfs.storage.duties.log_cleaner import plan_cleaning
from topicfs.storage.errors import StorageError
from topicfs.storage.log.life import Role
from topicfs.storage.log.log import Log
from topicfs.storage.model import Position

VALUE = 70
"""Position of the record's value in a batch."""


def filled(both: Replicated, records: int = 60) -> Replicated:
    """Make two or three replicas of a compacted topic; only the second replica was compacted."""
    both.engine.create_topic("orders")
    for number in range(records):
        key = b"%d" % number if number < 5 else b"%d" % (number % 7 + 100)
        both.partition().append(batch(b"value %02d" % number, key=key, timestamp=1 + number))
    compact(both, 2)
    both.partition().sync()
    return both


def compact(both: Replicated, number: int) -> None:
    log = both.engine.controller.logs(ORDERS)[number]
    if log.parts.life.role is Role.FOLLOWER:
        log.roles.follow_high_watermark(log.log_end_offset)
    clean(log, plan_cleaning(log, both.clock()), now=both.clock(), map_bytes=1 << 16)


def settings(**more: int) -> dict[str, object]:
    return {
        "cleanup_policy": ("compact",),
        "internal_segment_bytes": 1000,
        "min_cleanable_dirty_ratio": 0.0,
        **more,
    }


@pytest.fixture
def both() -> Replicated:
    return filled(Replicated(**settings()))


def newest(both: Replicated) -> dict[bytes | None, bytes | None]:
    """Return the newest value of each key."""
    return {one.key: one.value for one in read_records(both.partition())}


def damage(both: Replicated, number: int, offset: int = 4) -> None:
    """Flip a bit of the value at an offset that both replicas have."""
    log = both.engine.controller.logs(ORDERS)[number]
    segment = log.chain.segments[log.chain.floor(offset)]
    found = segment.find_batch(offset, segment.size)
    assert found is not None
    assert offset == found.base_offset
    flip(both, number, found.position + VALUE, name=f"{segment.base_offset:020}.log")


def logs(both: Replicated, number: int) -> dict[int, bytes]:
    """Return a replica's segments that are not empty after compaction, by base offset."""
    segments = both.engine.controller.logs(ORDERS)[number].chain.segments
    found = {one.base_offset: bytes(one.log.pread(1 << 20, Position(0))) for one in segments}
    return {base_offset: data for base_offset, data in found.items() if data}


def copies_on_the_way(both: Replicated) -> list[str]:
    """Return the directories of copies that have not replaced their replica yet."""
    return [
        entry.name
        for root in both.roots
        for entry in both.disks.list_directory(root)
        if (parsed := parse_partition_directory(entry.name) if entry.is_directory else None)
        and parsed.mark is DirectoryMark.FUTURE
    ]


def test_a_follower_is_copied_from_the_leader(both):
    """A damaged follower gets the leader's files byte for byte. The follower stays in sync, even after a restart.

    Logs are compacted separately, so a batch that only one log has is no damage, and is not copied alone.
    """
    before, epoch = newest(both), both.partition().state.leader_epoch
    leaders = logs(both, 1)
    assert leaders != logs(both, 2)
    assert [] == both.scrub()
    damage(both, 2)
    assert before == newest(both)
    assert ["/a"] == [one.healed_from for one in both.scrub()]
    assert (1, 0) == (both.engine.scrubber.counts.batches_healed, both.engine.scrubber.counts.damaged)
    assert leaders == logs(both, 1) == logs(both, 2)
    assert ((1, 2), 1, epoch) == (both.in_sync(), both.leader(), both.partition().state.leader_epoch)
    assert [] == copies_on_the_way(both) == both.scrub()
    both.partition().append(batch(b"more", key=b"more", timestamp=99))
    assert logs(both, 1) == logs(both, 2)
    both.reopen()
    assert {**before, b"more": b"more"} == newest(both)
    assert ((1, 2), []) == (both.in_sync(), both.scrub())


def test_if_the_leader_is_damaged_another_replica_leads(both):
    """If the leader is damaged, another replica leads in a new epoch. Once copied, the former leader can lead again."""
    before, epoch = newest(both), both.partition().state.leader_epoch
    damage(both, 1)
    assert before == newest(both)
    assert ["/b"] == [one.healed_from for one in both.scrub()]
    assert ((1, 2), 2, epoch + 1) == (both.in_sync(), both.leader(), both.partition().state.leader_epoch)
    assert logs(both, 1) == logs(both, 2)
    assert before == newest(both)
    assert 1 == both.engine.elect_preferred()
    assert (before, [], 1) == (newest(both), both.scrub(), both.leader())


def test_of_three_replicas_only_the_damaged_one_is_copied(both):
    """If one of three replicas is damaged and the leader is sound, the damaged replica is copied from the leader.

    The other replicas are unchanged.
    """
    three = filled(Replicated(3, replicas=3, **settings()))
    before = newest(three)
    others = logs(three, 1), logs(three, 3)
    damage(three, 2)
    assert ["/a"] == [one.healed_from for one in three.scrub()]
    assert (*others, others[0]) == (logs(three, 1), logs(three, 3), logs(three, 2))
    assert ((1, 2, 3), before) == (three.in_sync(), newest(three))


def test_a_damaged_replica_without_a_sound_source_stays(both):
    """A replica that is damaged anywhere is no source for a copy, so both damaged replicas stay unchanged."""
    damage(both, 1, 20)  # Compaction has removed this record from the other replica.
    damage(both, 2, 4)  # The batches after this record's batch differ.
    before = logs(both, 1), logs(both, 2)
    found = both.scrub()
    assert {None} == {one.healed_from for one in found}
    assert all("no other replica in sync is free of damage" in one.finding.cause for one in found)
    assert before == (logs(both, 1), logs(both, 2))
    assert ((1, 2), 2) == (both.in_sync(), both.engine.scrubber.counts.damaged)


def test_a_replica_that_is_offline_is_no_source(both):
    """An offline replica, here with a damaged leader epoch, is no source for a copy: a scrub cannot check all of it."""
    damage(both, 2)
    log = both.engine.controller.logs(ORDERS)[1]
    segment = log.chain.segments[log.chain.floor(20)]
    found = segment.find_batch(20, segment.size)
    assert found is not None
    flip(both, 1, found.position + 15, name=f"{segment.base_offset:020}.log")
    log.parts.mark_offline("flushing failed")
    before = logs(both, 2)
    damaged, unread = both.scrub()
    assert (None, None) == (damaged.healed_from, unread.healed_from)
    assert "not scrubbed to its end: flushing failed" == unread.finding.cause
    assert before == logs(both, 2)


@pytest.mark.parametrize("anew", [False, True], ids=["deleted", "made anew"])
def test_a_topic_that_is_deleted_while_another_replica_is_read_gets_no_other_leader(both, monkeypatch, anew):
    """If a topic is deleted while a scrub reads another replica, the leader of the topic does not change.

    The leader of a new topic of the same name does not change either.
    """
    damage(both, 1)
    renewals = both.engine._healer.renewals
    is_sound = renewals._is_sound

    def look_and_delete(*asked: object) -> bool:
        sound = is_sound(*asked)
        both.engine.delete_topic("orders")
        if anew:
            both.engine.create_topic("orders")
        return sound

    monkeypatch.setattr(renewals, "_is_sound", look_and_delete)
    assert [None] == [one.healed_from for one in both.scrub()]
    if anew:
        assert (1, 0) == (both.leader(), both.partition().state.leader_epoch)
        assert (
            both.partition().state == both.engine.controller.entry(ORDERS.topic).partitions[ORDERS.partition]
        )


def test_a_follower_alone_in_sync_has_no_source(both):
    """The only replica in sync has no source, because a replica that is out of sync may lack acknowledged records."""
    break_disk(both.disk(1))
    both.partition().append(batch(b"more", key=b"more", timestamp=99))
    assert (2,) == both.in_sync()
    damage(both, 2)
    before = logs(both, 2)
    (found,) = both.scrub()
    assert "no other replica in sync" in found.finding.cause
    assert before == logs(both, 2)


def test_a_copy_on_a_full_disk_is_deleted(both):
    """If the disk is full, the copy is deleted and the finding says why.

    Once there is space, the replica is copied again.
    """
    damage(both, 2)
    before = logs(both, 2)
    both.disk(2).fail("pwrite", number=errno.ENOSPC, times=1, suffix=f"{0:020}.log")
    (found,) = both.scrub()
    assert found.healed_from is None
    assert "not copied again from another replica: " in found.finding.cause
    assert before == logs(both, 2)
    assert ((1, 2), []) == (both.in_sync(), copies_on_the_way(both))
    both.disk(2).heal()
    assert ["/a"] == [one.healed_from for one in both.scrub()]


def test_appends_continue_while_it_is_copied(both, monkeypatch):
    """Records that are appended during the copying are copied as well. Appends wait only for the last records."""
    before = newest(both)
    damage(both, 2)
    renewals = both.engine._healer.renewals
    copy = renewals._copy

    def copy_beside_appends(source: Log, log: Log) -> None:
        both.partition().append(batch(b"before", key=b"more", timestamp=98))
        copy(source, log)
        assert ("before", (1, 2)) == (newest(both)[b"more"].decode(), both.in_sync())
        both.partition().append(batch(b"behind", key=b"more", timestamp=99))

    monkeypatch.setattr(renewals, "_copy", copy_beside_appends)
    assert ["/a"] == [one.healed_from for one in both.scrub()]
    assert {**before, b"more": b"behind"} == newest(both)
    assert logs(both, 1) == logs(both, 2)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("compaction", "the source was compacted meanwhile"),
        ("election", "its replicas changed meanwhile"),
        ("deletion", "its topic was deleted"),
        ("recreation", "its topic was deleted"),
        ("failure", "its replicas changed meanwhile"),
        ("end", "are being closed"),
    ],
)
def test_a_change_that_makes_the_copy_useless_ends_the_copying(both, monkeypatch, change, reason):
    """If a change makes the copy incomplete or useless, the copying ends, and the damaged replica stays."""
    before = newest(both)
    damage(both, 2)
    renewals = both.engine._healer.renewals
    copy = renewals._copy

    def copy_and_change(source: Log, log: Log) -> None:
        copy(source, log)
        if change == "compaction":
            compact(both, 1)
        elif change == "election":
            both.engine.controller.lead(both.partition(), 2)
        elif change in {"deletion", "recreation"}:
            both.engine.delete_topic("orders")
            if change == "recreation":
                both.engine.create_topic("orders")
                both.partition().append(batch(b"new", key=b"new", timestamp=1))
        elif change == "failure":
            source.parts.mark_offline("flushing failed")
        else:
            renewals.stop()
            copy(source, log)

    monkeypatch.setattr(renewals, "_copy", copy_and_change)
    (found,) = both.scrub()
    assert found.healed_from is None
    assert reason in found.finding.cause
    assert [] == copies_on_the_way(both)
    if change == "recreation":
        before = {b"new": b"new"}
        assert logs(both, 1) == logs(both, 2)
    if change != "deletion":
        assert ((1, 2), before) == (both.in_sync(), newest(both))


def test_neither_log_is_compacted_meanwhile_and_both_are_again_afterwards(both, monkeypatch):
    """Compaction of both logs pauses during the copying, so that the copy does not mix two states of a log."""
    cleaners = [both.engine._replica_dirs[number].engine._services.cleaner for number in (1, 2)]
    assert [1, 1] == [len(one._compacted()) for one in cleaners]
    damage(both, 2)
    renewals = both.engine._healer.renewals
    copy = renewals._copy
    found: list[int] = []

    def look_and_copy(source: Log, log: Log) -> None:
        found.extend(len(one._compacted()) for one in cleaners)
        copy(source, log)

    monkeypatch.setattr(renewals, "_copy", look_and_copy)
    both.scrub()
    assert [0, 0] == found
    assert [1, 1] == [len(one._compacted()) for one in cleaners]


def test_a_replica_that_moves_is_not_copied_again(both):
    """A damaged replica that is being moved is not copied again, because its future copy is made from the leader."""
    three = filled(Replicated(3, replicas=2, **settings()))
    damage(three, 2)
    three.engine.move_replica(ORDERS, "/c", "/b")
    with pytest.raises(StorageError, match="is being moved"):
        three.engine._healer.renewals.renew(three.partition(), "/b")
    with pytest.raises(StorageError, match="/x does not serve"):
        three.engine._healer.renewals.renew(three.partition(), "/x")


def test_a_reader_that_finds_damage_starts_the_copying(both):
    """A reader that finds damage starts the copying in the background, and does not wait for the copying."""
    before = newest(both)
    damage(both, 1)
    assert before == newest(both)
    assert (1, True) == (both.leader(), logs(both, 1) != logs(both, 2))
    both.engine.heal()
    assert (2, True) == (both.leader(), logs(both, 1) == logs(both, 2))
    assert ([], before) == (both.scrub(), newest(both))


@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
@pytest.mark.parametrize("end", list(End), ids=str)
def test_an_interrupted_copying_loses_no_record(end: End, leads: bool):
    """If a kill or power loss interrupts the copying before any disk change, all acknowledged records can be read.

    A later scrub heals the damaged replica.
    """
    for step in count(step=1 if end is End.KILL else 2):
        two = filled(PoweredReplicas(2, seed=step, **settings()), 25)
        before = newest(two)
        damage(two, 1 if leads else 2)
        interrupted = two.dies(two.scrub, step)
        two.lose_power(end)
        two.open()
        assert before == newest(two), step
        two.engine.catch_up()
        assert before == newest(two), step
        assert (1, 2) == two.in_sync(), step
        assert all(one.healed_from for one in two.scrub()), step
        assert [] == two.scrub() == copies_on_the_way(two), step
        assert before == newest(two), step
        two.partition().append(batch(b"more", key=b"more", timestamp=99))
        two.reopen()
        assert {**before, b"more": b"more"} == newest(two), step
        if not interrupted:
            break
    assert step > 30
