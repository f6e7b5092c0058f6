"""Tests of jobs that are killed and run again: each record is written once, and nothing blocks the second run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from tests.doubles.waiting import wait_until
from tests.pipeline.conftest import ROOT
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.replication import open_engine
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.disk.names import WriteFileKind, parse_write_file
from topicfs.storage.disk.native import NativeFileSystem

pytest.importorskip("pyspark")

from topicfs.pipeline.jobs.archive import ArchiveOptions, archive, archived_rows
from topicfs.pipeline.jobs.restore.restore import RestoreOptions, restore

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),  # a session in addition to the shared one, on a busy machine
]

RECORDS = 4_000
"""Number of records in each of two partitions."""
ARCHIVE = """
import signal, sys
from pathlib import Path
from topicfs.pipeline.archiving.iceberg import IcebergCommits
from topicfs.pipeline.archiving.parquet import ParquetCommits
from topicfs.pipeline.jobs.archive import ArchiveOptions, archive
from topicfs.pipeline.session import SessionOptions, job_session

data, target, reached, format, moment = sys.argv[1:]

def stopping(commit):
    def committing(*arguments):
        if moment == "committed":
            commit(*arguments)
        if moment != "writing":
            Path(reached).touch()
            signal.pause()  # It is killed here.
        commit(*arguments)
    return committing

for commits in (ParquetCommits, IcebergCommits):
    commits.commit = stopping(commits.commit)
with job_session(SessionOptions("local[2]")) as spark:
    archive(spark, ArchiveOptions(path=data, topics="orders", target=Path(target), format=format))
"""
RESTORE = """
import signal, sys
from pathlib import Path
from topicfs.pipeline.jobs.restore.restore import RestoreOptions, restore
from topicfs.pipeline.session import SessionOptions, job_session
from topicfs.storage.staging.area import StagingArea

submit, rounds = StagingArea.submit, []

def submit_and_stop(*arguments):
    found = submit(*arguments)
    rounds.append(arguments)
    if len(rounds) == 3:
        Path(sys.argv[3]).touch()
        signal.pause()  # It is killed here.
    return found

StagingArea.submit = submit_and_stop
with job_session(SessionOptions("local[2]")) as spark:
    restore(spark, RestoreOptions(archive=Path(sys.argv[2]), path=sys.argv[1], round_bytes=20_000))
"""


@pytest.fixture
def data(tmp_path):
    """Make `orders` with distinct lines over two days."""
    with contextlib.closing(open_engine(tmp_path / "data")) as engine:
        for number, partition in engine.create_topic("orders", partitions=2).partitions().items():
            for part in range(10):
                lines = "".join(f"line {number} {part} {line}\n" for line in range(RECORDS // 10))
                for batch in encode_lines(lines.encode(), timestamp=1_767_225_000_000 + 100_000 * part):
                    partition.append(batch)
    return tmp_path / "data"


def killed(program, *arguments, when):
    """Run a program until `when` returns true, then kill the program and its JVM."""
    log = arguments[0].parent / "killed.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
    try:
        wait_until(
            lambda: process.poll() is not None or when(),
            f"it has come so far; see {log}",
            timeout_seconds=900,
        )
        assert when(), log.read_text()[-4000:]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def rows_of(spark, data):
    read = (
        spark.read.format("topicfs").options(path=str(data), subscribe="orders", includeHeaders="true").load()
    )
    return ordered(read)


def ordered(frame):
    """Return the frame's rows, sorted, as an Arrow table, because Arrow compares rows quickly."""
    columns = "partition", "offset", "key", "value", "timestamp", "timestampType", "headers"
    return frame.select(*columns).orderBy("partition", "offset").toArrow()


@pytest.mark.parametrize("moment", ["writing", "written", "committed"])
@pytest.mark.parametrize("kind", ["parquet", "iceberg"])
def test_an_archive_has_each_record_once(spark, data, tmp_path, kind, moment):
    """If an archive job is killed before, during or after a commit, the next run completes it without duplicates."""
    if kind == "iceberg":
        pytest.importorskip("pyiceberg")
    target, reached = tmp_path / "archive", tmp_path / "reached"
    written = {"writing": lambda: any(target.glob("topic=*/date=*/*.parquet"))}
    killed(ARCHIVE, data, target, reached, kind, moment, when=written.get(moment, reached.exists))
    options = ArchiveOptions(path=str(data), topics="orders", target=target, format=kind)
    for _ in range(2):
        told = archive(spark, options).collect()
        assert 2 * RECORDS == sum(row.records for row in told)
    assert rows_of(spark, data) == ordered(archived_rows(spark, target))


def test_a_restore_brings_each_record_once(spark, data, tmp_path):
    """The next run continues a restore that was killed in its third round, and leaves no file of a write."""
    target, saved = tmp_path / "target", tmp_path / "archive"
    target.mkdir()
    archive(spark, ArchiveOptions(path=str(data), topics="orders", target=saved))

    handed_in = tmp_path / "handed in"
    killed(RESTORE, target, saved, handed_in, when=handed_in.exists)
    told = restore(spark, RestoreOptions(archive=saved, path=str(target))).collect()
    assert 2 * RECORDS == sum(row.restored + row.already_there for row in told)
    assert any(row.already_there for row in told)
    assert rows_of(spark, data) == rows_of(spark, target)
    assert [] == list(DirectoryCheck(target, NativeFileSystem(read_only=True)).findings(lambda _: None))
    left = [file.kind for file in map(parse_write_file, os.listdir(target)) if file is not None]
    assert not set(left) & {WriteFileKind.REQUESTED, WriteFileKind.CLAIMED}
