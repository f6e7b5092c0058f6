"""Tests that the table that maps Kafka's tests to topicfs's tests is complete and true."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parents[1]
TABLE = Path(__file__).parent / "KAFKA_ROWS.md"
ROWS = 212

_ROW = re.compile(r"\| (\d+) \| (\w+: [\w, ]+) \| ([AB]) \| (.+) \|")
_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
_NAMED = re.compile(r"Rows? (\d+(?:(?:, | and )\d+)*): ")
REASON = "— "
"""The beginning of the last column in rows that name no test."""


class Row(NamedTuple):
    """A line of the table."""

    number: int
    priority: str
    ours: str

    @property
    def tests(self) -> list[tuple[str, str]]:
        return _TEST.findall(self.ours)


def table() -> list[Row]:
    return [
        Row(int(found[1]), found[3], found[4])
        for line in TABLE.read_text().splitlines()
        if (found := _ROW.fullmatch(line))
    ]


@pytest.fixture(scope="module")
def named() -> list[tuple[int, tuple[str, str]]]:
    """Return the row numbers in the docstrings of tests, each with its test."""
    return sorted(_rows_named_by_tests())


def _rows_named_by_tests() -> Iterator[tuple[int, tuple[str, str]]]:
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if _NAMED.search(text) else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                named = _NAMED.match(ast.get_docstring(node) or "")
                for number in re.findall(r"\d+", named[1]) if named else ():
                    yield int(number), (str(path.relative_to(TESTS)), node.name)


def test_every_row_is_in_the_table_once():
    """The table has the rows 1 to 212 in order, and no other line looks like a row."""
    assert list(range(1, ROWS + 1)) == [row.number for row in table()]
    lines = [line for line in TABLE.read_text().splitlines() if re.match(r"\| \d", line)]
    assert ROWS == len(lines)


@pytest.mark.parametrize("row", table(), ids=lambda row: str(row.number))
def test_every_row_leads_to_tests_or_says_why_not(row, named):
    """Each test named in the table exists and names its row. A row of priority A always has a test."""
    if row.ours.startswith(REASON):
        assert row.priority != "A"
        assert len(row.ours) > len(REASON) + 20
        return
    assert row.tests
    assert "<br>".join(f"`{path}::{name}`" for path, name in row.tests) == row.ours
    assert set(row.tests) <= {test for number, test in named if number == row.number}


def test_no_test_names_a_row_that_the_table_does_not_lead_from(named):
    """Each test that names a row is listed in that row of the table."""
    in_table = {(row.number, test) for row in table() for test in row.tests}
    assert [] == [one for one in named if one not in in_table]
