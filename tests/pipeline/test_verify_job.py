"""Tests of verification as a Spark job: tasks divide the work, and a row reports on each segment."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.places.place import place_of
from topicfs.storage.disk.native import NativeFileSystem

pytest.importorskip("pyspark")

from topicfs.pipeline.jobs.verify import VerifyOptions, verify

pytestmark = pytest.mark.spark

LOG_DIRS = Path(__file__).parents[1] / "vectors" / "kafka" / "log-dirs"


def test_many_tasks_find_what_one_check_finds(spark, tmp_path):
    """Many tasks find the same damage as a single check, here in two segments. A glob names the directory."""
    data = tmp_path / "data"
    shutil.copytree(LOG_DIRS, data)
    log = data / "g-none-0" / f"{132:020d}.log"
    for path, position in ((log, 700), (data / "g-gzip-0" / f"{0:020d}.log", 100)):
        content = bytearray(path.read_bytes())
        content[position] ^= 1
        path.write_bytes(content)
    expected = sorted(
        (str(finding.file), finding.position, finding.cause)
        for finding in DirectoryCheck(data, NativeFileSystem(read_only=True)).findings()
    )
    assert 2 == len(expected)
    place = place_of(str(tmp_path / "d*"))
    each_alone, all_in_one = (
        verify(spark, VerifyOptions(place=place, task_bytes=task_bytes)).collect()
        for task_bytes in (1, 1 << 30)
    )
    assert each_alone == all_in_one
    assert expected == sorted(tuple(one) for row in each_alone for one in row.wrong)
    (row,) = [row for row in each_alone if (row.topic, row.segment) == ("g-none", 132)]
    assert (str(data), 0, log.stat().st_size, 11, ["none"]) == (
        row.directory,
        row.partition,
        row.bytes,
        row.batches,
        row.codecs,
    )
    assert [(str(log), 609)] == [(one.file, one.position) for one in row.wrong]
    assert 1_767_225_866_700 == row.largest_timestamp


def test_a_place_without_files_is_refused(spark, tmp_path):
    """A cluster and a data directory without partitions are refused."""
    with pytest.raises(PipelineError, match="kafka://host:9092: verify reads log files"):
        verify(spark, VerifyOptions(place=place_of("kafka://host:9092")))
    shutil.copy(LOG_DIRS / "meta.properties", tmp_path)
    assert [] == verify(spark, VerifyOptions(place=place_of(str(tmp_path)))).collect()
