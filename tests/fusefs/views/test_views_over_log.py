"""Views of a real log: rolls, deletion, restarts, damage and times have the same effects as in memory."""

from __future__ import annotations

import random

import pytest

from tests.doubles.logs import DIRECTORY, LogOnDisk
from tests.doubles.memory_partition import MemoryPartition
from tests.doubles.records import batch
from tests.fusefs.views.expected import content, found_in, read_all
from topicfs.fusefs.forms import FORMS, VALUES, Form
from topicfs.fusefs.selectors import SelectedRange, SelectorError, parse, resolve
from topicfs.fusefs.views import measure, rendering, sparse_index
from topicfs.fusefs.views.reader import ViewReader
from topicfs.fusefs.views.view import PartitionViews
from topicfs.fusefs.views.view_file import ViewStore
from topicfs.storage.codec.records import FoundRecord
from topicfs.storage.errors import CorruptionError, SegmentDeletedError
from topicfs.storage.model import Offset


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small limits, so that there are many entries and windows."""
    monkeypatch.setattr(sparse_index, "ENTRY_INTERVAL", 500)
    monkeypatch.setattr(measure, "MEASURE_STEP_BYTES", 3000)
    monkeypatch.setattr(rendering, "TEXT_WINDOW_BYTES", 2000)
    monkeypatch.setattr(rendering, "FIRST_FETCH_BYTES", 1000)


class Both:
    """A real log, and a partition in memory with the same records."""

    def __init__(self, count: int = 400) -> None:
        self.on_disk = LogOnDisk(internal_segment_bytes=4000)
        self.double = MemoryPartition()
        for number in range(count):
            self.append(number)

    def append(self, number: int) -> None:
        values = [b"value %d.%d" % (number, part) for part in range(1 + number % 3)]
        self.on_disk.log.append(batch(*values, key=b"k", timestamp=1000 * number))
        self.double.append(batch(*values, key=b"k", timestamp=1000 * number))

    def views(self) -> PartitionViews:
        store = ViewStore(self.on_disk.log.directory, self.on_disk.disk)
        return PartitionViews(self.on_disk.log, store=store)

    def view_files(self) -> list[str]:
        return [name for name in self.on_disk.names() if name.endswith(".view")]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.suffix or ".values")
def test_a_real_log_is_rendered_as_the_double_is(form: Form) -> None:
    """The view of a real log with many segments equals the view in memory, read in order and at random."""
    both = Both()
    assert len(both.on_disk.log.segments()) > 5
    view = both.views().whole(form)
    expected = content(both.double, form)
    assert view.measure()
    assert len(expected) == view.size
    assert expected == read_all(view, step=777)
    handle, generator = ViewReader(view), random.Random(3)
    for _ in range(200):
        position, size = generator.randrange(len(expected)), generator.randrange(1, 3000)
        assert expected[position : position + size] == handle.read(position, size)


def test_growth_is_seen_across_rolls() -> None:
    """Appends across rolls change the size, and reach a reader at the end."""
    both = Both(10)
    view = both.views().whole(VALUES)
    handle, seen = ViewReader(view), b""
    for number in range(10, 400):
        both.append(number)
        seen += handle.read(len(seen), 10_000)
        assert view.size == len(seen)
    assert content(both.double) == seen


def test_retention_removes_bytes_of_old_views_only() -> None:
    """After retention, old views keep their positions but not the deleted bytes; the view files are removed."""
    both = Both()
    views = both.views()
    old = views.whole(VALUES)
    assert old.measure()
    before = content(both.double)
    both.on_disk.log.replacer.delete_oldest_segments(3, "test")
    both.double.log_start_offset = both.on_disk.log.offsets().log_start_offset
    new = views.whole(VALUES)
    removed = len(before) - len(content(both.double))
    assert removed > 0
    assert (len(before), len(before) - removed) == (old.size, new.size)
    assert before[removed:] == read_all(new)
    with pytest.raises(SegmentDeletedError):
        ViewReader(old).read(removed - 1, 1)
    assert before[removed : removed + 99] == ViewReader(old).read(removed, 99)
    views.remember()
    assert [f"{base:020d}.view" for base in both.on_disk.base_offsets()] == both.view_files()


def test_the_log_start_inside_a_batch() -> None:
    """The log start can be inside a batch, also after a restart."""
    both = Both()
    views = both.views()
    assert views.whole(VALUES).measure()
    for start in (1, 2, 100, 333):
        both.on_disk.log.delete_records(Offset(start))
        view = views.whole(VALUES)
        assert content(both.double, start=start) == read_all(view)
    both.on_disk.reopen(log_start_offset=333)
    assert content(both.double, start=333) == read_all(both.views().whole(VALUES))


def test_a_restart_measures_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clean restart measures nothing again. View files do not disturb loading, even after a crash."""
    both = Both()
    views = both.views()
    assert views.whole(VALUES).measure()
    views.remember()
    assert len(both.on_disk.base_offsets()) == len(both.view_files())
    both.on_disk.reopen()
    view = both.views().whole(VALUES)
    monkeypatch.setattr(measure.Measure, "_pass_columns", None)
    assert view.measure()
    monkeypatch.undo()
    assert len(content(both.double)) == view.size
    both.on_disk.crash(keep=1.0)
    again = both.views().whole(VALUES)
    assert again.measure()
    assert content(both.double) == read_all(again)


def damaged_log(at: int) -> tuple[Both, FoundRecord]:
    """Return a log with a flipped bit in byte `at` of the batch of offset 90, and this offset's original record."""
    both = Both(100)
    found = found_in(both.on_disk.log, 90)
    name = f"{found.segment_base_offset:020d}.log"
    data = bytearray(both.on_disk.content(name))
    data[found.batch_position + at] ^= 0x40
    both.on_disk.write(name, bytes(data))
    return both, found


@pytest.mark.parametrize("at", [17, 27, 35, 43, 57, 61, 70])
def test_damage_on_disk_costs_its_batch_alone(at: int) -> None:
    """A flipped bit in records or header fields damages one batch; the error has file and position."""
    both, found = damaged_log(at)
    before = content(both.double, end=found.batch.base_offset)
    behind = content(both.double, start=found.batch.end_offset)
    view = both.views().whole(VALUES)
    assert view.measure()
    assert len(before + behind) == view.size
    assert before == ViewReader(view).read(0, len(before))
    assert behind == ViewReader(view).read(len(before), view.size)
    with pytest.raises(CorruptionError) as caught:
        ViewReader(view).read(len(before) - 1, 2)
    name = f"{found.segment_base_offset:020d}.log"
    assert (DIRECTORY / name, found.batch_position) == (caught.value.file, caught.value.position)


@pytest.mark.parametrize("at", [8, 11, 16, 23])
def test_damage_to_the_framing_of_a_batch_affects_only_its_segment(at: int) -> None:
    """Damage to the length, magic or last offset of a batch affects at most its segment."""
    both, found = damaged_log(at)
    before = content(both.double, end=found.batch.base_offset)
    next_segment = min(base for base in both.on_disk.base_offsets() if base > found.batch.base_offset)
    behind = content(both.double, start=next_segment)
    view = both.views().whole(VALUES)
    assert view.measure()
    assert before == ViewReader(view).read(0, len(before))
    assert behind == ViewReader(view).read(view.size - len(behind), view.size)
    with pytest.raises(CorruptionError):
        ViewReader(view).read(len(before) - 1, 2)


def test_selectors_agree_with_the_double() -> None:
    """Selectors find the same records in the real log and in the partition in memory."""
    both = Both()
    both.on_disk.log.delete_records(Offset(50))
    both.double.delete_records(Offset(50))
    offsets = ["49", "50", "400", "799", "800", "-1", "-300", "-9999"]
    ranges = ["0-49", "0-60", "700-9999", "800-", "801-"]
    times = ["@0", "@25000", "@25001", "@399000", "@399001", "@100000-@200000", "@399001-", "@300000-"]
    for name in offsets + ranges + times:
        outcomes: list[Offset | SelectedRange | str] = []
        for partition in (both.on_disk.log, both.double):
            try:
                outcomes.append(resolve(parse(name), partition))
            except SelectorError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1], name


def test_every_record_is_found_by_its_offset() -> None:
    """Each record is found by its offset, in all segments."""
    both = Both()
    for offset in range(0, both.double.log_end_offset, 7):
        assert found_in(both.double, offset).record == found_in(both.on_disk.log, offset).record
