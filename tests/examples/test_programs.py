"""Tests of the programs in examples/ that read a topic as columns, and of the code in the API's page."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import topicfs

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shop(tmp_path) -> Path:
    """A data directory whose topic `orders` has records with two keys, from yesterday and from last year."""
    yesterday = datetime.now(UTC).replace(hour=3, minute=30) - timedelta(days=1)
    with topicfs.open(tmp_path / "data") as topics:
        orders = topics.create("orders", partitions=2, config={"retention.ms": "-1"})
        orders.append(b'{"amount":10}', key=b"carl", timestamp=yesterday - timedelta(days=365))
        for number, key in enumerate((b"anna", b"carl", b"anna", b"anna")):
            orders.append(b'{"amount":%d}' % number, key=key, timestamp=yesterday + timedelta(hours=number))
    return tmp_path / "data"


def run(name: str, *words: object) -> str:
    """Return the output of an example."""
    command = [sys.executable, ROOT / "examples" / name, *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (0, "") == (ran.returncode, ran.stderr)
    return ran.stdout


def test_sql_of_duckdb(shop):
    """The DuckDB example prints the keys since yesterday, the most frequent first."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    assert "anna\t3\ncarl\t1\n" == run("query_with_duckdb.py", shop, "orders")


def test_a_frame_of_polars(shop):
    """The Polars example prints the amounts of all records by key."""
    pytest.importorskip("polars", reason="polars is not installed")
    assert "anna\t5\ncarl\t11\n" == run("frame_of_polars.py", shop, "orders")


def test_a_frame_of_pandas(shop):
    """The pandas example prints yesterday's records of one key."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    assert "03 h\t1\n05 h\t1\n06 h\t1\n" == run("frame_of_pandas.py", shop, "orders", "anna")


def test_the_page_of_the_api_runs(tmp_path, monkeypatch, capsys):
    """Each Python block of docs/api.md, run in order, prints what its comments say."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "api.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) > 5
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        missing = [
            name
            for name in re.findall(r"(?m)^(?:import|from) (duckdb|polars|pandas|confluent_kafka)", block)
            if not _is_there(name)
        ]
        if not missing:
            exec(compile(block, "docs/api.md", "exec"), names)
            printed = re.findall(r"(?m)# -> (.*)", block)
            assert printed == capsys.readouterr().out.splitlines(), block


def _is_there(name: str) -> bool:
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def test_the_page_names_all_that_is_public():
    """docs/api.md names each public name of the API and each of its public methods."""
    page = (ROOT / "docs" / "api.md").read_text()
    methods = {
        f"{name}.{method}"
        for name in ("Topics", "Topic", "Partition", "Group", "Member", "Server")
        for method, value in vars(getattr(topicfs, name)).items()
        if not method.startswith("_") and (callable(value) or isinstance(value, property))
    }
    assert [] == sorted(method for method in methods if f"`{method}" not in page)
    assert [] == [
        name for name in topicfs.__all__ if f"topicfs.{name}" not in page and f"`{name}" not in page
    ]
