"""Tests of idempotence and transactions: a log's state of its producers (ProducerStateManagerTest)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicfs.storage.codec.control import ControlType, EndTransactionMarker
from topicfs.storage.codec.headers import MAX_SEQUENCE, sequence_plus
from topicfs.storage.errors import (
    CorruptBatchError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    ProducerFencedError,
)
from topicfs.storage.model import Offset, ProducerId, Timestamp, TopicPartition
from topicfs.storage.producers import snapshot
from topicfs.storage.producers.append import CompletedTransaction, DataBatch, Origin
from topicfs.storage.producers.entry import ProducerEntry, SequencedBatch
from topicfs.storage.producers.state import ProducerState

PID = ProducerId(7)
OTHER = ProducerId(8)
NOW = Timestamp(1_700_000_000_000)
SNAPSHOT = bytes.fromhex(
    "0001b282cd4a0000000100000000000000070000000000010000000000000029000000010000018bcfe58b29ffffffff0000000000000028"
)


class Producers:
    """A producer state with short methods for appends."""

    def __init__(self):
        self.state = ProducerState(TopicPartition("t", 0))

    def data(self, first, *, pid=PID, epoch=0, count=1, offset=0, txn=False, origin=Origin.CLIENT, time=NOW):
        append = self.state.begin(pid, origin)
        last = sequence_plus(first, count - 1) if first >= 0 else -1
        append.add_data(DataBatch(epoch, first, last, Offset(offset), Offset(offset + count - 1), time, txn))
        self.state.finish(append)
        return self.state.get(pid)

    def end(self, offset, *, pid=PID, epoch=0, commit=True, coordinator=0):
        append = self.state.begin(pid, Origin.COORDINATOR)
        done = append.add_marker(
            EndTransactionMarker(ControlType.COMMIT if commit else ControlType.ABORT, coordinator),
            epoch=epoch,
            offset=Offset(offset),
            timestamp=NOW,
        )
        self.state.finish(append)
        if done:
            self.state.complete(done)
        return done


@pytest.fixture
def producers():
    return Producers()


def test_first_any_then_one_more(producers):
    """Row 87: an unknown producer may begin at any sequence, and must then continue without gaps or repeats.

    A new epoch begins at sequence 0.
    """
    producers.data(5, epoch=1)
    producers.data(6, epoch=1)
    with pytest.raises(OutOfOrderSequenceError, match="sequence 6 instead of 7"):
        producers.data(6, epoch=1)
    with pytest.raises(OutOfOrderSequenceError):
        producers.data(8, epoch=1)
    with pytest.raises(ProducerFencedError, match="fenced by epoch 1"):
        producers.data(7, epoch=0)
    with pytest.raises(OutOfOrderSequenceError, match="sequence 3 instead of 0"):
        producers.data(3, epoch=2)
    assert 2 == producers.data(0, epoch=2).epoch


def test_a_refused_append_changes_nothing(producers):
    """A refused append does not change the producer state."""
    before = producers.data(0)
    with pytest.raises(OutOfOrderSequenceError):
        producers.data(5)
    assert producers.state.get(PID) == before


def test_sequences_wrap_around(producers):
    """Row 88: the sequence after 2^31 - 1 is 0, even inside a batch, and not 1."""
    producers.data(MAX_SEQUENCE)
    with pytest.raises(OutOfOrderSequenceError):
        producers.data(1)
    producers.data(0)
    across = Producers()
    entry = across.data(MAX_SEQUENCE - 10, count=20)
    assert 8 == entry.last_sequence
    assert MAX_SEQUENCE - 10 == entry.batches[-1].first_sequence


@pytest.mark.parametrize(
    ("epoch", "first", "last", "repeats"),
    [(0, 4, 6, True), (0, 3, 6, False), (0, 5, 6, False), (0, 4, 7, False), (1, 4, 6, False)],
)
def test_a_repeat_has_the_same_sequences_from_first_to_last(producers, epoch, first, last, repeats):
    """Row 76: a batch is a repeat only if its epoch, first and last sequence equal those of a known batch."""
    producers.data(0, count=4)
    entry = producers.data(4, count=3)
    found = entry.duplicate_of(epoch=epoch, first_sequence=first, last_sequence=last)
    assert repeats == (found is not None)


@pytest.mark.parametrize("origin", [Origin.REPLICATION, Origin.COORDINATOR])
def test_replicas_and_coordinators_may_have_gaps(producers, origin):
    """Row 89: replication accepts gaps in sequences. Appends of coordinators have the sequence -1."""
    producers.data(0)
    assert 9 == producers.data(9, origin=origin).last_sequence
    assert -1 == producers.data(-1, origin=origin).last_sequence


def test_a_marker_with_a_higher_epoch_is_adopted(producers):
    """Row 90: after a marker with a higher epoch the producer's batches are forgotten, so the next sequence is 0."""
    producers.data(3, txn=True)
    producers.end(4, epoch=1, commit=False)
    entry = producers.state.get(PID)
    assert (1, -1, -1) == (entry.epoch, entry.last_sequence, entry.last_data_offset)
    with pytest.raises(OutOfOrderSequenceError, match="instead of 0"):
        producers.data(4, epoch=1)
    producers.data(0, epoch=1)


def test_a_marker_of_the_same_epoch_keeps_the_batches(producers):
    """After a marker of the same epoch a producer continues its sequence."""
    producers.data(3, txn=True)
    producers.end(1)
    assert 4 == producers.data(4, offset=2).last_sequence


def test_markers_of_old_epochs_are_fenced(producers):
    """Row 91: a marker of an old epoch is fenced; a repeated marker is accepted."""
    producers.data(0, epoch=3, txn=True)
    with pytest.raises(ProducerFencedError):
        producers.end(1, epoch=2)
    assert 1 == producers.end(1, epoch=4).last_offset
    assert producers.end(2, epoch=4) is None


def test_a_transaction_of_the_largest_epoch_can_end(producers):
    """A marker of epoch 32767 ends a transaction of the same epoch, because no epoch is larger."""
    producers.data(0, epoch=32767, txn=True, offset=1)
    assert 2 == producers.end(2, epoch=32767).last_offset


def test_plain_data_inside_a_transaction_is_refused(producers):
    """Row 92: plain data inside a transaction raises InvalidTransactionStateError."""
    producers.data(0, txn=True)
    with pytest.raises(InvalidTransactionStateError, match="began at offset 0"):
        producers.data(1, offset=1)


def test_an_older_coordinator_is_fenced(producers):
    """Rows 86 and 93: a marker of an older coordinator epoch is fenced."""
    producers.end(0, coordinator=5)
    with pytest.raises(ProducerFencedError, match="older than 5"):
        producers.end(1, coordinator=4)


def test_the_coordinator_epoch_survives_a_snapshot(producers):
    """Row 93: a snapshot stores the coordinator epoch."""
    producers.end(0, coordinator=5)
    entries = snapshot.decode(snapshot.encode(producers.state))
    producers.state.load(entries, end_offset=Offset(1), now=NOW)
    with pytest.raises(ProducerFencedError):
        producers.end(1, coordinator=4)


def test_a_transaction_is_unstable_until_its_marker_is_replicated(producers):
    """Row 94: a transaction is stable after the high watermark has passed its marker."""
    state = producers.state
    producers.data(0, offset=99, txn=True)
    producers.data(0, pid=OTHER, offset=105, txn=True)
    assert 99 == state.first_unstable_offset
    producers.end(109)
    state.high_watermark_moved(Offset(109))
    assert 99 == state.first_unstable_offset
    state.high_watermark_moved(Offset(110))
    assert 105 == state.first_unstable_offset
    producers.end(112, pid=OTHER, commit=False)
    state.high_watermark_moved(Offset(113))
    assert state.first_unstable_offset is None


def test_the_marker_of_an_empty_transaction_leaves_no_trace(producers):
    """Row 94: the marker of a transaction without records does not count as the end of a transaction."""
    assert producers.end(0) is None
    assert producers.state.first_unstable_offset is None


def test_the_stable_offset_of_an_abort(producers):
    """Row 95: the last stable offset of an abort is the first offset of a transaction that is still open.

    If no transaction is open, the last stable offset is the offset after the marker.
    """
    producers.data(0, offset=10, txn=True)
    producers.data(0, pid=OTHER, offset=12, txn=True)
    done = CompletedTransaction(PID, Offset(10), Offset(14), aborted=True)
    assert 12 == producers.state.stable_offset_at(done)
    producers.end(13, pid=OTHER)
    assert 15 == producers.state.stable_offset_at(done)


def test_silent_producers_expire_unless_something_is_open(producers):
    """Row 96: a producer expires a day after its newest batch, unless it has an open transaction."""
    day = 86_400_000
    producers.data(0)
    producers.data(0, pid=OTHER, offset=1, txn=True)
    producers.state.remove_expired(Timestamp(NOW + day - 1))
    assert 2 == len(producers.state)
    producers.state.remove_expired(Timestamp(NOW + day))
    assert [OTHER] == [entry.producer_id for entry in producers.state]


def test_expired_producers_are_not_loaded(producers):
    """Row 96: loading a snapshot skips expired producers."""
    producers.data(0)
    entries = list(producers.state)
    producers.state.load(entries, end_offset=Offset(1), now=Timestamp(NOW + 86_400_000))
    assert (0, 1) == (len(producers.state), producers.state.end_offset)


def test_an_open_transaction_survives_a_snapshot(producers):
    """Row 99: a transaction can go on and end after a snapshot was loaded."""
    producers.data(0, offset=3, txn=True)
    reloaded = Producers()
    reloaded.state.load(snapshot.decode(snapshot.encode(producers.state)), end_offset=Offset(4), now=NOW)
    assert 3 == reloaded.state.first_unstable_offset
    reloaded.data(1, offset=4, txn=True)
    assert 3 == reloaded.end(5).first_offset


def test_a_snapshot_has_kafkas_bytes():
    """Row 97: the snapshot of producer 7 with an open transaction has Kafka's bytes."""
    entry = ProducerEntry(
        producer_id=PID,
        epoch=0,
        last_timestamp=Timestamp(0x18BCFE58B29),
        transaction_first_offset=Offset(40),
        batches=(SequencedBatch(1, Offset(41), 1, Timestamp(0x18BCFE58B29)),),
    )
    assert SNAPSHOT == snapshot.encode([entry])
    assert snapshot.decode(SNAPSHOT) == [entry]


def test_an_empty_snapshot_is_ten_bytes():
    """An empty snapshot has version, checksum and the count 0."""
    assert snapshot.encode([]) == bytes.fromhex("000148674bc700000000")


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        pytest.param([17, 3, 2**32 + 5, 1, 16], [16, 17, 1, 3, 2**32 + 5], id="the bucket counts"),
        pytest.param([2, 65536, 16], [16, 65536, 2], id="the upper 16 bits are folded onto the lower bits"),
    ],
)
def test_entries_stand_in_the_order_of_a_java_hash_map(ids, expected):
    """Entries are sorted by bucket as in a Java HashMap. Entries of the same bucket are in the order of insertion."""
    entries = [ProducerEntry(producer_id=ProducerId(i)) for i in ids]
    assert expected == [each.producer_id for each in snapshot.in_hash_order(entries)]


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "at least 10 bytes"),
        (SNAPSHOT[:-1], "checksum"),
        (b"\0\2" + SNAPSHOT[2:], "version 2"),
        (SNAPSHOT[:20] + b"\xff" + SNAPSHOT[21:], "checksum"),
    ],
)
def test_a_bad_snapshot_is_reported(data, cause):
    """Row 100: an empty, truncated or damaged snapshot is refused."""
    with pytest.raises(CorruptBatchError, match=cause):
        snapshot.decode(data)


ENTRIES = st.builds(
    ProducerEntry,
    producer_id=st.integers(0, 2**63 - 1).map(ProducerId),
    epoch=st.integers(0, 2**15 - 1),
    coordinator_epoch=st.integers(-1, 2**31 - 1),
    last_timestamp=st.integers(-1, 2**62).map(Timestamp),
    transaction_first_offset=st.none() | st.integers(0, 2**62).map(Offset),
    batches=st.tuples()
    | st.tuples(
        st.builds(
            SequencedBatch,
            last_sequence=st.integers(0, 2**31 - 1),
            last_offset=st.integers(0, 2**62).map(Offset),
            offset_delta=st.integers(0, 1000),
            timestamp=st.just(Timestamp(0)),
        )
    ),
)


@given(st.lists(ENTRIES, max_size=40, unique_by=lambda e: e.producer_id))
def test_every_snapshot_round_trips(entries):
    """A snapshot is decoded as it was encoded, in the same order."""
    expected = [
        e._replace(batches=tuple(b._replace(timestamp=e.last_timestamp) for b in e.batches))
        for e in snapshot.in_hash_order(entries)
    ]
    assert snapshot.decode(snapshot.encode(entries)) == expected


@given(st.binary(max_size=80))
def test_any_bytes_are_a_snapshot_or_refused(data):
    """Random bytes are decoded or raise CorruptBatchError. No other error is raised."""
    try:
        snapshot.decode(data)
    except CorruptBatchError:
        return
