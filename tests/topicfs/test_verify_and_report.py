"""Tests of `topicfs pipeline verify` and `report`: their output, exit statuses and usage errors."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.topicfs.conftest import assert_refused

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LOG_DIRS = ROOT / "tests" / "vectors" / "kafka" / "log-dirs"


def test_a_cluster_has_no_files_to_verify(topicfs):
    """`verify` of a cluster is refused before anything starts."""
    found = topicfs("pipeline", "verify", "--data", "kafka://localhost:9092")
    assert_refused(found, "kafka://localhost:9092: verify reads log files; run it on the brokers' machines")


@pytest.mark.spark
@pytest.mark.usefixtures("kept")
def test_a_broken_directory_is_verified_and_reported_on(topicfs, tmp_path):
    """`verify` prints damaged segments with the findings of `check`, and ends with status 1.

    `report` leaves out damaged batches.
    """
    data = tmp_path / "data"
    shutil.copytree(LOG_DIRS, data)
    log = data / "g-none-0" / f"{132:020d}.log"
    content = bytearray(log.read_bytes())
    content[700] ^= 1
    log.write_bytes(content)

    found = topicfs("pipeline", "verify", "--only-wrong")
    assert 1 == found.status
    (line,) = found.text.splitlines()
    *fields, wrong = line.split("\t")
    assert [str(data), "g-none", "0", "132", str(log.stat().st_size), "11"] == fields[:6]
    assert "2026-01-01T00:04:26.700Z" == fields[9]
    assert wrong.startswith(f"{log}: position 609: checksum is 0x")
    assert found.errors.endswith(b"1 finding in 18 segments\n")

    found = topicfs("pipeline", "report", "g-none,g-zstd", "--output", "page.html")
    assert 0 == found.status
    rows = [line.split("\t") for line in found.text.splitlines()]
    assert [["g-none", "0", "3"], ["g-zstd", "0", "1"]] == [[*row[:2], row[3]] for row in rows]
    assert ["400", "2026-01-01T00:00:00.000Z", "2026-01-01T00:06:39.000Z", ""] == [rows[1][2], *rows[1][6:]]
    assert "<strong>1 damaged batch</strong>" in (tmp_path / "page.html").read_text()
