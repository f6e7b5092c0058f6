"""Tests that removed segments free their disk space: no descriptor or mapping keeps unlinked files open.

The tests use a real disk, `/proc/self/fd` and `/proc/self/maps`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.doubles.engines import append_lines, read_lines
from tests.doubles.logs import TINY
from tests.doubles.manual_clock import ManualClock
from tests.doubles.records import sized_batch
from topicfs.storage.compaction.cleaner import clean, cleaning_params
from topicfs.storage.compaction.selection import plan
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.names import VIEW_SUFFIX, view_file
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.log.log import Log
from topicfs.storage.log.reading.fetch import fetch
from topicfs.storage.manager import Machine, open_engine
from topicfs.storage.model import Offset, Timestamp
from topicfs.storage.recovery.loader import load_log
from topicfs.storage.retention import apply_retention
from topicfs.storage.segment.roll import SegmentDirectory

DELAY_MS = 1000


def opened(below: Path) -> list[str]:
    """Return the files below a directory that this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [each for each in found if str(below) in each]


def deleted_but_open(below: Path) -> list[str]:
    """Return the unlinked files below a directory that this process still has open or mapped."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    mapped = [line.split(maxsplit=5)[5] for line in maps if str(below) in line]
    return sorted({each for each in opened(below) + mapped if each.endswith(" (deleted)")})


class LogOnMachine:
    """A log on a real disk, with two batches of 140 bytes per segment. All of the log has been read."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "orders-0"
        self.directory.mkdir()
        self.clock = ManualClock()
        settings = TINY | {
            "internal_segment_bytes": 300,
            "index_interval_bytes": 0,
            "file_delete_delay_ms": DELAY_MS,
            "cleanup_policy": ("compact", "delete"),
            "min_cleanable_dirty_ratio": 0.0,
        }
        self.log: Log = load_log(
            SegmentDirectory(self.directory, NativeFileSystem(), self.clock),
            TopicConfig(**settings),
            clean=True,
        )
        for number in range(9):
            self.log.append(sized_batch(140, timestamp=self.clock.now + number, key=b"%d" % (number % 3)))
        self.look()

    def look(self) -> None:
        """Open and map each file of each segment."""
        for offset in range(self.log.log_start_offset, self.log.log_end_offset):
            self.log.locate(Offset(offset))
            self.log.offset_for_timestamp(Timestamp(self.clock.now + offset))
            self.log.read(Offset(offset), max_bytes=1)

    def pass_delay(self) -> None:
        self.clock.advance(DELAY_MS)
        self.log.replacer.remove_deleted_files(self.clock())

    def deleted_files(self) -> list[str]:
        return [path.name for path in self.directory.glob("*.deleted")]

    def write_views(self, base_offsets: Iterable[Offset]) -> None:
        for base_offset in base_offsets:
            (self.directory / view_file(base_offset)).write_bytes(b"remembered")

    def bases_with_a_view(self) -> set[int]:
        return {int(path.name[:20]) for path in self.directory.glob(f"*{VIEW_SUFFIX}")}


def retain(on_machine: LogOnMachine) -> None:
    on_machine.log.replacer.delete_oldest_segments(3, "test")


def raise_start(on_machine: LogOnMachine) -> None:
    on_machine.log.update_config(
        TopicConfig(**TINY | {"internal_segment_bytes": 300, "file_delete_delay_ms": DELAY_MS})
    )
    on_machine.log.delete_records(Offset(7))
    apply_retention(on_machine.log, on_machine.clock())


def compact(on_machine: LogOnMachine) -> None:
    log, now = on_machine.log, on_machine.clock()
    clean(log, plan(cleaning_params(log, Offset(0), now)), now=now)


def truncate(on_machine: LogOnMachine) -> None:
    on_machine.log.replacer.truncate_to(Offset(3))


def start_over(on_machine: LogOnMachine) -> None:
    on_machine.log.replacer.truncate_fully_and_start_at(Offset(20))


@pytest.mark.parametrize("go", [retain, raise_start, compact, truncate, start_over])
def test_files_that_go_are_closed(go, tmp_path):
    """After the delay no file of a removed segment is open, whatever removed it. Other segments can still be read."""
    on_machine = LogOnMachine(tmp_path)
    go(on_machine)
    on_machine.look()
    assert [] != on_machine.deleted_files()
    on_machine.pass_delay()
    assert [] == deleted_but_open(tmp_path)
    assert [] == on_machine.deleted_files()
    on_machine.look()
    on_machine.log.append(sized_batch(140, key=b"key"))
    on_machine.log.close()


def test_a_running_read_continues(tmp_path):
    """A read with an old state of the log works until the files are unlinked.

    After that, only a mapping that a reader still holds stays open.
    """
    on_machine = LogOnMachine(tmp_path)
    state = on_machine.log.parts.state
    wanted = bytes(fetch(state, state.end, Offset(0), 10_000).data)
    held = fetch(state, state.end, Offset(0), 10_000)
    index = state.chain.segments[0].offset_index.slots.used()[0]
    retain(on_machine)
    assert wanted == bytes(fetch(state, state.end, Offset(0), 10_000).data)
    on_machine.pass_delay()
    with pytest.raises(FileNotFoundError):
        fetch(state, state.end, Offset(0), 10_000)
    assert wanted == bytes(held.data)
    assert [f"{0:020}.index.deleted (deleted)"] == [Path(each).name for each in deleted_but_open(tmp_path)]
    assert 8 == len(bytes(index))
    del index
    assert [] == deleted_but_open(tmp_path)


def test_a_file_opened_after_its_unlink_is_closed_a_round_later(tmp_path, monkeypatch):
    """A file that a reader opened between unlink and close is closed in the next round."""
    on_machine = LogOnMachine(tmp_path)
    segment = on_machine.log.chain.segments[0]
    retain(on_machine)
    file = os.open(segment.log.path, os.O_RDONLY)
    on_machine.pass_delay()
    monkeypatch.setattr(os, "open", lambda *_: file)
    segment.log.reach()
    monkeypatch.undo()
    assert 1 == len(deleted_but_open(tmp_path))
    on_machine.pass_delay()
    assert [] == deleted_but_open(tmp_path)


def test_a_second_segment_of_the_same_name_has_its_own_delay(tmp_path):
    """If two compactions remove segments of the same name, each segment's files have their own delay.

    Here the second compaction is within the delay of the first one.
    """
    on_machine = LogOnMachine(tmp_path)
    compact(on_machine)
    on_machine.clock.advance(DELAY_MS // 2)
    for number in range(9):
        on_machine.log.append(sized_batch(140, timestamp=on_machine.clock.now, key=b"%d" % (number % 3)))
    compact(on_machine)
    name = f"{0:020}.log.deleted"
    assert (on_machine.directory / name).exists()
    on_machine.clock.advance(DELAY_MS // 2)
    on_machine.log.replacer.remove_deleted_files(on_machine.clock())
    assert (on_machine.directory / name).exists()
    on_machine.pass_delay()
    assert not (on_machine.directory / name).exists()
    assert [] == deleted_but_open(tmp_path)


@pytest.mark.parametrize("go", [retain, raise_start, compact, truncate, start_over])
def test_view_files_of_removed_segments_are_deleted(go, tmp_path):
    """View files of removed segments are deleted as well, even those that a reader wrote late."""
    on_machine = LogOnMachine(tmp_path)
    before = on_machine.log.chain.segments
    on_machine.write_views(segment.base_offset for segment in before)
    go(on_machine)
    kept = {segment.base_offset for segment in on_machine.log.chain.segments if segment in before}
    gone = {segment.base_offset for segment in before} - kept
    assert gone
    assert kept == on_machine.bases_with_a_view()
    on_machine.write_views(gone.difference(on_machine.log.chain.base_offsets))
    on_machine.pass_delay()
    assert go is compact or kept == on_machine.bases_with_a_view()


def test_a_deleted_topics_files_are_closed(tmp_path):
    """The files of a deleted topic are closed, even files that readers or retention had opened."""
    clock = ManualClock()
    config = EngineConfig(topic_defaults=TopicConfig(segment_index_bytes=1200))
    engine = open_engine(tmp_path / "data", config=config, machine=Machine(clock=clock))
    overrides = {"internal.segment.bytes": "300", "file.delete.delay.ms": str(DELAY_MS)}
    topic = engine.create_topic("orders", partitions=2, overrides=overrides)
    partitions = list(topic.partitions().values())
    for partition in partitions:
        for number in range(20):
            append_lines(partition, f"line {number}\n", timestamp=clock.now)
        read_lines(partition)
        partition.delete_records(Offset(10))
    engine.maintain_now(clock())
    wanted = [read_lines(partition) for partition in partitions]
    engine.delete_topic("orders")
    assert wanted == [read_lines(partition) for partition in partitions]
    for _ in range(2):
        clock.advance(DELAY_MS)
        engine.maintenance(clock())
    assert [] == [path.name for path in (tmp_path / "data").iterdir() if path.is_dir()]
    assert [] == deleted_but_open(tmp_path)
    engine.close()


def test_a_closed_log_has_nothing_open(tmp_path):
    """A closed log has no open files, not even files that wait to be unlinked."""
    on_machine = LogOnMachine(tmp_path)
    retain(on_machine)
    on_machine.log.close()
    assert [] == opened(tmp_path)
