"""Tests that a write is appended completely and once after a crash between any two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.doubles.engines import DATA, append_lines, engine_on, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.mortal_disk import End, MortalDisk, dies, every_step
from tests.doubles.staged_writes import (
    BATCH,
    BEFORE,
    EXPECTED,
    ONCE,
    files_of_writes,
    half_appended,
    killed_when,
    populated,
    submit,
    values,
)
from topicfs.storage.disk.names import WriteFileKind, write_file
from topicfs.storage.manager import LogManager
from topicfs.storage.staging.manifest import Content, decode_manifest

pytestmark = pytest.mark.slow

DAY_MS = 24 * 3600 * 1000


@pytest.mark.parametrize("end", End, ids=str)
def test_a_replayed_write_is_there_once_wherever_it_died(end):
    """If staging, submitting or appending is killed at any step and then repeated, the log has the write once."""

    def run(disk: MortalDisk, engine: LogManager) -> None:
        submit(disk, BATCH)
        engine.commit_staged_writes()
        engine.close()

    for disk in every_death(run, end=end):
        engine = engine_on(disk)
        submit(disk, BATCH)
        engine.commit_staged_writes()
        assert EXPECTED == values(engine)
        assert [] == files_of_writes(disk)
        engine.close()


@pytest.mark.parametrize("end", End, ids=str)
def test_a_write_that_is_not_replayed_is_there_whole_or_not_at_all(end):
    """If `submit` has returned, the write is appended. After an earlier crash the log has all of the write or none."""
    handed_in = []

    def run(disk: MortalDisk, engine: LogManager) -> None:
        handed_in.clear()
        handed_in.append(submit(disk, ONCE))
        engine.commit_staged_writes()

    outcomes = set()
    for disk in every_death(run, end=end):
        engine = engine_on(disk)
        engine.commit_staged_writes()
        found = values(engine)
        outcomes.add(found == EXPECTED)
        assert found == EXPECTED if handed_in else found in (EXPECTED, BEFORE)
        engine.close()
    assert {True, False} == outcomes


@pytest.mark.parametrize("end", End, ids=str)
def test_the_content_that_is_noted_is_that_of_the_files_that_were_appended(end):
    """The recorded content is the content of the rows that were appended.

    If the first rows were submitted before the crash, these rows are appended, and not the repeated rows.
    """
    first, again = Content(7, 1), Content(7, 2)
    submitted = []

    def run(disk: MortalDisk, engine: LogManager) -> None:
        submitted.clear()
        submitted.append(submit(disk, BATCH, first))
        engine.commit_staged_writes()

    outcomes = set()
    for disk in every_death(run, end=end):
        engine = engine_on(disk)
        area = submit(disk, BATCH, again)
        engine.commit_staged_writes()
        known = area.committed(BATCH)
        assert known is not None
        outcomes.add(known.content)
        assert known.content == first if submitted else known.content in (first, again)
        assert EXPECTED == values(engine)
        engine.close()
    assert {first, again} == outcomes


def test_two_crashes_in_a_row_do_not_double():
    """A second crash, while the write is continued, duplicates no record."""
    for first in range(8, 400, 5):
        disk = MortalDisk(seed=first)
        engine = populated(disk)
        submit(disk, BATCH)
        if not dies(disk, engine.commit_staged_writes, first):
            break
        disk.crash(keep=1.0)
        engine = engine_on(disk)
        for second in range(0, 60, 7):
            if not dies(disk, engine.commit_staged_writes, second):
                break
            disk.crash()
            engine = engine_on(disk)
        engine.commit_staged_writes()
        assert EXPECTED == values(engine)


def test_others_may_append_between_a_crash_and_the_end():
    """After a crash a write continues even if others have appended, because it finds its own producer's batches."""

    def prepare(disk: MortalDisk) -> LogManager:
        engine = populated(disk)
        append_lines(engine.partition("orders", 0), "old\n")
        submit(disk, BATCH)
        return engine

    disk = killed_when(lambda engine: read_lines(engine.partition("orders", 0))[1:], prepare)
    engine = engine_on(disk)
    append_lines(engine.partition("orders", 0), "between\n")
    engine.commit_staged_writes()
    found = values(engine)
    assert sorted(found["orders", 0]) == sorted(["old", "between", "a", "b", "d"])
    assert found["orders", 1] == EXPECTED["orders", 1]


def test_what_a_log_has_forgotten_is_not_appended_again():
    """If the producer has expired, the records already appended are recognized in the log."""
    disk = half_appended()
    engine_on(disk).close()
    engine = engine_on(disk, clock=ManualClock(ManualClock().now + 30 * DAY_MS))
    assert ["a", "b"] == read_lines(engine.partition("orders", 0))
    engine.commit_staged_writes()
    assert EXPECTED == values(engine)


def test_a_request_for_a_committed_write_that_comes_late_is_no_write(disk, engine):
    """A request for a write that was committed meanwhile is ignored."""
    submit(disk, BATCH)
    late = {name: disk.read_bytes(DATA / name) for name in files_of_writes(disk)}
    engine.commit_staged_writes()
    for name, content in late.items():
        disk.write_bytes(DATA / name, content, sync=True)
    engine.commit_staged_writes()
    assert EXPECTED == values(engine)
    assert [] == files_of_writes(disk)


def test_a_manifest_is_gone_for_good_before_its_staged_files_go(disk, engine):
    """The removal of a manifest is synced before the manifest's staged files are removed."""
    submit(disk, ONCE)
    engine.commit_staged_writes()
    calls = [
        name if name == "sync_directory" else path.rpartition(".")[2]
        for name, path in disk.calls
        if (name, path) == ("sync_directory", str(DATA)) or (name == "unlink" and "topicfs.write." in path)
    ]
    assert ["claimed", "sync_directory", "staged", "staged"] == calls[calls.index("claimed") :][:4]


@pytest.mark.parametrize("end", [End.POWER_LOSS, End.POWER_LOSS_KEEPING_NOTHING], ids=str)
def test_what_others_appended_is_on_disk_before_a_write_begins(end: End):
    """Before a write begins, the records of others are synced.

    The record of the write has the end offsets of the logs. After a crash no log ends below these offsets.
    """
    begun = 0

    def run(disk: MortalDisk, engine: LogManager) -> None:
        append_lines(engine.partition("orders", 0), "old\nolder\noldest\n")
        submit(disk, BATCH)
        engine.commit_staged_writes()

    for disk in every_death(run, end=end):
        path = DATA / write_file(BATCH, WriteFileKind.CLAIMED)
        manifest = decode_manifest(disk.read_bytes(path), file=path) if disk.exists(path) else None
        engine = engine_on(disk)
        if manifest is not None and manifest.begun is not None:
            begun += 1
            found = {
                one: engine.partition(*one).offsets().log_end_offset for one in manifest.begun.end_offsets
            }
            assert all(end <= found[one] for one, end in manifest.begun.end_offsets.items())
            assert ["old", "older", "oldest"] == read_lines(engine.partition("orders", 0))[:3]
        engine.close()
    assert begun


def every_death(run: Callable[[MortalDisk, LogManager], None], *, end: End) -> Iterator[MortalDisk]:
    """For a crash at each step of `run`, yield the disk after the crash."""
    for steps in every_step():
        disk = MortalDisk(seed=steps)
        engine = populated(disk)
        if not dies(disk, lambda: run(disk, engine), steps):  # noqa: B023
            return
        end.of(disk)
        yield disk
