"""Views of a log that is compacted while they are open: new views are right, old views continue or fail."""

from __future__ import annotations

import pytest

from tests.doubles.logs import DIRECTORY, LogOnDisk
from topicfs.fusefs.forms import JSON, KV, VALUES
from topicfs.fusefs.views.reader import ViewReader
from topicfs.fusefs.views.records import earliest_offset, find_record, latest_offset
from topicfs.fusefs.views.view import PartitionViews
from topicfs.fusefs.views.view_file import ViewStore
from topicfs.storage.codec.records import encode
from topicfs.storage.compaction.cleaner import clean, cleaning_params
from topicfs.storage.compaction.selection import plan
from topicfs.storage.errors import SegmentDeletedError
from topicfs.storage.model import Offset, Record, Timestamp

KEYS = 5
RECORDS = 200


class Compacted:
    """A log whose records have five keys in turn, with one record per batch and ten records per segment."""

    def __init__(self) -> None:
        self.on_disk = LogOnDisk(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
        self.log = self.on_disk.log
        for number in range(RECORDS):
            self.put(number)
            if number % 10 == 9:
                self.log.appender.roll()

    def put(self, number: int) -> None:
        self.log.append(
            encode([Record(Offset(0), Timestamp(1000), b"k%d" % (number % KEYS), value_of(number))])
        )

    def clean(self) -> None:
        now = Timestamp(self.on_disk.clock.now)
        clean(self.log, plan(cleaning_params(self.log, None, now)), now=now)


def value_of(number: int) -> bytes:
    return b"%d" % number * (1 + number % 7)


def lines(numbers) -> bytes:
    return b"".join(value_of(number) + b"\n" for number in numbers)


SURVIVORS = range(RECORDS - KEYS, RECORDS)


@pytest.fixture
def compacted() -> Compacted:
    return Compacted()


@pytest.mark.parametrize("form", [VALUES, KV, JSON], ids=lambda form: form.suffix or "log")
def test_a_new_view_shows_what_is_left(compacted, form):
    """A view that is opened after a compaction shows the records that remain."""
    views = PartitionViews(compacted.log)
    before = views.whole(form)
    assert before.size > 0
    compacted.clean()
    after = views.whole(form)
    expected = PartitionViews(compacted.log).whole(form)
    assert after is not before
    assert after.size == expected.size < before.size
    assert ViewReader(after).read(0, 10**6) == ViewReader(expected).read(0, 10**6)


def test_ranges_skip_what_was_removed(compacted):
    """A range that is opened after a compaction shows those of its records that remain."""
    views = PartitionViews(compacted.log)
    assert ViewReader(views.range(VALUES, Offset(180), Offset(198))).read(0, 10**6) == lines(range(180, 198))
    compacted.clean()
    view = views.range(VALUES, Offset(180), Offset(198))
    assert (view.size, ViewReader(view).read(0, 10**6)) == (
        len(lines(range(195, 198))),
        lines(range(195, 198)),
    )
    assert 0 == views.range(VALUES, Offset(0), Offset(100)).size


def test_a_reader_reads_on_over_a_cleaning(compacted):
    """A reader that continues during a compaction gets each remaining record once, and then new records."""
    view = PartitionViews(compacted.log).whole(VALUES)
    half = len(lines(range(100)))
    reader = ViewReader(view)
    first = reader.read(0, half)
    compacted.clean()
    compacted.put(RECORDS)
    rest = b""
    while part := reader.read(half + len(rest), 4096):
        rest += part
    assert first == lines(range(100))
    assert rest.endswith(lines([*SURVIVORS, RECORDS]))


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "range"])
def test_a_jump_to_an_old_position_fails(compacted, whole, monkeypatch):
    """In a view from before a compaction, reading on works. A jump fails, because the positions have changed."""
    monkeypatch.setattr("topicfs.fusefs.views.rendering.FIRST_FETCH_BYTES", 200)
    views = PartitionViews(compacted.log)
    view = views.whole(VALUES) if whole else views.range(VALUES, Offset(20), Offset(190))
    assert view.measure()
    reader = ViewReader(view)
    assert reader.read(0, 10)
    compacted.clean()
    assert view.outdated
    for old in (reader, ViewReader(view)):
        with pytest.raises(SegmentDeletedError):
            old.read(300, 10)
    assert reader.read(10, 5)


def test_a_cleaning_in_the_middle_of_a_jump_is_noticed(compacted, monkeypatch):
    """If a compaction runs between a search for a position and the read at this position, the read fails."""
    view = PartitionViews(compacted.log).whole(VALUES)
    assert view.measure()
    place_at = type(view).place_at

    def place_then_clean(self, position):
        place = place_at(self, position)
        compacted.clean()
        return place

    monkeypatch.setattr(type(view), "place_at", place_then_clean)
    with pytest.raises(SegmentDeletedError):
        ViewReader(view).read(300, 10)


def test_stored_views_of_rewritten_segments_are_not_used(compacted):
    """Stored views of segments that were rewritten are not used."""
    store = ViewStore(DIRECTORY, compacted.on_disk.disk)
    views = PartitionViews(compacted.log, store=store)
    assert views.whole(VALUES).measure()
    views.remember()
    remembered = [name for name in compacted.on_disk.names() if name.endswith(".view")]
    assert len(remembered) > 10
    compacted.clean()
    again = PartitionViews(compacted.log, store=ViewStore(DIRECTORY, compacted.on_disk.disk)).whole(VALUES)
    assert again.measure()
    assert again.size == len(lines(SURVIVORS))
    assert ViewReader(again).read(5, 10**6) == lines(SURVIVORS)[5:]


def test_single_records_are_there_or_not(compacted):
    """After a compaction, only the records that remain are found."""
    compacted.clean()
    found = [n for n in range(RECORDS) if find_record(compacted.log, Offset(n)) is not None]
    assert found == list(SURVIVORS)
    assert (earliest_offset(compacted.log), latest_offset(compacted.log)) == (SURVIVORS[0], SURVIVORS[-1])
