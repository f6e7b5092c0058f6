"""Tests of the benchmarks' tools: known lines, caches, clocks, and the empty filesystem."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from benchmarks import lines
from benchmarks.frame.question import Conditions, SkippedError, WrongResultError
from benchmarks.mount.setup.cpu_time import _processor_clock, timed
from benchmarks.mount.setup.mounts import (
    EMPTY_IN_C,
    EMPTY_KEEPING,
    EMPTY_PLAIN,
    empty_filesystem,
    empty_filesystem_in_c,
    topicfs,
)
from benchmarks.mount.setup.system_calls import (
    append_lines,
    append_pieces,
    cached_share,
    check_can_drop,
    check_text,
    read_small,
    read_through,
)
from benchmarks.mount.setup.targets import MeasuredLog, logs_for_appends
from benchmarks.partitions import ONE_RECORD, SIXTEEN_KIB, data_directory, whole_batches
from topicfs.replication import open_engine
from topicfs.storage.codec.columns import decode


def test_the_text_of_a_log_is_known_from_its_positions():
    """Positions determine any part of a log's text, any record and the checksum, even across a block's end."""
    whole = lines.text(2 * len(lines.BLOCK) + 700)
    assert lines.text(1500, len(lines.BLOCK) - 300) == whole[len(lines.BLOCK) - 300 :][:1500]
    assert lines.line(10_007) == whole.split(b"\n")[10_007]
    assert lines.checksum(len(whole)) == lines.crc32c(whole)


@pytest.mark.parametrize("shape", [SIXTEEN_KIB, ONE_RECORD], ids=lambda shape: shape.name)
def test_a_partition_holds_the_lines_in_batches_of_its_shape(tmp_path, shape):
    """A partition has the same records in every shape, in batches of the size that the shape demands."""
    size = whole_batches(40_100, shape)
    engine = open_engine(data_directory(tmp_path / "data", {"bench": (size, shape)}), read_only=True)
    try:
        data = engine.partition("bench", 0).read(0, max_bytes=2**20).data
    finally:
        engine.close()
    (columns,) = decode(data)
    assert {shape.lines_in_batch} == {batch.record_count for batch in columns.batches}
    assert lines.text(size) == b"".join(record.value + b"\n" for record in columns)


def test_a_dropped_file_is_out_of_memory(tmp_path):
    """A dropped file is not in memory, as mincore shows; for a file on tmpfs `check_can_drop` raises SkippedError."""
    path = tmp_path / "file"
    path.write_bytes(lines.text(2**20))
    assert 1.0 == cached_share(path)
    try:
        check_can_drop([path])
    except SkippedError as error:
        assert "its files cannot leave the page cache" in str(error)
    else:
        assert cached_share(path) < 0.02


def test_the_clock_of_another_process_is_that_process_time():
    """`_processor_clock` returns the clock of a process: for this process it equals time.process_time."""
    before = time.process_time()
    asked = time.clock_gettime(_processor_clock(os.getpid()))
    assert before <= asked <= time.process_time()


def test_the_time_of_children_is_included():
    """The processor time of a shell includes the time of its children."""
    took = timed(lambda: os.waitstatus_to_exitcode(os.system("exit 3")) + 0.5, None)
    assert 3.5 == took.elapsed
    assert took.cpu > 0


def test_missing_bytes_are_an_error(tmp_path):
    """If bytes are missing at the end, the benchmark fails, because its figure would be meaningless."""
    path = tmp_path / "file"
    path.touch()
    place = MeasuredLog("tmpfs", path, lambda: path.stat().st_size)
    with pytest.raises(WrongResultError, match="300 of 400 bytes arrived"):
        place.appended(400, lambda: append_lines(path, lines.line(0) + b"\n", 3))
    with pytest.raises(WrongResultError, match="read 0 of 400 bytes|read 300 of 400 bytes"):
        read_through(path, 4096, 400)
    with pytest.raises(WrongResultError, match="are not the 300 that were written"):
        check_text(path, 300)


@pytest.mark.fuse
def test_empty_file_systems_return_as_many_bytes(tmp_path):
    """A log or record of topicfs has the same size in the empty file systems, so that read times can be compared."""
    size = whole_batches(3_200_000, SIXTEEN_KIB)
    data = data_directory(tmp_path / "data", {"bench": (size, SIXTEEN_KIB)})
    with (
        topicfs(tmp_path, data) as ours,
        empty_filesystem(tmp_path, log_bytes=size) as empty,
        empty_filesystem(tmp_path, log_bytes=size, plain=True) as plain,
        empty_filesystem_in_c(tmp_path, log_bytes=size) as in_c,
    ):
        for mount in (ours, empty, plain, in_c):
            check_text(mount.partition() / "log", size)
            read_through(mount.partition() / "log", 2**20, size)
            assert lines.LINE_BYTES - 1 == len(read_small(mount.partition() / "12345"))
        assert lines.line(12345) == read_small(ours.partition() / "12345")
    assert [] == [path for path in tmp_path.iterdir() if path.is_mount()]


@pytest.mark.fuse
def test_every_side_counts_the_appended_bytes(tmp_path):
    """Every side of a benchmark counts the appended bytes, and topicfs has the bytes in order."""
    conditions = Conditions(short=True, directory=tmp_path)
    text = memoryview(lines.text(100_000))
    with logs_for_appends(conditions, 2**20, requests_count=True) as logs:
        others = [log.side for log in logs.others]
        assert [EMPTY_KEEPING, EMPTY_IN_C, EMPTY_PLAIN] == others
        for log in (logs.ours, logs.empty, *logs.others, logs.native):
            took = log.appended(len(text), lambda log=log: append_pieces(log.path, text, 2**14))
            assert 0 < took.elapsed
        check_text(Path(logs.ours.path), len(text))
        (keeping,) = (log for log in logs.others if log.side == EMPTY_KEEPING)
        assert keeping.kept_in is not None
        batches = decode((keeping.kept_in / "batches").read_bytes())
        assert text == b"".join(record.value + b"\n" for columns in batches for record in columns)
