"""Tests of repeated batches of an idempotent producer within an append: each batch is stored once."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.logs import LogOnDisk, records_of
from tests.doubles.records import NOW, batch
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.records import BatchStamp
from topicfs.storage.errors import OutOfOrderSequenceError, StorageError
from topicfs.storage.model import Offset, ProducerId

PRODUCERS = (1, 2)


def sequenced(sequence, *, producer=1, count=1, epoch=0):
    """Return a batch in which each value consists of the producer's ID and the record's sequence."""
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


@pytest.mark.parametrize(
    ("brought", "stored", "answered"),
    [
        pytest.param(
            sequenced(0) + sequenced(1) + sequenced(2),
            [b"1:0", b"1:1", b"1:2"],
            (1, 2),
            id="new batches behind a repeat",
        ),
        pytest.param(
            sequenced(1, count=2) + sequenced(0) + sequenced(3),
            [b"1:0", b"1:1", b"1:2", b"1:3"],
            (1, 3),
            id="a repeat between new batches",
        ),
        pytest.param(
            sequenced(1) + sequenced(1) + sequenced(2) + sequenced(1),
            [b"1:0", b"1:1", b"1:2"],
            (1, 2),
            id="a new batch that is repeated in the append",
        ),
        pytest.param(
            sequenced(0) + sequenced(0, producer=2) + batch(b"plain", timestamp=NOW) + sequenced(1),
            [b"1:0", b"2:0", b"plain", b"1:1"],
            (1, 3),
            id="batches of another producer and plain ones",
        ),
    ],
)
def test_repeats_are_left_out(brought, stored, answered):
    """Repeated batches of an append are left out, and the result has the offsets of the new batches."""
    log = log_with(sequenced(0)).log
    appended = log.append(brought)
    assert stored == values_of(log)
    assert (*answered, False) == (appended.base_offset, appended.last_offset, appended.duplicate)


def test_an_append_of_repeats_alone_is_answered_with_where_they_are():
    """An append of repeats alone writes nothing, and returns the lowest and the highest offset of the repeats."""
    log = log_with(sequenced(0), sequenced(1, count=2), batch(b"other")).log
    appended = log.append(sequenced(1, count=2) + sequenced(0))
    assert (0, 2, True) == (appended.base_offset, appended.last_offset, appended.duplicate)
    assert 4 == log.log_end_offset


def test_a_gap_behind_a_repeat_refuses_all():
    """A gap after a repeat refuses the whole append."""
    log = log_with(sequenced(0)).log
    with pytest.raises(OutOfOrderSequenceError, match="sequence 3 instead of 2"):
        log.append(sequenced(0) + sequenced(1) + sequenced(3))
    assert [b"1:0"] == values_of(log)


def test_offsets_behind_a_repeat_have_no_gap():
    """A repeat that is left out uses no offset."""
    on_disk = log_with(sequenced(0))
    on_disk.log.append(sequenced(0) + sequenced(1) + sequenced(0, producer=2))
    assert [(0, b"1:0"), (1, b"1:1"), (2, b"2:0")] == records_of(on_disk.log)
    for log in (on_disk.log, on_disk.kill()):
        again = log.append(sequenced(1))
        assert (1, 1, True) == (again.base_offset, again.last_offset, again.duplicate)
        assert 2 == log.append(sequenced(0, producer=2)).base_offset


@pytest.mark.parametrize("mixed", [False, True])
def test_a_durable_repeat_is_on_disk_when_it_is_answered(mixed):
    """A durable repeat is flushed before the append returns, because the first append may not have been durable."""
    on_disk = log_with(sequenced(0))
    assert 0 == on_disk.log.recovery_point
    on_disk.log.append(sequenced(0) + (sequenced(1) if mixed else b""), durable=True)
    end = on_disk.log.log_end_offset
    assert end == on_disk.log.recovery_point
    assert [b"1:0", b"1:1"][:end] == values_of(on_disk.crash(keep=0.0))


def test_the_callers_buffer_keeps_its_batches():
    """The caller's buffer still has the repeated batches."""
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
    """Row 121: an append of several batches has the results of one append per batch, but is all or nothing."""
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
    """A follower stores a batch that repeats an earlier one, because its leader has stored both."""
    on_disk = log_with(sequenced(0))
    again = sequenced(0)
    again[7] = 1  # the base offset
    on_disk.log.appender.append_as_follower(again)
    assert Offset(2) == on_disk.log.log_end_offset
