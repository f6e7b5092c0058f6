"""Tests that small appends that skip checks follow the rules for epochs, segment sizes and jitter."""

from __future__ import annotations

from tests.doubles.logs import LogOnDisk
from tests.doubles.records import NOW, batch
from topicfs.storage.disk.names import LEADER_EPOCHS
from topicfs.storage.log.appending.small_appends import append_in_step, write_small
from topicfs.storage.model import Offset, Timestamp


def _append_own(on_disk, data):
    return on_disk.log.append(bytearray(data), encoded_here=True)


def test_a_leader_notes_its_epoch_before_a_small_append():
    """`write_small` leaves a batch of a new epoch to the full append, which writes the epoch first."""
    on_disk = LogOnDisk()
    for _ in range(3):
        _append_own(on_disk, batch(b"a", timestamp=NOW))
    parts = on_disk.log.parts
    parts.leader_epoch = 5
    assert write_small(parts, batch(b"b", timestamp=NOW), Timestamp(NOW), parts.rules) is None
    _append_own(on_disk, batch(b"b", timestamp=NOW))
    assert ((0, 0), (5, 3)) == on_disk.log.epochs.entries


def test_a_follower_notes_an_epoch_before_it_extends_its_log():
    """`extend_as_follower` refuses a batch of a new epoch and writes nothing."""
    on_disk = LogOnDisk()
    for offset in range(2):
        on_disk.log.appender.append_as_follower(batch(b"a", offset=offset, epoch=1, timestamp=NOW))
    on_disk.log.roles.follow(Offset(2))
    assert not on_disk.log.roles.extend_as_follower(batch(b"b", offset=2, epoch=2, timestamp=NOW), Offset(0))
    assert 2 == on_disk.log.log_end_offset
    assert on_disk.log.roles.extend_as_follower(batch(b"b", offset=2, epoch=1, timestamp=NOW), Offset(0))
    assert (((1, 0),), 3) == (on_disk.log.epochs.entries, on_disk.log.log_end_offset)


def test_a_follower_without_the_leaders_epoch_is_left_out_of_the_step():
    """`append_in_step` appends only to the leader if the follower's log lacks the leader's epoch.

    A later append to the follower writes the batch and the epoch.
    """
    leader, follower = LogOnDisk(), LogOnDisk()
    for offset in range(2):
        _append_own(leader, batch(b"a", timestamp=NOW))
        follower.log.appender.append_as_follower(batch(b"a", offset=offset, timestamp=NOW))
    leader.log.roles.lead(3, Offset(2))
    follower.log.roles.follow(Offset(2))
    appended = append_in_step(leader.log.parts, [follower.log.parts], batch(b"b", timestamp=NOW))
    assert appended is not None
    assert (3, 2) == (leader.log.log_end_offset, follower.log.log_end_offset)
    assert (2, ((0, 0), (3, 2))) == (leader.log.high_watermark, leader.log.epochs.entries)
    follower.log.appender.append_as_follower(batch(b"b", offset=2, epoch=3, timestamp=NOW))
    assert leader.log.epochs.entries == follower.log.epochs.entries


def test_a_close_in_order_writes_epochs_that_loading_dropped():
    """A clean close writes the epoch file if loading dropped epochs, even if nothing else has changed."""
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a"))
    on_disk.log.close()
    on_disk.write(LEADER_EPOCHS, b"0\n2\n0 0\n9 9\n")
    on_disk.load(clean=True).close()
    assert b"0\n1\n0 0\n" == on_disk.content(LEADER_EPOCHS)
