"""Tests that reads during a replacement or removal of segments return the old or the new result, without errors."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import get_args, get_type_hints

import pytest

from tests.doubles.logs import DIRECTORY, TINY, LogOnDisk
from tests.doubles.manual_clock import ManualClock
from tests.doubles.records import sized_batch
from topicfs.storage.compaction.cleaner import clean, cleaning_params
from topicfs.storage.compaction.selection import plan
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import OffsetOutOfRangeError, SegmentDeletedError
from topicfs.storage.log.state import LogState, StateFields
from topicfs.storage.model import Offset, Timestamp
from topicfs.storage.recovery.loader import load_log
from topicfs.storage.segment.roll import SegmentDirectory


def first_values(log):
    """Return the records at the log start. The log start may move between its lookup and the read."""
    while True:
        with suppress(OffsetOutOfRangeError):
            return bytes(log.read(log.log_start_offset, max_bytes=1).data)


LOOKS = [
    pytest.param(first_values, id="read"),
    pytest.param(lambda log: log.offset_for_timestamp(Timestamp(2)), id="by time"),
    pytest.param(lambda log: log.largest_timestamp(), id="largest time"),
    pytest.param(
        lambda log: [(each.base_offset, each.largest_timestamp) for each in log.segments()], id="segments"
    ),
]


class RenamingDisk(NativeFileSystem):
    """A disk on which another thread reads a log before and after each rename and unlink.

    The disk keeps one file open at a time, so that other files are opened by their names.
    """

    def __init__(self) -> None:
        super().__init__(max_open_files=1)
        self.at_each_step = None
        self._with_segments = []

    def rename(self, source, target):
        self._step()
        super().rename(source, target)
        self._step()

    def unlink(self, path):
        self._step()
        super().unlink(path)
        self._step()

    def found(self):
        """Return the results of all reads, or raise the first error."""
        return [each.result() for each in self._with_segments]

    def _step(self):
        if self.at_each_step is None:
            return
        looking: Future[object] = Future()

        def look(at=self.at_each_step):
            try:
                looking.set_result(at())
            except Exception as error:  # noqa: BLE001 (raised again in `found`)
                looking.set_exception(error)

        thread = Thread(target=look)
        thread.start()
        # Threads that do not need the lock of the log get time to finish; `found` waits for the other
        # threads.
        thread.join(0.02)
        self._with_segments.append(looking)


@pytest.mark.parametrize("look", LOOKS)
def test_a_file_that_another_program_removed_is_reported(look):
    """If another program removed a file, reads raise SegmentDeletedError and do not create the file again."""
    on_disk = LogOnDisk(internal_segment_bytes=300)
    for number in range(6):
        on_disk.log.append(sized_batch(140, timestamp=number))
    log = on_disk.reopen()
    for kind in ("index", "timeindex"):
        on_disk.disk.unlink(DIRECTORY / f"{0:020}.{kind}")
    before = on_disk.names()
    with pytest.raises(SegmentDeletedError, match="removed while it was read"):
        look(log)
    assert before == on_disk.names()


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("change", ["compaction", "retention", "truncation"])
def test_looking_while_segments_are_renamed(look, change, tmp_path):
    """At each step of a change a read returns the state before or after it, and creates no file."""
    disk, clock = RenamingDisk(), ManualClock()
    config = TopicConfig(
        **TINY
        | {
            "internal_segment_bytes": 300,
            "cleanup_policy": ("compact", "delete"),
            "min_cleanable_dirty_ratio": 0.0,
            "file_delete_delay_ms": 0,
        }
    )
    directory = tmp_path / "orders-0"
    directory.mkdir()
    log = load_log(SegmentDirectory(directory, disk, clock), config, clean=True)
    for number in range(7):
        log.append(sized_batch(140, timestamp=number + 1, key=b"%d" % (number % 3)))
    log.close()
    log = load_log(SegmentDirectory(directory, disk, clock), config, clean=True)
    allowed = [look(log)]
    log.listen(lambda: allowed.append(look(log)))
    disk.at_each_step = lambda: look(log)
    if change == "compaction":
        clean(log, plan(cleaning_params(log, Offset(0), clock())), now=clock())
    elif change == "retention":
        log.replacer.delete_oldest_segments(2, "test")
    else:
        log.replacer.truncate_fully_and_start_at(Offset(4))
    log.replacer.remove_deleted_files(clock())
    disk.at_each_step = None
    found = disk.found()
    assert found
    assert [] == [each for each in found if each not in allowed]
    names = sorted(path.name for path in directory.iterdir())
    assert [] == [name for name in names if name.endswith(".deleted")]
    bases = {f"{segment.base_offset:020}" for segment in log.segments()}
    assert {name[:20] for name in names if name.endswith("index")} <= bases


def test_log_parts_have_few_attributes():
    """Log parts have at most 30 attributes. With more, Python no longer shares their names, and lookups are slower."""
    assert 30 >= len(vars(LogOnDisk().log.parts))


def test_state_fields_have_their_declared_types():
    """`StateFields`, which the type checker uses, has the types of the fields of `LogState`."""
    assert get_args(StateFields) == tuple(get_type_hints(LogState).values())
