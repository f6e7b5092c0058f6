"""Tests that `docs/differences.md` has each difference in one line, with an existing test as evidence."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = [
    line
    for line in (ROOT / "docs" / "differences.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| articles say", "| a broker |"))
]

_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
SUBJECTS = (
    "range assignment",
    "high watermark is the last",
    "`long` relative offset",
    "`segment.ms` old",
    "above `segment.bytes`",
    "time index is walked",
    "batch header",
    "offset 140",
    "cleaner point",
    "attribute bits",
    "CRC covers",
    "size of one byte",
    "CreateTime",
    "to assign offsets",
    "round-robin",
    "ZooKeeper",
    "index entry 38",
    "need no lock",
    "one copy",
    "log start is",
    "truncates its logs",
    "`acks=0`",
    "zero copy",
    "mapped into memory",
    "`hashCode`",
    "without a producer's id",
    "`replica.lag.max.messages`",
    "`ConcurrentSkipListMap`",
    "incomplete batch",
)
"""Words for each required difference. The first column of the line about this difference contains the words."""


def test_every_well_known_difference_is_in_the_page():
    """The page has each required difference exactly once."""
    for subject in SUBJECTS:
        assert 1 == sum(subject in line.split("|")[1] for line in LINES), subject


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split("|")[1].strip()[:40])
def test_every_difference_has_a_test_that_shows_it(line):
    """Each line has three columns, of which the last names an existing test."""
    columns = [column.strip() for column in line.strip("|").split(" | ")]
    assert 3 == len(columns)
    evidence = _TEST.findall(columns[2])
    assert evidence
    for path, name in evidence:
        functions = {
            node.name
            for node in ast.walk(ast.parse((ROOT / path).read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name in functions
