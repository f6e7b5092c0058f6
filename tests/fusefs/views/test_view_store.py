"""Stored views of segments are written when a segment is sealed, used if they fit, and removed with the segment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.memory_partition import MemoryPartition
from tests.fusefs.views.expected import content, read_all
from topicfs.fusefs.forms import BATCH, FORMS, KV, VALUES, VIEW_FORMS, Form
from topicfs.fusefs.views import measure, sparse_index
from topicfs.fusefs.views.reader import ViewReader
from topicfs.fusefs.views.view import PartitionViews
from topicfs.fusefs.views.view_file import ViewStore
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.model import Isolation, Offset


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small intervals, so that a segment has several entries."""
    monkeypatch.setattr(sparse_index, "ENTRY_INTERVAL", 200)
    monkeypatch.setattr(measure, "MEASURE_STEP_BYTES", 700)


def partition_in(directory: Path, value: bytes = b"value %d") -> MemoryPartition:
    """Return a partition of four segments of 40 batches, offsets 0 to 159."""
    partition = MemoryPartition()
    partition.directory = directory
    for number in range(160):
        partition.add(value % number)
        if number % 40 == 39 and number < 159:
            partition.roll()
    return partition


@pytest.fixture
def partition(tmp_path: Path) -> MemoryPartition:
    (tmp_path / "orders-0").mkdir()
    return partition_in(tmp_path / "orders-0")


def views_of(partition: MemoryPartition) -> PartitionViews:
    return PartitionViews(partition, store=ViewStore(partition.directory, NativeFileSystem()))


def store_views(partition: MemoryPartition, form: Form = VALUES) -> None:
    """Measure a view of the log, and store the views of all its segments."""
    views = views_of(partition)
    views.whole(form).measure()
    views.remember()


def check_new_view(partition: MemoryPartition, form: Form = VALUES) -> None:
    """Check that the text and the size of a new view are right."""
    view = views_of(partition).whole(form)
    assert view.measure()
    assert content(partition, form) == read_all(view)
    assert len(content(partition, form)) == view.size


def names(partition: MemoryPartition) -> list[str]:
    return sorted(path.name for path in partition.directory.iterdir())


def view_names(*bases: int) -> list[str]:
    return [f"{base:020d}.view" for base in bases]


def test_sealed_segments_are_remembered_as_measuring_passes_them(partition: MemoryPartition) -> None:
    """Measuring stores the views of sealed segments; `remember` also stores the view of the active segment."""
    views = views_of(partition)
    views.whole(VALUES).measure()
    assert view_names(0, 40, 80) == names(partition)
    views.remember()
    assert view_names(0, 40, 80, 120) == names(partition)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.suffix or ".values")
def test_a_segment_with_a_stored_view_is_not_measured_again(partition: MemoryPartition, form) -> None:
    """After a restart, segments with stored views are not measured again, and all sizes and positions are right."""
    store_views(partition, form)
    partition.reads = partition.bytes_read = 0
    view = views_of(partition).whole(form)
    assert view.measure()
    assert partition.reads <= 4
    assert partition.bytes_read <= 4 * 80
    expected = content(partition, form)
    assert len(expected) == view.size
    for position in range(0, len(expected), 91):
        assert expected[position : position + 30] == ViewReader(view).read(position, 30)


def test_forms_are_remembered_side_by_side(partition: MemoryPartition) -> None:
    """The view file of a segment has a section for each form."""
    for form in FORMS:
        views_of(partition).whole(form).measure()
    partition.reads = 0
    for form in FORMS:
        assert views_of(partition).whole(form).measure()
    one_active_segment = len(FORMS) * (1 + len(partition.memory_segments[-1].data) // 600)
    assert partition.reads <= 4 * len(FORMS) + one_active_segment


def test_records_after_the_stored_part_are_measured(partition: MemoryPartition) -> None:
    """Records after the stored part are measured, even after a roll."""
    store_views(partition)
    for number in range(30):
        partition.add(b"more %d" % number)
        if number == 10:
            partition.roll()
    check_new_view(partition)
    assert view_names(0, 40, 80, 120) == names(partition)
    partition.bytes_read = 0
    assert views_of(partition).whole(VALUES).measure()
    assert partition.bytes_read < 4 * 80 + len(partition.memory_segments[-1].data) + 100


@pytest.mark.parametrize(
    "replaced",
    [
        pytest.param(lambda good, other: good[:50], id="torn"),
        pytest.param(lambda good, other: good[:50] + bytes([good[50] ^ 1]) + good[51:], id="flipped"),
        pytest.param(lambda good, other: other, id="other segment"),
        pytest.param(lambda good, other: b"", id="empty"),
    ],
)
def test_a_damaged_stored_view_is_replaced(
    partition: MemoryPartition, replaced: Callable[[bytes, bytes], bytes]
) -> None:
    """A stored file that is damaged, or belongs to another segment, is replaced after a new measurement."""
    views_of(partition).whole(VALUES).measure()
    path, other = (partition.directory / name for name in view_names(40, 80))
    good = path.read_bytes()
    path.write_bytes(replaced(good, other.read_bytes()))
    check_new_view(partition)
    assert good == path.read_bytes()


def test_a_stored_view_of_another_log_is_not_used(partition: MemoryPartition) -> None:
    """A stored file that belongs to another log is not used."""
    views_of(partition).whole(VALUES).measure()
    check_new_view(partition_in(partition.directory, b"another value %d"))


def test_a_segment_with_a_damaged_batch_is_not_remembered(partition: MemoryPartition) -> None:
    """No view is stored for a segment with a damaged batch, so that the damage, or its repair, is noticed again."""
    partition.damage(45)
    view = views_of(partition).whole(VALUES)
    assert view.measure()
    assert view_names(0, 80) == names(partition)


def test_a_log_start_inside_a_segment_invalidates_its_stored_view(partition: MemoryPartition) -> None:
    """After the log start moved into a segment, only the stored views of later segments are used."""
    views_of(partition).whole(VALUES).measure()
    partition.delete_records(Offset(47))
    for _ in range(2):
        check_new_view(partition)


def test_the_files_of_removed_segments_go_with_them(partition: MemoryPartition) -> None:
    """The view files of removed segments, and temporary files, are removed; other files stay."""
    views = views_of(partition)
    views.whole(VALUES).measure()
    directory = partition.directory
    (directory / (view_names(120)[0] + ".tmp")).write_bytes(b"half")
    (directory / "leader-epoch-checkpoint").write_bytes(b"")
    partition.delete_oldest_segments(1)
    views.whole(VALUES)
    assert [*view_names(40, 80), "leader-epoch-checkpoint"] == names(partition)
    partition.delete_oldest_segments(1)
    views.remember()
    assert [*view_names(80, 120), "leader-epoch-checkpoint"] == names(partition)
    partition.delete_oldest_segments(1)
    views_of(partition).range(VALUES, Offset(130), None)
    assert [*view_names(120), "leader-epoch-checkpoint"] == names(partition)


def test_a_deleted_directory_is_not_made_again(partition: MemoryPartition) -> None:
    """If the directory was deleted, storing fails silently and does not create the directory again."""
    views = views_of(partition)
    partition.directory.rmdir()
    assert views.whole(VALUES).measure()
    views.remember()
    assert not partition.directory.exists()


def test_a_read_only_directory_is_remembered_in_the_user_cache(
    partition: MemoryPartition, tmp_path: Path
) -> None:
    """For a read-only directory, views are stored in the user's cache, in one folder for each partition."""
    store = ViewStore.in_user_cache(partition.directory, NativeFileSystem(), cache=tmp_path / "cache")
    PartitionViews(partition, store=store).whole(KV).measure()
    assert [] == names(partition)
    assert view_names(0, 40, 80) == sorted(path.name for path in store.directory.iterdir())
    assert tmp_path / "cache" / "views" == store.directory.parent.parent
    partition.reads = 0
    again = ViewStore.in_user_cache(partition.directory, NativeFileSystem(), cache=tmp_path / "cache")
    view = PartitionViews(partition, store=again).whole(KV)
    assert view.measure()
    assert content(partition, KV) == read_all(view)


def test_an_open_range_uses_stored_views(partition: MemoryPartition) -> None:
    """An open range uses stored views; only the segment that the range contains in part is measured."""
    views_of(partition).whole(VALUES).measure()
    partition.bytes_read = 0
    view = views_of(partition).range(VALUES, Offset(30), None)
    assert view.measure()
    assert len(content(partition, start=30)) == view.size
    active = len(partition.memory_segments[-1].data)
    assert partition.bytes_read <= 10 * 80 + 700 + 4 * 80 + active


def test_nothing_is_written_of_a_segment_that_lost_its_front_meanwhile(partition: MemoryPartition) -> None:
    """If the first records of a segment were deleted after measuring, its view is not stored."""
    views = views_of(partition)
    view = views.whole(VALUES)
    while view.measure(max_bytes=1) is False and view.size < len(content(partition, end=130)):
        pass
    for path in partition.directory.iterdir():
        path.unlink()
    partition.delete_records(Offset(125))
    assert 125 == views.whole(VALUES).start_offset
    views.remember()
    assert [] == names(partition)


def test_nothing_is_written_of_a_log_that_was_rewritten_meanwhile(partition: MemoryPartition) -> None:
    """After segments were rewritten, views that were measured before are not stored."""
    views = views_of(partition)
    views.whole(VALUES).measure()
    known = names(partition)
    partition.rewrites += 1
    views.remember()
    assert known == names(partition)


@pytest.mark.parametrize("visible", [161, 162])
@pytest.mark.parametrize("form", VIEW_FORMS, ids=lambda form: form.suffix or ".values")
def test_a_batch_that_shows_in_part_is_not_remembered(
    partition: MemoryPartition, visible: int, form: Form
) -> None:
    """If only a part of a batch is visible, its view is not stored, and is measured again when all is visible."""
    partition.add(b"a", b"b", b"c")
    partition.high_watermark = visible
    store_views(partition, form)
    partition.high_watermark = None
    again = views_of(partition).whole(form)
    assert again.measure()
    expected = b"".join(bytes(segment.data) for segment in partition.memory_segments)
    expected = expected if form is BATCH else content(partition, form)
    assert expected == read_all(again)
    assert len(expected) == again.size


@pytest.mark.parametrize("visible", [79, 80, 100, 160])
def test_only_the_visible_part_of_a_stored_view_is_shown(partition: MemoryPartition, visible: int) -> None:
    """If less is visible than when the view was stored, only the visible part is shown."""
    store_views(partition)
    partition.high_watermark = visible
    check_new_view(partition)


def test_renderings_of_either_isolation_are_remembered_apart(partition: MemoryPartition) -> None:
    """Views for read_committed and for read_uncommitted are stored separately."""
    views_of(partition).whole(VALUES).measure()
    store = ViewStore(partition.directory, NativeFileSystem())
    uncommitted = PartitionViews(partition, store=store, isolation=Isolation.READ_UNCOMMITTED)
    assert uncommitted.whole(VALUES).measure()
    log = partition.open_segment_file(f"{0:020d}.log")
    for suffix in ("", "+uncommitted"):
        assert store.load(Offset(0), suffix, log) is not None
