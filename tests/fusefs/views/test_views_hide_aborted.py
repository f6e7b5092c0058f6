"""Views, selectors and links do not show the records of aborted transactions."""

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
    """A log: 0 aborted, 1 plain, 2 committed, 3 aborted, 4 abort marker, 5 commit marker, 6 aborted, 7 abort marker."""
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
    """A read_committed view shows and counts only plain and committed records, in each form."""
    assert b"p1\nc2\n" == whole(log)
    assert 2 == whole(log, JSON).count(b'"payload"')


def test_read_uncommitted_shows_everything_but_markers(log):
    """A read_uncommitted view shows all records, but no markers."""
    assert b"a0\np1\nc2\na3\na6\n" == whole(log, isolation=Isolation.READ_UNCOMMITTED)


def test_single_records_of_aborted_transactions_are_nowhere(log):
    """Records of aborted transactions are not found by their offsets."""
    found = [offset for offset in range(8) if find_record(log, Offset(offset)) is not None]
    assert [1, 2] == found


def test_the_first_and_the_last_visible_record(log):
    """`earliest` and `latest` name visible records."""
    assert (1, 2) == (earliest_offset(log), latest_offset(log))


def test_counting_from_the_end_counts_visible_records(log):
    """`-1` is the last visible record, even if records of aborted transactions follow it."""
    place = resolve(parse("-1"), log)
    view = PartitionViews(log).range(VALUES, place.start_offset, place.end_offset)
    view.measure()
    assert b"c2\n" == ViewReader(view).read(0, 100)


def test_an_open_transaction_holds_back_what_comes_after(log):
    """Records from the start of an open transaction on are shown after the transaction has ended."""
    made = Transactions()
    made.log.append(batch(b"p0", timestamp=NOW))
    made.write(b"t1", pid=1)
    made.log.append(batch(b"p2", timestamp=NOW))
    view = PartitionViews(made.log).whole(VALUES)
    assert b"p0\n" == ViewReader(view).read(0, 100)
    made.end(pid=1, commit=True)
    assert b"p0\nt1\np2\n" == ViewReader(view).read(0, 100)


def test_damage_in_a_hidden_batch_has_no_effect_on_a_later_range():
    """Damage in a hidden batch before a range has no effect on the range.

    The view of the whole log has an index entry only before the damaged batch. The range has its own entry at its
    start.
    """
    made = Transactions(index_interval_bytes=0)
    made.write(b"hidden", pid=1)
    made.end(pid=1, commit=False)
    made.log.append(batch(b"first", timestamp=NOW))
    made.log.append(batch(b"second", timestamp=NOW))
    views = PartitionViews(made.log)
    assert views.whole(VALUES).measure()
    behind = views.range(VALUES, Offset(2), None)
    data = bytearray(made.on_disk.content("00000000000000000000.log"))
    data[8] ^= 1  # This byte belongs to the length of the first batch.
    made.on_disk.write("00000000000000000000.log", bytes(data))
    at = len(b"first\n")
    assert Entry(0, Offset(2)) == behind.place_at(at)
    assert b"second\n" == ViewReader(behind).read(at, 100)


@pytest.mark.parametrize("damaged", [(), (2,), (6,), (2, 6)])
def test_aborted_records_after_a_damaged_batch_stay_hidden(damaged):
    """After a damaged batch, exactly the records of aborted transactions are hidden.

    The log has ten offsets, with markers at 1, 4 and 8. Offset 0 is aborted, 2 plain, 3 committed, 5 aborted, 6 plain,
    7 aborted and 9 plain. Producer 1 wrote all transactions.
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
    fetched = made.log.read(Offset(0), max_bytes=10**6)
    data = bytearray(fetched.data)
    for header in scan(data):
        if header.base_offset in damaged:
            data[header.end_position - 2] ^= 1
    fetched = decoded(
        made.log,
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
