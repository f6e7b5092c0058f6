"""Tests that each key's newest record keeps its offset if a kill or power loss interrupts a compaction."""

from __future__ import annotations

from functools import partial

import pytest

from tests.doubles.compacted_log import CompactedLog
from tests.doubles.logs import DIRECTORY
from tests.doubles.mortal_disk import End, MortalDisk, every_step
from tests.doubles.records import NOW, marker
from tests.doubles.simulated_nodes import BLOCK_BYTES
from topicfs.inspection.check.partition import PartitionCheck
from topicfs.storage.checkpoints.partition_metadata import write_topic_id
from topicfs.storage.model import Offset, ProducerId, Record, Timestamp
from topicfs.storage.producers.append import Origin

KEYS, ROUNDS = 4, 6
STAMP = {"producer_id": ProducerId(7), "producer_epoch": 0, "transactional": True}


def filled(seed: int) -> CompactedLog:
    """Return a flushed log with an aborted transaction, from which a pass makes several segments."""
    log = CompactedLog(disk=MortalDisk(seed=seed), internal_segment_bytes=1200, index_interval_bytes=0)
    log.fill(keys=KEYS, rounds=ROUNDS)
    log.put((b"k0", b"aborted"), (b"rare", b"aborted"), base_sequence=0, **STAMP)
    log.log.append(marker(commit=False), origin=Origin.COORDINATOR)
    for number in range(8):
        log.put((b"long%d" % number, bytes(300)))
        log.log.appender.roll()
    log.put((b"k1", b"last"))
    log.log.sync()
    log.disk.sync_directory(DIRECTORY)
    write_topic_id(log.disk, DIRECTORY, "1EvPSKI_SvihSIy3lMKMvg")
    log.log.epochs.flush()
    return log


def run(log: CompactedLog) -> None:
    """Run a pass, and unlink the old files after file.delete.delay.ms."""
    log.clean()
    log.clock.advance(log.config.file_delete_delay_ms)
    log.log.replacer.remove_deleted_files(Timestamp(log.clock.now))


def visible(log: CompactedLog) -> list[Record]:
    """Return the records that read_committed readers see.

    All records from the first record to the marker of an aborted transaction are left out, because no other producer
    wrote records in between.
    """
    spans = log.log.aborted
    return [
        record
        for record in log.records()
        if not any(span.first_offset <= record.offset <= span.last_offset for span in spans)
    ]


def newest(log: CompactedLog) -> dict[bytes | None, Record]:
    return {record.key: record for record in visible(log)}


def findings(log: CompactedLog) -> list[object]:
    """Return what `topicfs check` reports for the partition."""
    check = PartitionCheck(DIRECTORY, log.disk.read_only_view(), in_use=False, clean=True)
    return list(check.findings(lambda _: None))


def outcome() -> list[int]:
    """Return the offsets that are left after a pass without interruption."""
    log = filled(0)
    run(log)
    return [record.offset for record in log.records()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "seed"),
    [(End.KILL, 0), (End.POWER_LOSS_KEEPING_NOTHING, 0), (End.POWER_LOSS, 0), (End.POWER_LOSS, 1000)],
    ids=str,
)
def test_a_pass_that_ends_at_any_step(end: End, seed: int) -> None:
    """If a pass ends at any step, newest records, offsets, indexes and aborts are kept, and the next pass finishes."""
    left = outcome()
    for steps in every_step():
        log = filled(seed + steps)
        before, expected = {record.offset: record for record in visible(log)}, newest(log)
        end_offset = log.log.log_end_offset
        died = log.dies(partial(run, log), steps)
        where = f"after {steps} steps"
        end.of(log.disk)
        log.log, log.checkpoint = log.load(clean=False, recovery_point=end_offset), None
        assert end_offset == log.log.log_end_offset, where
        assert expected == newest(log), where
        assert [before[record.offset] for record in visible(log)] == visible(log), where
        assert [] == log.temporary_files(), where
        log.log.close()
        assert [] == findings(log), where
        log.log = log.load(clean=True)
        run(log)
        assert left == [record.offset for record in log.records()], where
        assert expected == newest(log), where
        if not died:
            break
    assert steps > 30


@pytest.mark.parametrize("seed", range(10))
def test_indexes_of_cleaned_segments_survive_a_power_loss(seed: int) -> None:
    """A pass flushes its indexes before it renames them: recovery checks no index below the recovery point."""
    log = CompactedLog(
        disk=MortalDisk(seed=seed),
        internal_segment_bytes=100_000,
        segment_index_bytes=20_000,
        index_interval_bytes=0,
    )
    for number in range(300):
        log.put_record(Record(Offset(number), Timestamp(NOW + number), b"k%d" % number, b"old"))
    log.log.appender.roll()
    log.put((b"k0", b"new"))
    log.log.sync()
    log.disk.sync_directory(DIRECTORY)
    log.clean()
    names = [f"{0:020d}.index", f"{0:020d}.timeindex"]
    indexes = [log.content(name) for name in names]
    assert all(len(index) > 4 * BLOCK_BYTES for index in indexes)
    log.crash(keep=0.9, recovery_point=log.log.log_end_offset)
    assert indexes == [log.content(name) for name in names]
