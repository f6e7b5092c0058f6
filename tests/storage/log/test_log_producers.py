"""A log and its producers: duplicates, transactions, snapshots and what recovery makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.codec.control import ControlType, EndTransactionMarker, encode_marker
from storage.codec.records import BatchStamp, encode
from storage.errors import (
    InvalidRecordError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    ProducerFencedError,
)
from storage.indexes.transaction_index import AbortedSpan
from storage.model import Isolation, Offset, ProducerId, Timestamp
from storage.producers.append import Origin
from storage.producers.snapshot import decode
from storage.producers.snapshot import decode as decode_snapshot
from storage.producers.state import DEFAULT_EXPIRATION_MS
from tests.doubles.logs import LogOnDisk, batch, offsets_of

NOW = Timestamp(1_700_000_000_000)
EMPTY_SNAPSHOT = bytes.fromhex("000148674bc700000000")


def data(count=1, *, pid=7, epoch=0, sequence=0, txn=False, offset=0, leader_epoch=0):
    stamp = BatchStamp(
        producer_id=ProducerId(pid), producer_epoch=epoch, base_sequence=sequence, transactional=txn
    )
    return batch(*[b"v"] * count, timestamp=NOW, stamp=stamp, offset=offset, epoch=leader_epoch)


def marker(*, pid=7, epoch=0, commit=True, coordinator=0):
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return encode_marker(
        EndTransactionMarker(kind, coordinator),
        timestamp=NOW,
        producer_id=ProducerId(pid),
        producer_epoch=epoch,
    )


class Transactions:
    """A log, and short ways to write transactions to it."""

    def __init__(self, **settings):
        self.on_disk = LogOnDisk(**settings)
        self._sequences = {}

    @property
    def log(self):
        return self.on_disk.log

    def write(self, count, *, pid, txn=True):
        sequence = self._sequences.get(pid, 0)
        self._sequences[pid] = sequence + count
        return self.log.append(data(count, pid=pid, sequence=sequence, txn=txn))

    def end(self, *, pid, commit=True):
        return self.log.append(marker(pid=pid, commit=commit), origin=Origin.COORDINATOR)

    def aborted(self):
        return [span for segment in self.log.chain.segments for span in segment.transaction_index]


def snapshots(on_disk):
    return [int(name[:20]) for name in on_disk.names() if name.endswith(".snapshot")]


def test_a_repeat_of_one_of_the_last_five_batches_is_answered_with_its_offsets():
    """Row 76: nothing is written; parts of batches and older ones are out of order."""
    log = LogOnDisk().log
    first = [log.append(data(2, sequence=2 * n)) for n in range(6)]
    again = log.append(data(2, sequence=4))
    assert (again.duplicate, again.base_offset, again.last_offset) == (True, first[2].base_offset, 5)
    assert 12 == log.log_end_offset
    for sequence, count in ((0, 2), (10, 1), (9, 3)):
        with pytest.raises(OutOfOrderSequenceError):
            log.append(data(count, sequence=sequence))
    assert 12 == log.log_end_offset


def test_a_repeat_rolls_nothing():
    """Producers are checked before a roll is decided on; a broker rolls first."""
    log = LogOnDisk(internal_segment_bytes=len(data()) + 1).log
    log.append(data())
    assert log.append(data()).duplicate
    with pytest.raises(OutOfOrderSequenceError):
        log.append(data(sequence=2))
    assert (Offset(0),) == log.chain.base_offsets
    log.append(data(sequence=1))
    assert (Offset(0), Offset(1)) == log.chain.base_offsets


def test_a_refused_append_leaves_no_byte():
    """The check comes before the write; the log goes on as if it had not been."""
    on_disk = LogOnDisk()
    on_disk.log.append(data(epoch=1))
    with pytest.raises(ProducerFencedError):
        on_disk.log.append(data(epoch=0, sequence=1))
    assert 1 == on_disk.log.append(data(epoch=1, sequence=1)).base_offset


def test_several_producers_in_one_append():
    """Row 77: a replica takes batches of several producers at once, and remembers each of them."""
    on_disk = LogOnDisk()
    on_disk.log.append_as_follower(
        data(pid=1)
        + data(pid=2, offset=1)
        + data(pid=1, sequence=1, offset=2)
        + data(pid=2, sequence=1, offset=3)
    )
    for log in (on_disk.log, on_disk.kill()):
        assert {1: 1, 2: 1} == {each.producer_id: each.last_sequence for each in log.producers()}
        assert log.append(data(pid=2, sequence=1)).duplicate
    assert 4 == on_disk.log.append(data(pid=1, sequence=2)).base_offset


def test_an_older_epoch_is_fenced_but_by_a_replica():
    """Row 77: a client that was replaced hears of it; what a leader has in its log a replica takes as it is."""
    log = LogOnDisk().log
    log.append(data(epoch=1))
    with pytest.raises(ProducerFencedError, match="epoch 0 was fenced by epoch 1"):
        log.append(data(epoch=0))
    log.append_as_follower(data(epoch=0, offset=1))
    assert [0, 1] == offsets_of(log)


def test_an_unknown_producer_may_begin_anywhere():
    """Row 78: its state may have expired."""
    assert 0 == LogOnDisk().log.append(data(sequence=3, epoch=5)).base_offset


def test_a_producer_without_sequences_is_refused():
    """Row 128: a client's batch with a producer id numbers its records."""
    with pytest.raises(InvalidRecordError, match="numbers its records from 0"):
        LogOnDisk().log.append(data(sequence=-1))


def test_markers_of_clients_are_refused():
    """Row 123: they come from coordinators alone."""
    log = LogOnDisk().log
    with pytest.raises(InvalidRecordError, match="come from coordinators"):
        log.append(marker())
    assert 0 == log.append(marker(), origin=Origin.COORDINATOR).base_offset


def test_the_snapshot_of_a_roll_excludes_the_batch_that_caused_it():
    """Row 79: it knows what is below its offset."""
    on_disk = LogOnDisk(internal_segment_bytes=100)
    on_disk.log.append(data(sequence=0))
    on_disk.log.append(data(sequence=1))
    on_disk.log.append(data(sequence=2))
    assert [1, 2] == snapshots(on_disk)
    reloaded = on_disk.kill(recovery_point=3)
    assert reloaded.append(data(sequence=2)).duplicate


def test_a_snapshot_is_taken_at_every_roll_even_without_producers():
    """Row 80: and a flush keeps them."""
    on_disk = LogOnDisk()
    for _ in range(3):
        on_disk.log.append(batch(b"v", timestamp=NOW))
        on_disk.log.roll()
    on_disk.log.flush()
    assert [1, 2, 3] == snapshots(on_disk)


def test_a_snapshot_is_not_written_again_where_one_is():
    """Row 97: rolls and closes at an offset whose snapshot stands leave it as it is."""
    on_disk = LogOnDisk()
    on_disk.log.append(data())
    on_disk.log.roll()
    on_disk.disk.calls.clear()
    on_disk.log.roll()
    on_disk.reopen()
    assert [] == [path for call, path in on_disk.disk.calls if call == "write_bytes" and "snapshot" in path]


def test_a_clean_log_without_snapshots_never_had_producers():
    """Rows 44 and 81: empty ones are written at the last two bases and the end; nothing is read."""
    on_disk = LogOnDisk()
    for sequence in range(4):
        on_disk.log.append(data(sequence=sequence))
        on_disk.log.roll()
    on_disk.log.close()
    for offset in snapshots(on_disk):
        on_disk.disk.unlink(on_disk.log.directory / f"{offset:020d}.snapshot")
    on_disk.disk.calls.clear()
    on_disk.log = on_disk.load(clean=True)
    read = {path[-24:] for call, path in on_disk.disk.calls if call == "pread"}
    assert {path for path in read if path.endswith(".log")} == set()
    assert [3, 4] == snapshots(on_disk)
    assert EMPTY_SNAPSHOT == on_disk.content("00000000000000000003.snapshot")


def test_recovery_takes_a_snapshot_at_every_recovered_base_and_at_the_end():
    """Rows 43 and 81: from the segment with the recovery point on; with none at all, every base but the first."""
    on_disk = LogOnDisk()
    for sequence in range(4):
        on_disk.log.append(data(sequence=sequence))
        on_disk.log.roll()
    on_disk.log.append(data(sequence=4))
    for offset in snapshots(on_disk):
        on_disk.disk.unlink(on_disk.log.directory / f"{offset:020d}.snapshot")
    on_disk.kill(recovery_point=3)
    assert [3, 4, 5] == snapshots(on_disk)
    for offset in snapshots(on_disk):
        on_disk.disk.unlink(on_disk.log.directory / f"{offset:020d}.snapshot")
    on_disk.kill(recovery_point=0)
    assert [1, 2, 3, 4, 5] == snapshots(on_disk)
    assert on_disk.log.append(data(sequence=4)).duplicate


def rolled(count=4):
    """A log of a segment for each of several producers, and an empty one behind them."""
    on_disk = LogOnDisk()
    for pid in range(count):
        on_disk.log.append(data(pid=pid))
        on_disk.log.roll()
    return on_disk


def producers_in(on_disk, offset):
    return [entry.producer_id for entry in decode(on_disk.content(f"{offset:020d}.snapshot"))]


def test_recovery_forgets_expired_producers_at_each_segments_base():
    """As a broker, which loads each recovered segment's snapshot again: each tells those of its own segment alone."""
    on_disk = rolled()
    on_disk.clock.now = NOW + DEFAULT_EXPIRATION_MS
    on_disk.kill()
    assert [[0], [1], [2], [3]] == [producers_in(on_disk, offset) for offset in (1, 2, 3, 4)]
    assert [] == on_disk.log.producers()


@pytest.mark.parametrize("log_start", [2, 4])
def test_recovery_leaves_no_snapshot_at_the_log_start(log_start):
    """Nor below it; the producers of what is gone are forgotten, and a close adds none without an append."""
    on_disk = rolled()
    on_disk.kill(log_start_offset=log_start)
    expected = list(range(log_start + 1, 5))
    assert expected == snapshots(on_disk)
    assert list(range(log_start, 4)) == [entry.producer_id for entry in on_disk.log.producers()]
    on_disk.log.close()
    assert expected == snapshots(on_disk)


def test_a_clean_start_deletes_the_snapshot_at_the_log_start():
    """It tells of nobody whose records are still in the log."""
    on_disk = rolled()
    on_disk.log.close()
    on_disk.log = on_disk.load(clean=True, log_start_offset=2)
    assert [3, 4] == snapshots(on_disk)


def test_a_close_takes_no_snapshot_at_a_log_start_that_was_raised_to_the_end():
    """DeleteRecords with no snapshot below: there is nothing to know."""
    on_disk = LogOnDisk()
    on_disk.log.append(data())
    on_disk.log.delete_records(1)
    on_disk.log.close()
    assert [] == snapshots(on_disk)


def test_what_is_read_for_a_recoverys_producers_leaves_a_snapshot_at_the_last_base_but_one():
    """The recovery point is in the last segment; a truncation then has to read less."""
    on_disk = rolled(3)
    on_disk.log.append(data(pid=3))
    for offset in snapshots(on_disk):
        on_disk.disk.unlink(on_disk.log.directory / f"{offset:020d}.snapshot")
    on_disk.kill(recovery_point=3)
    assert [2, 3, 4] == snapshots(on_disk)


def test_a_truncation_takes_a_snapshot_at_the_new_end():
    """As a broker does, so that a start after a crash reads nothing again."""
    on_disk = LogOnDisk()
    on_disk.log.append(data(pid=1))
    on_disk.log.append(data(pid=2))
    on_disk.log.truncate_to(1)
    assert [1] == snapshots(on_disk)
    assert [1] == producers_in(on_disk, 1)


def test_a_segment_recovered_after_a_clean_close_takes_the_later_snapshots_along():
    """Its index was lost: what was known behind it is read again, for the last two bases and the end."""
    on_disk = rolled()
    on_disk.log.close()
    on_disk.disk.unlink(on_disk.log.directory / "00000000000000000000.index")
    on_disk.log = on_disk.load(clean=True)
    assert [1, 3, 4] == snapshots(on_disk)


def test_a_bad_snapshot_is_deleted_and_an_older_one_used():
    """Row 100: empty, torn or corrupt; the log from the older one on is read again."""
    for damage in (b"", EMPTY_SNAPSHOT[:7], b"\0\1" + bytes(60)):
        on_disk = LogOnDisk()
        on_disk.log.append(data(sequence=0))
        on_disk.log.roll()
        on_disk.log.append(data(sequence=1))
        on_disk.log.close()
        on_disk.write("00000000000000000002.snapshot", damage)
        on_disk.log = on_disk.load(clean=True)
        assert on_disk.log.append(data(sequence=1)).duplicate
        assert 56 == len(on_disk.content("00000000000000000002.snapshot"))


def test_stray_snapshots_go_but_for_the_newest():
    """Rows 47 and 102: at no segment's base; one above the last base is that of a clean close."""
    on_disk = LogOnDisk()
    for _ in range(3):
        on_disk.log.append(batch(b"v", timestamp=NOW))
        if on_disk.log.log_end_offset < 3:
            on_disk.log.roll()
    on_disk.log.append(batch(b"v", timestamp=NOW))
    on_disk.log.close()
    for offset in (1, 2, 3, 4):
        on_disk.write(f"{offset:020d}.snapshot", EMPTY_SNAPSHOT)
    on_disk.log = on_disk.load(clean=True)
    assert [1, 2, 4] == snapshots(on_disk)


def test_snapshots_go_with_their_segments():
    """Row 75: retention removes both."""
    on_disk = LogOnDisk()
    for _ in range(3):
        on_disk.log.append(batch(b"v", timestamp=NOW))
        on_disk.log.roll()
    on_disk.log.delete_oldest_segments(2, "test")
    assert [2, 3] == snapshots(on_disk)
    assert "00000000000000000001.snapshot.deleted" in on_disk.names()


def test_a_producer_is_known_after_its_records_were_deleted_inside_a_segment():
    """Row 45: moving the log start loses nobody, also over a restart."""
    on_disk = LogOnDisk()
    on_disk.log.append(data(pid=1))
    on_disk.log.append(data(pid=2))
    on_disk.log.delete_records(1)
    on_disk.reopen(log_start_offset=1)
    assert on_disk.log.append(data(pid=1)).duplicate
    assert on_disk.log.append(data(pid=2)).duplicate


def test_a_producer_whose_segment_went_is_known_until_a_restart():
    """Row 46: a log start at a segment's base."""
    on_disk = LogOnDisk()
    on_disk.log.append(data(pid=1))
    on_disk.log.roll()
    on_disk.log.append(data(pid=2))
    on_disk.log.delete_records(1)
    assert on_disk.log.append(data(pid=1)).duplicate
    on_disk.kill(log_start_offset=1, recovery_point=0)
    on_disk.disk.unlink(on_disk.log.directory / "00000000000000000002.snapshot")
    on_disk.kill(log_start_offset=1, recovery_point=1)
    assert on_disk.log.append(data(pid=2)).duplicate
    assert not on_disk.log.append(data(pid=1)).duplicate


def test_truncation_forgets_what_came_after():
    """Row 98: the state is that at the new end, and later snapshots are gone."""
    on_disk = LogOnDisk()
    for sequence in range(4):
        on_disk.log.append(data(sequence=sequence))
        on_disk.log.roll()
    on_disk.log.truncate_to(2)
    assert [1, 2] == snapshots(on_disk)
    assert on_disk.log.append(data(sequence=1)).duplicate
    assert not on_disk.log.append(data(sequence=2)).duplicate


def test_an_emptied_batch_still_tells_its_producers_sequence():
    """Row 82: a batch without records keeps producer id and last sequence."""
    on_disk = LogOnDisk()
    stamp = BatchStamp(producer_id=ProducerId(7), producer_epoch=0, base_sequence=0, leader_epoch=0)
    emptied = encode([], stamp, base_offset=0, last_offset=3, max_timestamp=NOW)
    on_disk.log.append_as_follower(emptied)
    on_disk.kill()
    assert 4 == on_disk.log.append(data(sequence=4)).base_offset


def test_aborts_are_indexed_with_the_stable_offset_they_leave():
    """Row 83: the earliest other open transaction, or the one after the marker."""
    log = Transactions()
    log.write(5, pid=1)
    log.write(3, pid=2)
    log.write(2, pid=3)
    log.end(pid=1, commit=False)
    log.end(pid=3)
    log.write(1, pid=2)
    log.end(pid=2, commit=False)
    assert log.aborted() == [AbortedSpan(1, 0, 10, 5), AbortedSpan(2, 5, 13, 14)]


def test_readers_of_committed_records_stop_at_the_first_open_transaction():
    """Rows 60 and 84: between the last stable offset and the log end there is nothing yet for them, and no error."""
    log = Transactions()
    log.write(2, pid=1, txn=False)
    log.write(2, pid=2)
    log.write(2, pid=1, txn=False)
    assert 2 == log.log.offsets().last_stable_offset
    committed, everything = (
        len(log.log.read(Offset(2), max_bytes=4096, isolation=isolation).data)
        for isolation in (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED)
    )
    assert (0, True) == (committed, everything > 0)
    log.end(pid=2)
    assert 7 == log.log.offsets().last_stable_offset


def test_the_stable_offset_waits_for_the_marker_to_be_replicated():
    """Row 84: a marker at or above the high watermark decides nothing for readers."""
    log = Transactions()
    log.write(2, pid=1)
    log.end(pid=1)
    for high_watermark, stable in ((0, 0), (2, 0), (3, 3)):
        log.on_disk.kill(high_watermark=high_watermark)
        assert stable == log.log.offsets().last_stable_offset


def test_the_stable_offset_stays_below_the_high_watermark():
    """Row 60: a transaction that is open above it holds nobody back, and shows nobody what is not replicated."""
    log = Transactions()
    log.write(4, pid=1, txn=False)
    log.write(2, pid=2)
    log.on_disk.kill(high_watermark=3)
    assert (3, 3) == (log.log.offsets().last_stable_offset, log.log.offsets().high_watermark)
    for isolation in Isolation:
        assert b"" == bytes(log.log.read(Offset(3), max_bytes=4096, isolation=isolation).data)


def test_the_stable_offset_is_never_below_the_log_start():
    """Row 85: deleting records inside an open transaction raises its first unstable offset (0 to 5)."""
    log = Transactions()
    log.write(10, pid=1)
    log.log.delete_records(5)
    assert (5, 5) == (log.log.log_start_offset, log.log.offsets().last_stable_offset)


def test_reads_tell_the_aborts_among_what_they_return():
    """Row 83: also when the marker stands in a later segment; none to those who read everything."""
    log = Transactions()
    log.write(2, pid=1)
    log.log.roll()
    log.write(1, pid=2, txn=False)
    log.log.roll()
    log.end(pid=1, commit=False)
    fetched = log.log.read(Offset(0), max_bytes=4096)
    assert [(1, 0)] == [tuple(each) for each in map(_pair, fetched.aborted)]
    plain = log.log.read(Offset(0), max_bytes=4096, isolation=Isolation.READ_UNCOMMITTED)
    assert () == plain.aborted


def test_a_read_tells_no_abort_but_those_of_what_it_returns():
    """Rows 21 and 29: by the end of what was read, not by the log's; markers at its first offset are among it."""
    log = Transactions()
    for pid in (1, 2, 3):
        log.write(2, pid=pid)
        log.end(pid=pid, commit=False)
    told = {
        offset: [_pair(each) for each in log.log.read(Offset(offset), max_bytes=1).aborted]
        for offset in range(9)
    }
    assert [(1, 0)] * 3 + [(2, 3)] * 3 + [(3, 6)] * 3 == [each for (each,) in told.values()]
    everything = log.log.read(Offset(2), max_bytes=4096).aborted
    assert [(1, 0), (2, 3), (3, 6)] == [_pair(each) for each in everything]


def _pair(aborted):
    return aborted.producer_id, aborted.first_offset


def test_plain_data_in_an_open_transaction_writes_nothing():
    """Row 92: INVALID_TXN_STATE."""
    log = Transactions()
    log.write(1, pid=1)
    with pytest.raises(InvalidTransactionStateError):
        log.write(1, pid=1, txn=False)
    assert 1 == log.log.log_end_offset


def test_an_old_coordinator_writes_nothing():
    """Row 86: its markers are fenced."""
    log = LogOnDisk().log
    log.append(marker(coordinator=2), origin=Origin.COORDINATOR)
    with pytest.raises(ProducerFencedError):
        log.append(marker(coordinator=1), origin=Origin.COORDINATOR)
    assert 1 == log.log_end_offset


def _with_aborts():
    """Transactions over three segments, two of them aborted; the log before any restart."""
    log = Transactions()
    log.write(8, pid=1)
    log.write(2, pid=2)
    log.log.roll()
    log.write(5, pid=1)
    log.end(pid=1, commit=False)
    log.log.roll()
    log.write(3, pid=2)
    log.write(2, pid=3, txn=False)
    log.end(pid=2, commit=False)
    return log


@pytest.mark.parametrize(
    ("lost", "recovery_point", "recovered"),
    [
        ((".txnindex",), 0, {10, 16}),
        ((".txnindex", ".snapshot"), 0, {10, 16}),
        ((".snapshot",), 0, {10, 16}),
        ((".snapshot",), 12, {10, 16}),
        ((".snapshot",), 16, {16}),
        ((), 12, {10, 16}),
        ((), 16, {16}),
    ],
)
def test_the_aborted_transactions_come_back(lost, recovery_point, recovered):
    """Rows 13 and 49: all indexes made again, or only the last segment's, with the snapshot before it and without."""
    log = _with_aborts()
    aborted = [AbortedSpan(1, 0, 15, 8), AbortedSpan(2, 8, 21, 22)]
    assert aborted == log.aborted()
    for name in log.on_disk.names():
        if name.endswith(lost):
            log.on_disk.disk.unlink(log.log.directory / name)
    log.on_disk.disk.calls.clear()
    log.on_disk.kill(recovery_point=recovery_point)
    assert aborted == log.aborted()
    assert 22 == log.log.offsets().last_stable_offset
    written = [Path(path) for call, path in log.on_disk.disk.calls if call == "pwrite"]
    assert recovered == {int(path.stem) for path in written if path.suffix == ".txnindex"}


def test_a_transaction_index_that_is_none_is_made_anew():
    """Also after a clean stop: its segment is recovered."""
    log = _with_aborts()
    before = log.aborted()
    log.log.close()
    log.on_disk.write("00000000000000000010.txnindex", b"garbage")
    log.on_disk.log = log.on_disk.load(clean=True)
    assert log.aborted() == before


def test_an_open_transaction_goes_on_after_a_crash():
    """Row 99: the reader's bound stays where it began, and it can be ended."""
    log = Transactions()
    log.write(2, pid=1, txn=False)
    log.write(2, pid=2)
    log.log.sync()
    log.on_disk.crash(keep=0)
    assert 2 == log.log.offsets().last_stable_offset
    log.write(1, pid=2)
    log.end(pid=2)
    assert 6 == log.log.offsets().last_stable_offset


def test_truncation_takes_aborts_back():
    """The marker is gone, so the transaction is open again."""
    log = Transactions()
    log.write(2, pid=1)
    log.end(pid=1, commit=False)
    log.log.truncate_to(2)
    assert [] == log.aborted()
    assert 0 == log.log.offsets().last_stable_offset
    assert [] == offsets_of(log.log)


def test_the_transaction_index_is_one_of_the_segments_files():
    """It is listed, flushed and deleted with its segment, and exists only with an abort."""
    log = Transactions()
    log.write(1, pid=1)
    log.end(pid=1)
    assert not any(name.endswith(".txnindex") for name in log.on_disk.names())
    log.write(1, pid=1)
    log.end(pid=1, commit=False)
    assert "00000000000000000000.txnindex" in log.log.segments()[0].files
    log.log.roll()
    log.log.delete_oldest_segments(1, "test")
    assert "00000000000000000000.txnindex.deleted" in log.on_disk.names()


def test_a_failed_transaction_index_takes_the_log_offline():
    """The marker is in the log; loading it again makes the entry."""
    log = Transactions()
    log.write(1, pid=1)
    log.on_disk.disk.fail("pwrite", suffix=".txnindex")
    with pytest.raises(OSError, match="Input/output"):
        log.end(pid=1, commit=False)
    assert "transaction index" in log.log.offline_reason
    log.on_disk.kill()
    assert log.aborted() == [AbortedSpan(1, 0, 1, 2)]


def test_silent_producers_are_forgotten_by_duty():
    """Row 96: a day after their newest batch."""
    on_disk = LogOnDisk()
    on_disk.log.append(data())
    on_disk.log.remove_expired_producers(Timestamp(NOW + 86_400_000))
    assert not on_disk.log.append(data()).duplicate


def test_read_only_loading_knows_the_transactions_and_writes_nothing():
    """A foreign directory is recovered in memory, its aborts among it."""
    log = _with_aborts()
    for name in log.on_disk.names():
        if name.endswith((".txnindex", ".snapshot")):
            log.on_disk.disk.unlink(log.log.directory / name)
    names = log.on_disk.names()
    shown = log.on_disk.load(clean=False, disk=log.on_disk.disk.read_only_view())
    assert 22 == shown.offsets().last_stable_offset
    assert [(1, 0), (2, 8)] == [_pair(a) for a in shown.read(Offset(0), max_bytes=9999).aborted]
    assert log.on_disk.names() == names


def test_what_stands_behind_a_segment_without_an_index_stays():
    """A broker makes a missing index first, and then finds nothing wrong with the segment: so its damage costs it alone."""
    on_disk = LogOnDisk()
    for sequence in range(0, 6, 2):
        on_disk.log.append(data(sequence=sequence))
        on_disk.log.append(data(sequence=sequence + 1))
        on_disk.log.roll()
    name = "00000000000000000002.log"
    content = bytearray(on_disk.content(name))
    content[-1] ^= 1
    on_disk.write(name, bytes(content))
    on_disk.disk.unlink(on_disk.log.directory / "00000000000000000002.index")
    on_disk.kill()
    assert [0, 1, 2, 4, 5] == offsets_of(on_disk.log)
    assert [2, 4, 6] == snapshots(on_disk)


def test_producers_whose_batches_are_read_again_stand_in_a_brokers_order():
    """7 and 23 share a place of Java's table: a broker that reads a segment again puts the last one first, in each place."""
    on_disk = LogOnDisk()
    for pid in (7, 23):
        on_disk.log.append(data(pid=pid))
    on_disk.log.roll()
    on_disk.log.append(data(pid=39))
    on_disk.disk.unlink(on_disk.log.directory / "00000000000000000002.snapshot")
    on_disk.kill(recovery_point=2)
    found = decode_snapshot(on_disk.content("00000000000000000003.snapshot"))
    assert [23, 7, 39] == [entry.producer_id for entry in found]
