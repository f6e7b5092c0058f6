"""Tests of appends with several batches, or with a batch without records."""

from __future__ import annotations

import pytest

from tests.doubles.logs import LogOnDisk, offsets_of
from tests.doubles.records import NOW, batch, old_entry
from topicfs.storage.codec.control import ControlType
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.errors import InvalidRecordError
from topicfs.storage.model import Isolation, Offset, ProducerId
from topicfs.storage.producers.append import Origin


def test_several_batches_come_in_together_or_not_at_all():
    """Row 121: unlike in a broker, an append may have several batches. One bad batch refuses all of them."""
    log = LogOnDisk().log
    appended = log.append(batch(b"a", b"b") + batch(b"c") + batch(b"d"))
    assert (0, 3) == (appended.base_offset, appended.last_offset)
    damaged = batch(b"e")
    damaged[-1] ^= 1
    with pytest.raises(InvalidRecordError):
        log.append(batch(b"f") + damaged)
    assert [0, 1, 2, 3] == offsets_of(log)


@pytest.mark.parametrize("magic", [1, 0])
@pytest.mark.parametrize("order", ["first", "last", "alone"])
def test_clients_bring_the_newest_format_throughout(magic, order):
    """Row 121: a batch of an old format, at any position, refuses the whole append."""
    log = LogOnDisk().log
    old, new = bytearray(old_entry(0, b"v", magic=magic)), batch(b"new")
    appended = {"first": old + new, "last": new + old, "alone": old}[order]
    with pytest.raises(InvalidRecordError, match=f"batch of format {magic}"):
        log.append(appended)
    assert 0 == log.log_end_offset


def test_an_empty_control_batch_opens_no_transaction():
    """Row 101: a replica accepts a marker batch that compaction emptied, and the batch opens no transaction."""
    on_disk = LogOnDisk()
    stamp = BatchStamp(
        producer_id=ProducerId(7), producer_epoch=3, transactional=True, control=True, leader_epoch=0
    )
    on_disk.log.appender.append_as_follower(
        encode([], stamp, base_offset=0, last_offset=0, max_timestamp=NOW)
    )
    for log in (on_disk.log, on_disk.kill()):
        assert 1 == log.offsets().last_stable_offset
        assert b"" != bytes(log.read(Offset(0), max_bytes=1000, isolation=Isolation.READ_COMMITTED).data)
    assert [] == list(on_disk.log.chain.segments[0].transaction_index)


def test_only_two_kinds_of_control_records_are_markers():
    """Row 101: control records other than transaction markers neither begin nor end a transaction."""
    log = LogOnDisk().log
    for kind in (ControlType.LEADER_CHANGE, ControlType.SNAPSHOT_HEADER, ControlType.KRAFT_VERSION):
        stamp = BatchStamp(producer_id=ProducerId(7), producer_epoch=0, transactional=True, control=True)
        key = b"\0\0" + int(kind).to_bytes(2, "big")
        log.append(batch(b"", key=key, timestamp=NOW, stamp=stamp), origin=Origin.COORDINATOR)
    assert 3 == log.offsets().last_stable_offset
