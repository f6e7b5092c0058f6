"""Tests of the Spark benchmark: the records that it makes, and the processor time that it reports."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.spark.records import (
    BLOCK_RECORDS,
    DAY_MS,
    DAYS,
    KEY_BYTES,
    PARTITIONS,
    VALUE_BYTES,
    make_topic,
)
from benchmarks.spark.session import Process, processes, seconds_between
from topicfs.replication import open_engine
from topicfs.storage.codec.columns import decode
from topicfs.storage.model import Isolation


def test_records_over_some_days(tmp_path):
    """Each partition has a complete block; keys and values have the right sizes, and the timestamps span DAYS days."""
    assert BLOCK_RECORDS * PARTITIONS == make_topic(tmp_path / "data", 1)
    engine = open_engine(tmp_path / "data", read_only=True)
    for partition in engine.topic("orders").partitions().values():
        offsets = partition.offsets()
        assert (0, BLOCK_RECORDS) == (offsets.log_start_offset, offsets.visible_end(Isolation.READ_COMMITTED))
        (last,) = decode(partition.read(BLOCK_RECORDS - 1, max_bytes=1).data)
        assert (KEY_BYTES, VALUE_BYTES) == (len(last.key(len(last) - 1)), len(last.value(len(last) - 1)))
        span = last.timestamps[len(last) - 1] - 1_700_000_000_000
        assert (DAYS - 1) * DAY_MS < span < DAYS * DAY_MS
    engine.close()


def test_time_of_ended_processes_counts_once():
    """An ended process's time counts once, in its parent; if the parent has ended, too, the time is left out."""
    before = {1: Process(0, 5.0), 2: Process(1, 3.0), 3: Process(2, 2.0), 4: Process(1, 1.0)}
    after = {1: Process(0, 9.5), 4: Process(1, 1.25), 5: Process(1, 0.5)}
    assert 2.25 == seconds_between(before, after)


def test_own_processes():
    """A child process is listed while it runs, and its processor time counts even after it has ended."""
    before = processes()
    program = subprocess.Popen([sys.executable, "-c", "sum(range(10**7)); input()"], stdin=subprocess.PIPE)
    assert program.pid in processes()
    program.communicate(b"\n")
    assert 0 == program.returncode
    assert seconds_between(before, processes()) > 0
