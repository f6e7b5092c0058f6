"""Tests of records whose fields have extreme values, printed by each command and in each format."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.doubles.ends_of_records import MICROSECONDS, logs, write_logs
from tests.topicfs.conftest import Topicfs
from topicfs.storage.model import LATEST_TIMESTAMP

NAMES = list(logs())
LATEST, LATER = f"time{LATEST_TIMESTAMP:+d}".replace("+", "p"), f"timep{MICROSECONDS}"
EARLIEST = f"time{-(2**63)}"
MAX_MICROSECONDS = (2**63 - 1) // 1000 * 1000
"""The last time that Arrow and Spark can represent, in microseconds, rounded down to whole milliseconds."""


@pytest.fixture
def ends(directory: Path, topicfs: Topicfs) -> Topicfs:
    write_logs(directory)
    return topicfs


@pytest.mark.parametrize("name", NAMES)
def test_every_command_prints_what_a_log_has(name: str, ends: Topicfs):
    """Each command accepts every record that a broker can write."""
    paths = ("log", "log.kv", "log.json", "log.batch", "status", "earliest.json", "latest.json", "@0-.json")
    commands = [
        *(["cat", f"{name}/0/{path}"] for path in paths),
        *(["cat", f"{name}/{path}"] for path in ("status", "log.json")),
        *(["cat", "--format", each, f"{name}/0/log"] for each in ("csv", "arrow", "parquet", "%T %o %s\\n")),
        ["topics", "describe", name],
        ["topics", "list"],
        ["explain", f"{name}/0/{logs()[name][0]}"],
        ["maintain", "--dry-run"],
        ["dump", *map(str, Path("data", f"{name}-0").glob("*.log"))],
        ["append", f"{name}/0"],
    ]
    for command in commands:
        ran = ends(*command)
        assert (0, False) == (ran.status, b"unexpected" in ran.errors), (command, ran.errors)


def test_a_check_finds_no_damage_at_the_ends(ends: Topicfs):
    """`check` accepts a broker's files with extreme values, even after an engine has opened the directory."""
    ends("append", f"{LATEST}/0")
    found = ends("check", "data")
    assert 0 == found.status, found.text


def test_arrow_and_parquet_have_the_nearest_time_that_they_can_tell(ends: Topicfs):
    """Arrow and Parquet have the nearest time that they can represent, in the year 294247. Other columns are exact."""
    for name, shown in {
        LATEST: MAX_MICROSECONDS,
        LATER: MICROSECONDS * 1000,
        EARLIEST: -MAX_MICROSECONDS,
    }.items():
        stream = pa.ipc.open_stream(ends("cat", "--format", "arrow", f"{name}/0/log").output).read_all()
        parquet = pq.read_table(io.BytesIO(ends("cat", "--format", "parquet", f"{name}/0/log").output))
        for table in (stream, parquet):
            assert [0, 1, 2] == table.column("offset").to_pylist()
            assert shown == table.column("timestamp").cast(pa.int64())[0].as_py()


def test_text_has_every_time_as_it_is(ends: Topicfs):
    """Text formats show timestamps in milliseconds. CSV does so only for those that no date can represent."""
    for name, time in {LATEST: LATEST_TIMESTAMP, LATER: MICROSECONDS, EARLIEST: -(2**63)}.items():
        assert f"{time}\n" == ends("cat", "--format", "%T\\n", f"{name}/0/0").text
        assert str(time) in ends("cat", f"{name}/0/0.json").text
        assert str(time) in ends("cat", "--format", "csv", f"{name}/0/0").text
    assert f" {LATEST_TIMESTAMP} " in ends("topics", "describe", LATEST).text
    assert f"last_timestamp {LATEST_TIMESTAMP}\n" in ends("cat", f"{LATEST}/0/status").text
