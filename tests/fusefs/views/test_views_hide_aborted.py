"""Aborted transactions through views, selectors and markers: as if they had never been written."""

from __future__ import annotations

import pytest

from tests.doubles.logs import Transactions
from tests.doubles.records import batch
from topicfs.fusefs.forms import JSON, VALUES
from topicfs.fusefs.selectors import parse, resolve
from topicfs.fusefs.views.decoded_fetch import Damage, decoded
from topicfs.fusefs.views.reader import ViewReader
from topicfs.fusefs.views.records import earliest_offset, find_record, latest_offset
from topicfs.fusefs.views.sparse_index import Entry
from topicfs.fusefs.views.view import PartitionViews
from topicfs.storage.codec.batch import scan
from topicfs.storage.model import Isolation, Offset

NOW = 1_700_000_000_000


@pytest.fixture
def log():
    """Offsets: 0 aborted, 1 plain, 2 committed, 3 aborted, 4 abort, 5 commit, 6 aborted, 7 abort."""
    made = Transactions()
    made.write(b"a0", pid=1)
    made.log.append(batch(b"p1", timestamp=NOW))
    made.write(b"c2", pid=2)
    made.write(b"a3", pid=1)
    made.end(pid=1, commit=False)
    made.end(pid=2, commit=True)
    made.write(b"a6", pid=1)
    made.end(pid=1, commit=False)
    return made.log


def whole(log, form=VALUES, isolation=Isolation.READ_COMMITTED):
    view = PartitionViews(log, isolation=isolation).whole(form)
    assert view.measure()
    text = ViewReader(view).read(0, 10_000)
    assert view.size == len(text)
    return text


def test_the_whole_view_shows_committed_records_alone(log):
    """Its size counts what it shows, in every form."""
    assert b"p1\nc2\n" == whole(log)
    assert 2 == whole(log, JSON).count(b'"payload"')


def test_read_uncommitted_shows_everything_but_markers(log):
    """--isolation read_uncommitted."""
    assert b"a0\np1\nc2\na3\na6\n" == whole(log, isolation=Isolation.READ_UNCOMMITTED)


def test_single_records_of_aborted_transactions_are_nowhere(log):
    """Their offsets are as if compaction had removed them."""
    found = [offset for offset in range(8) if find_record(log, Offset(offset)) is not None]
    assert [1, 2] == found


def test_the_first_and_the_last_visible_record(log):
    """earliest and latest name committed records."""
    assert (1, 2) == (earliest_offset(log), latest_offset(log))


def test_counting_from_the_end_counts_visible_records(log):
    """-1 is the last committed record, whatever was aborted behind it."""
    place = resolve(parse("-1"), log)
    view = PartitionViews(log).range(VALUES, place.start_offset, place.end_offset)
    view.measure()
    assert b"c2\n" == ViewReader(view).read(0, 100)


def test_an_open_transaction_holds_back_what_comes_after(log):
    """Nothing beyond its first record shows until it is decided; then all of it at once."""
    made = Transactions()
    made.log.append(batch(b"p0", timestamp=NOW))
    made.write(b"t1", pid=1)
    made.log.append(batch(b"p2", timestamp=NOW))
    view = PartitionViews(made.log).whole(VALUES)
    assert b"p0\n" == ViewReader(view).read(0, 100)
    made.end(pid=1, commit=True)
    assert b"p0\nt1\np2\n" == ViewReader(view).read(0, 100)


def test_damage_to_what_is_hidden_costs_a_range_behind_it_nothing():
    """Though the whole view, which was measured before, knows no place between the two: the range's first is its own."""
    made = Transactions(index_interval_bytes=0)
    made.write(b"hidden", pid=1)
    made.end(pid=1, commit=False)
    made.log.append(batch(b"first", timestamp=NOW))
    made.log.append(batch(b"second", timestamp=NOW))
    views = PartitionViews(made.log)
    assert views.whole(VALUES).measure()
    behind = views.range(VALUES, Offset(2), None)
    data = bytearray(made.on_disk.content("00000000000000000000.log"))
    data[8] ^= 1  # of the first batch's length
    made.on_disk.write("00000000000000000000.log", bytes(data))
    at = len(b"first\n")
    assert Entry(0, Offset(2)) == behind.place_at(at)
    assert b"second\n" == ViewReader(behind).read(at, 100)


@pytest.fixture
def with_damage():
    """Offsets 0 aborted, 1 abort, 2 plain, 3 committed, 4 commit, 5 aborted, 6 plain, 7 aborted, 8 abort, 9 plain.

    All but the last one of producer 1; those at 2 and 6 are made damaged by the tests.
    """
    made = Transactions()
    made.write(b"a0", pid=1)
    made.end(pid=1, commit=False)
    made.log.append(batch(b"p2", timestamp=NOW))
    made.write(b"c3", pid=1)
    made.end(pid=1, commit=True)
    made.write(b"a5", pid=1)
    made.log.append(batch(b"p6", timestamp=NOW))
    made.write(b"a7", pid=1)
    made.end(pid=1, commit=False)
    made.log.append(batch(b"p9", timestamp=NOW))
    return made.log


@pytest.mark.parametrize("damaged", [(), (2,), (6,), (2, 6)])
def test_what_is_aborted_stays_so_behind_damage(with_damage, damaged):
    """And no more than that: a transaction that ended before it does not hide the producer's next one."""
    fetched = with_damage.read(Offset(0), max_bytes=10**6)
    data = bytearray(fetched.data)
    for header in scan(data):
        if header.base_offset in damaged:
            data[header.end_position - 2] ^= 1
    fetched = decoded(
        with_damage,
        Offset(0),
        fetched._replace(data=memoryview(data)),
        isolation=Isolation.READ_COMMITTED,
    )
    shown = [
        piece.offset if isinstance(piece, Damage) else piece.offsets.tolist() for piece in fetched.pieces
    ]
    records = [offset for piece in shown if isinstance(piece, list) for offset in piece]
    assert [offset for offset in (2, 3, 6, 9) if offset not in damaged] == records
    assert list(damaged) == [piece for piece in shown if isinstance(piece, int)]
