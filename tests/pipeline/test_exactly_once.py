"""Whatever dies in a streaming query, the topic has each input once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from storage.disk.names import COMMITTED_WRITES, parse_write_file
from storage.manager import open_engine
from tests.doubles.engines import read_lines
from tests.pipeline.conftest import absent

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(absent() is not None and not os.environ.get("CI"), reason=str(absent())),
]

ROOT = Path(__file__).parents[2]
FILES_A_RUN = 6
"""Micro-batches that every run of the driver finds to do: more than it can before it is killed."""
LINES = 200
KILLS = 3
DEADLINE_S = 120


@pytest.fixture
def folder(tmp_path):
    """A folder for input files, and a data directory with a topic of two partitions."""
    (tmp_path / "input").mkdir()
    engine = open_engine(tmp_path / "data")
    engine.create_topic("lines", partitions=2)
    engine.close()
    return tmp_path


def add_files(folder: Path, numbers: range) -> None:
    """Input files with lines that are all different; each appears whole."""
    for number in numbers:
        text = "".join(f"file {number} line {line}\n" for line in range(LINES))
        begun = folder / f"{number}.begun"
        begun.write_text(text)
        begun.rename(folder / "input" / f"{number}.txt")


def start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """A driver in a process group of its own."""
    arguments = [str(folder / "input"), str(folder / "data"), str(folder / "checkpoint"), *options]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.streaming_driver", *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_LOCAL_DIRS": str(folder / "spark"),
        },
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def committed(folder: Path) -> int:
    """How many micro-batches are."""
    try:
        queries = json.loads((folder / "data" / COMMITTED_WRITES).read_bytes())["queries"]
    except FileNotFoundError:
        return 0
    return 1 + max(query["batch"] for query in queries.values())


def kill_at_a_random_point(folder: Path, chance: random.Random) -> None:
    """Let the driver commit something more, and kill it and its JVM some moments later."""
    before = committed(folder)
    driver = start(folder)
    deadline = time.monotonic() + DEADLINE_S
    while committed(folder) == before:
        assert driver.poll() is None, "the driver ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(chance.uniform(0, 2))
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def records(folder: Path) -> list[str]:
    engine = open_engine(folder / "data", read_only=True)
    try:
        return [line for one in engine.topic("lines").partitions().values() for line in read_lines(one)]
    finally:
        engine.close()


def expected(files: int) -> list[str]:
    return sorted(f"file {number} line {line}" for number in range(files) for line in range(LINES))


def test_a_driver_that_is_killed_doubles_and_loses_nothing(folder):
    """SIGKILL of driver and JVM at random moments of micro-batches, then a run to the end."""
    chance = random.Random()
    for run in range(KILLS):
        add_files(folder, range(run * FILES_A_RUN, (run + 1) * FILES_A_RUN))
        kill_at_a_random_point(folder, chance)
        found = records(folder)
        assert len(set(found)) == len(found)
    assert start(folder).wait(DEADLINE_S) == 0
    assert expected(KILLS * FILES_A_RUN) == sorted(records(folder))
    assert [] == [path.name for path in (folder / "data").iterdir() if parse_write_file(path.name)]


def test_tasks_that_fail_after_writing_double_nothing(folder):
    """What a failed attempt staged is never appended."""
    add_files(folder, range(2))
    assert start(folder, "flaky").wait(DEADLINE_S) == 0
    assert expected(2) == sorted(records(folder))
    assert [] == [path.name for path in (folder / "data").iterdir() if parse_write_file(path.name)]
