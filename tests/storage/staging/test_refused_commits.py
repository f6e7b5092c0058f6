"""Tests that a write that cannot be appended is refused as a whole, and that damaged files are reported."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.doubles.engines import DATA, engine_on
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk
from tests.doubles.staged_writes import (
    BATCH,
    BEFORE,
    EXPECTED,
    ONCE,
    files_of_writes,
    lines,
    populated,
    stage,
    stage_batches,
    submit,
    values,
)
from topicfs.storage.disk.names import WriteFileKind, write_file
from topicfs.storage.errors import CorruptionError
from topicfs.storage.staging.area import StagingArea, WriteState
from topicfs.storage.staging.committer import Committer
from topicfs.storage.staging.placer import OVERHEAD_BYTES
from topicfs.storage.staging.staged_file import StagedFile

pytestmark = pytest.mark.slow


def staged_lines(*batches: tuple[str, int, str]) -> Callable[[StagingArea], StagedFile]:
    return lambda area: stage_batches(area, ONCE, (lines(*one) for one in batches))


def damaged(area: StagingArea) -> StagedFile:
    staged = stage(area, ONCE, 0)
    path = DATA / staged.name
    area.files.write_bytes(path, area.files.read_bytes(path).replace(b"b", b"B"))
    return staged


def cut_short(area: StagingArea) -> StagedFile:
    staged = stage(area, ONCE, 0)
    path = DATA / staged.name
    area.files.write_bytes(path, area.files.read_bytes(path)[:-1])
    return staged


def vanished(area: StagingArea) -> StagedFile:
    staged = stage(area, ONCE, 0)
    area.discard([staged.name])
    return staged


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (
            staged_lines(("clicks", 0, "fits\n"), ("orders", 1, "x" * 5000 + "\n")),
            r"orders-1: batch of \d+ bytes, max.message.bytes is 1000",
        ),
        (staged_lines(("clicks", 0, "fits\n"), ("nowhere", 0, "lost\n")), "nowhere: no such topic"),
        (staged_lines(("__consumer_offsets", 0, "x\n")), "Kafka's own"),
        (damaged, "checksum"),
        (cut_short, "submitted as"),
        (vanished, "No such file"),
    ],
    ids=["big", "unknown", "internal", "damaged", "cut short", "vanished"],
)
def test_a_write_that_may_not_be_appended_is_refused_whole(
    disk, engine, prepare: Callable[[StagingArea], StagedFile], reason: str
):
    """No record of a refused write is appended, its submitter gets the reason, and its files are removed."""
    engine.create_topic("__consumer_offsets")
    engine.alter_config("orders", {"max.message.bytes": "1000"})
    area = StagingArea(DATA, disk)
    area.submit(ONCE, [prepare(area)])
    engine.commit_staged_writes()
    assert area.state(ONCE) is WriteState.REFUSED
    error = area.take_refusal(ONCE)
    with pytest.raises(type(error), match=reason):
        raise error
    assert all(not found for found in values(engine).values())
    assert [] == files_of_writes(disk)


@pytest.mark.parametrize("free_bytes", [0, 512, OVERHEAD_BYTES])
def test_a_write_that_does_not_fit_the_disk_is_refused_whole(disk, engine, free_bytes: int):
    """A write that is larger than the free space is refused, and the error gives the sizes.

    Once there is enough space, the same write succeeds.
    """
    area = submit(disk, BATCH)
    disk.fill(free_bytes)
    Committer(area, engine, clock=ManualClock()).commit(BATCH)
    assert BEFORE == values(engine)
    assert area.state(BATCH) is WriteState.REFUSED
    said = str(area.take_refusal(BATCH))
    assert re.search(r"/data: the write has \d+ bytes of batches .* but \d+ bytes are free on the disk", said)
    assert [] == files_of_writes(disk)
    disk.fill(None)
    submit(disk, BATCH)
    engine.commit_staged_writes()
    assert EXPECTED == values(engine)


def test_a_refused_micro_batch_may_come_again(disk, engine):
    """After the cause of the refusal is gone, a repeated micro-batch is appended."""
    engine.delete_topic("clicks")
    area = submit(disk, BATCH)
    engine.commit_staged_writes()
    assert area.state(BATCH) is WriteState.REFUSED
    engine.create_topic("clicks")
    submit(disk, BATCH)
    engine.commit_staged_writes()
    assert EXPECTED == values(engine)


@pytest.mark.parametrize("operation", ["pwrite", "sync", "rename", "write_bytes", "sync_directory", "unlink"])
def test_a_disk_that_fails_once_costs_nothing(operation):
    """After a disk error in any call the write is refused as a whole or continued, and never duplicated."""
    for after in range(40):
        disk = SimulatedDisk()
        engine = populated(disk)
        area = submit(disk, ONCE)
        disk.fail(operation, after=after, number=28)
        engine.commit_staged_writes()
        disk.heal()
        disk.crash(keep=1.0)
        engine = engine_on(disk)
        engine.commit_staged_writes()
        expected = BEFORE if area.state(ONCE) is WriteState.REFUSED else EXPECTED
        assert values(engine) == expected, after


@pytest.mark.parametrize("content", [b"", b"[]", b'{"version": 2}', b'{"version": 1, "queries": {"q": 1}}'])
def test_a_damaged_record_is_reported(disk, engine, content):
    """A damaged record raises an error with the record's path, and nothing is appended."""
    disk.write_bytes(DATA / "topicfs.writes", content)
    with pytest.raises(CorruptionError, match=r"topicfs\.writes"):
        submit(disk, BATCH)
    assert BEFORE == values(engine)


@pytest.mark.parametrize(
    "content",
    [b"{", b'{"version": 2}', b'{"version": 1, "files": [{"name": "../x", "size": 1, "checksum": 1}]}'],
)
def test_a_damaged_manifest_is_reported_and_stays(disk, engine, content):
    """A damaged manifest stays, with a warning, and other writes continue."""
    path = DATA / write_file(ONCE, WriteFileKind.REQUESTED)
    disk.write_bytes(path, content)
    submit(disk, BATCH)
    engine.commit_staged_writes()
    assert EXPECTED == values(engine)
    assert any("e59ff979" in line for line in engine.warnings)
