"""An idempotent producer's repeats among the batches of one append: each batch once, and none lost."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.logs import LogOnDisk, records_of
from tests.doubles.records import batch
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.records import BatchStamp
from topicfs.storage.errors import OutOfOrderSequenceError, StorageError
from topicfs.storage.model import Offset, ProducerId, Timestamp

NOW = Timestamp(1_700_000_000_000)
PRODUCERS = (1, 2)


def sequenced(sequence, *, producer=1, count=1, epoch=0):
    """A producer's batch, its values naming the producer and the sequences."""
    stamp = BatchStamp(producer_id=ProducerId(producer), producer_epoch=epoch, base_sequence=sequence)
    values = [b"%d:%d" % (producer, sequence + number) for number in range(count)]
    return batch(*values, timestamp=NOW, stamp=stamp)


def values_of(log):
    return [value for _offset, value in records_of(log)]


def log_with(*batches):
    on_disk = LogOnDisk()
    for each in batches:
        on_disk.log.append(each)
    return on_disk


def test_new_batches_behind_a_repeat_are_appended():
    """The repeat is left out, what comes with it is new and stays; the answer tells where that is."""
    log = log_with(sequenced(0)).log
    appended = log.append(sequenced(0) + sequenced(1) + sequenced(2))
    assert [b"1:0", b"1:1", b"1:2"] == values_of(log)
    assert (1, 2, False) == (appended.base_offset, appended.last_offset, appended.duplicate)


def test_a_repeat_behind_new_batches_is_left_out():
    """Wherever it stands."""
    log = log_with(sequenced(0)).log
    appended = log.append(sequenced(1, count=2) + sequenced(0) + sequenced(3))
    assert [b"1:0", b"1:1", b"1:2", b"1:3"] == values_of(log)
    assert (1, 3, False) == (appended.base_offset, appended.last_offset, appended.duplicate)


def test_a_batch_twice_in_one_append_is_kept_once():
    """As if each had come alone."""
    log = LogOnDisk().log
    log.append(sequenced(0) + sequenced(0) + sequenced(1) + sequenced(0))
    assert [b"1:0", b"1:1"] == values_of(log)


def test_an_append_of_repeats_alone_is_answered_with_where_they_are():
    """From the lowest of their offsets to the highest; nothing is written."""
    log = log_with(sequenced(0), sequenced(1, count=2), batch(b"other")).log
    appended = log.append(sequenced(1, count=2) + sequenced(0))
    assert (0, 2, True) == (appended.base_offset, appended.last_offset, appended.duplicate)
    assert 4 == log.log_end_offset


def test_one_producers_repeat_costs_no_other_its_batch():
    """Producers know nothing of each other, and batches without one are always new."""
    log = log_with(sequenced(0)).log
    log.append(sequenced(0) + sequenced(0, producer=2) + batch(b"plain", timestamp=NOW) + sequenced(1))
    assert [b"1:0", b"2:0", b"plain", b"1:1"] == values_of(log)


def test_a_gap_behind_a_repeat_refuses_all():
    """All or none: the batch that may not come in is not lost silently, and takes the new ones with it."""
    log = log_with(sequenced(0)).log
    with pytest.raises(OutOfOrderSequenceError, match="sequence 3 instead of 2"):
        log.append(sequenced(0) + sequenced(1) + sequenced(3))
    assert [b"1:0"] == values_of(log)


def test_offsets_behind_a_repeat_have_no_gap():
    """What was left out takes no offset, in the log and in what is remembered of producers."""
    on_disk = log_with(sequenced(0))
    on_disk.log.append(sequenced(0) + sequenced(1) + sequenced(0, producer=2))
    assert [(0, b"1:0"), (1, b"1:1"), (2, b"2:0")] == records_of(on_disk.log)
    for log in (on_disk.log, on_disk.kill()):
        again = log.append(sequenced(1))
        assert (1, 1, True) == (again.base_offset, again.last_offset, again.duplicate)
        assert 2 == log.append(sequenced(0, producer=2)).base_offset


@pytest.mark.parametrize("mixed", [False, True])
def test_a_durable_repeat_is_on_disk_when_it_is_answered(mixed):
    """The first time need not have been durable: a producer that asks again with acks=all hears no earlier."""
    on_disk = log_with(sequenced(0))
    assert 0 == on_disk.log.recovery_point
    on_disk.log.append(sequenced(0) + (sequenced(1) if mixed else b""), durable=True)
    end = on_disk.log.log_end_offset
    assert end == on_disk.log.recovery_point
    assert [b"1:0", b"1:1"][:end] == values_of(on_disk.crash(keep=0.0))


def test_the_callers_buffer_keeps_its_batches():
    """Leaving out is no business of the caller, who may look at what it brought."""
    log = log_with(sequenced(0)).log
    brought = sequenced(0) + sequenced(1)
    log.append(brought)
    assert 2 == len(scan(brought))


@given(
    st.lists(
        st.tuples(st.sampled_from(PRODUCERS), st.integers(0, 3), st.integers(1, 2)), min_size=1, max_size=6
    ),
    st.integers(0, 3),
)
def test_together_is_as_one_by_one(batches, known):
    """Row 121: any mix of new, repeated and misplaced batches: as many times one append each, but all or none."""
    alone, together = LogOnDisk().log, LogOnDisk().log
    for producer, sequence in product(PRODUCERS, range(known)):
        for log in (alone, together):
            log.append(sequenced(sequence, producer=producer))
    before = values_of(together)
    each = [sequenced(sequence, producer=producer, count=count) for producer, sequence, count in batches]
    try:
        for one in each:
            alone.append(bytearray(one))
    except StorageError as error:
        with pytest.raises(type(error)):
            together.append(bytearray().join(each))
        assert before == values_of(together)
    else:
        together.append(bytearray().join(each))
        assert records_of(alone) == records_of(together)


def test_a_replica_takes_a_repeat_as_its_leader_did():
    """Only a client's append knows repeats: what stands at an offset of the leader's log stays there."""
    on_disk = log_with(sequenced(0))
    again = sequenced(0)
    again[7] = 1  # its base offset
    on_disk.log.appender.append_as_follower(again)
    assert Offset(2) == on_disk.log.log_end_offset
