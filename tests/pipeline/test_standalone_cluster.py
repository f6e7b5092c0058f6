"""Tests of a `topicfs pipeline` job on a master and two workers, as in docs/scaling.md."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

from tests.doubles.engines import append_lines, read_lines
from tests.pipeline.standalone_cluster import ROOT, standalone_cluster
from topicfs.replication import open_engine

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

REPLAY = [
    sys.executable,
    "-c",
    "from topicfs.main import main; main()",
    "pipeline",
    "replay",
    "orders",
    "copy",
]
LINES = [f"line {number}" for number in range(200)]


@pytest.fixture
def data(tmp_path):
    """Make a topic of four partitions with two hundred lines, and a topic of two partitions as the target."""
    with contextlib.closing(open_engine(tmp_path / "data")) as engine:
        engine.create_topic("copy", partitions=2)
        for number, partition in engine.create_topic("orders", partitions=4).partitions().items():
            append_lines(partition, "".join(f"{line}\n" for line in LINES[number::4]))
    return tmp_path / "data"


def test_both_workers_read_and_stage_and_the_driver_hands_in(data, tmp_path):
    """Both workers run tasks of a micro-batch, in processes that know only the path of the data directory."""
    with standalone_cluster(tmp_path / "cluster", workers=2) as cluster:
        place = ["--data", str(data), "--checkpoint", str(tmp_path / "state"), "--master", cluster.url]
        ran = subprocess.run(
            [*REPLAY, *place, *cluster.settings(cores=2)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (0, "orders\tcopy\t200\n") == (ran.returncode, ran.stdout), ran.stderr
        assert {"work-0", "work-1"} == set(cluster.tasks_by_worker())
    with contextlib.closing(open_engine(data, read_only=True)) as engine:
        copied = [line for number in (0, 1) for line in read_lines(engine.partition("copy", number))]
    assert sorted(LINES) == sorted(copied)
