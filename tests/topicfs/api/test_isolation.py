"""Tests of reads of transactional records at each isolation level."""

from __future__ import annotations

import pytest

import topicfs
from tests.doubles.logs import Transactions
from topicfs.api.cursor import Cursor
from topicfs.storage.model import Isolation, Offset


@pytest.fixture
def made():
    """A log: 0 aborted, 1 committed, 2 abort marker, 3 commit marker, 4 aborted, 5 abort marker, 6 undecided."""
    made = Transactions()
    made.write(b"a0", pid=1)
    made.write(b"c1", pid=2)
    made.end(pid=1, commit=False)
    made.end(pid=2, commit=True)
    made.write(b"a4", pid=1)
    made.end(pid=1, commit=False)
    made.write(b"o6", pid=3)
    return made


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [("read_committed", [b"c1"]), ("read_uncommitted", [b"a0", b"c1", b"a4", b"o6"])],
)
def test_read_committed_shows_only_committed_records(made, isolation, expected):
    """With read_committed, `records`, `follow`, `arrow` and reads of the last records return only committed records."""
    partition = topicfs.Partition(made.log, lambda: None, internal=False, polls=True)
    assert expected == [record.value for record in partition.records(isolation=isolation)]
    assert expected == [record.value for record in partition.follow(isolation=isolation, timeout=0)]
    assert expected[-1:] == [record.value for record in partition.records(-1, isolation=isolation)]
    assert expected == partition.arrow(isolation=isolation).read_all()["value"].to_pylist()


def test_reading_on_passes_markers_and_stops_before_an_open_transaction(made):
    """Reads skip markers and stop at an open transaction; its records are returned after the commit."""
    cursor = Cursor(made.log, Offset(0), Isolation.READ_COMMITTED)
    assert ([b"c1"], 2) == ([record.value for record in cursor.next()], cursor.next_offset)
    assert ([], 6) == (cursor.next(), cursor.next_offset)
    made.end(pid=3, commit=True)
    assert ([b"o6"], 7) == ([record.value for record in cursor.next()], cursor.next_offset)
    assert ([], 8) == (cursor.next(), cursor.next_offset)
