"""Tests that run the Python lines of the README and of docs/scaling.md unchanged."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from tests.doubles.engines import append_lines, read_lines
from topicfs.replication import open_engine

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


def blocks(document: str) -> list[str]:
    """Return the Python blocks of a document."""
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), flags=re.DOTALL)


def append(data: Path, text: str) -> None:
    with contextlib.closing(open_engine(data)) as engine:
        for topic in ("orders", "text"):
            append_lines(engine.partition(topic, 0), text)


@pytest.fixture
def data(tmp_path):
    """Put a line into `orders` and one into `text`, and make an empty topic `copy`."""
    with contextlib.closing(open_engine(tmp_path / "data")) as engine:
        for topic in ("copy", "orders", "text"):
            engine.create_topic(topic)
    append(tmp_path / "data", "old\n")
    return tmp_path / "data"


@pytest.mark.parametrize("document", ["README.md", "docs/scaling.md"])
def test_the_first_lines_shown_stream_into_another_topic(spark, data, document):
    """The documented lines, with only the paths replaced, stream new records into another topic."""
    block = blocks(document)[0]
    for shown in ('"data"', '"/srv/topics"'):
        block = block.replace(shown, f'"{data}"')
    for shown in ('"state"', '"/srv/checkpoints/copy"'):
        block = block.replace(shown, f'"{data}.state"')
    exec(block, {"spark": spark})
    [query] = spark.streams.active
    try:
        query.processAllAvailable()
        append(data, "new\n")
        query.processAllAvailable()
    finally:
        query.stop()
    with contextlib.closing(open_engine(data, read_only=True)) as engine:
        assert ["new"] == read_lines(engine.partition("copy", 0))


def test_the_readmes_first_line_reads_what_is_there(spark, data):
    """The README's first line reads all records."""
    line = blocks("README.md")[0].splitlines()[0].replace('"data"', f'"{data}"')
    assert [b"old"] == [row.value for row in eval(line, {"spark": spark}).collect()]
