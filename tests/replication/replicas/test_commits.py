"""Tests of micro-batches over replicas: after any disk fails, a committed micro-batch is not appended again."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest

from tests.doubles.replicated import DISKS, ORDERS, Replicated
from tests.doubles.several_disks import break_disk
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.disk.names import COMMITTED_WRITES, WriteFileKind, WriteId, write_file
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.staging.area import StagingArea, WriteState
from topicfs.storage.staging.committer import Committer
from topicfs.storage.staging.manifest import LogPlacement, Manifest, NewTopic, Placement, encode_manifest
from topicfs.storage.staging.record import CommitRecord
from topicfs.storage.staging.staged_file import StagedFile

QUERY = "b1946ac9-2d3f"


def staged(area: StagingArea, write: WriteId) -> StagedFile:
    """Stage the line of a micro-batch."""
    writer = area.stage(write, 0)
    writer.append(ORDERS, encode_lines(b"%d\n" % write.batch, timestamp=1_700_000_000_000)[0])
    return writer.finish()


def submit(two: Replicated, batch: int, *, through: int) -> None:
    """Submit a micro-batch of one line in a directory, and let the owner append it."""
    area, write = StagingArea(DISKS[through - 1], two.disks), WriteId(QUERY, batch)
    area.submit(write, [staged(area, write)])
    two.engine.commit_staged_writes()
    assert area.is_empty()


def batches(two: Replicated) -> list[int | None]:
    """Return the last micro-batch in each directory's committed-writes file."""
    found = (CommitRecord(two.disks, tuple).read_copy(root).get(QUERY) for root in two.roots)
    return [None if one is None else one.batch for one in found]


@pytest.mark.parametrize("dead", [1, 2])
def test_a_repeated_micro_batch_is_not_appended_after_a_disk_died(two: Replicated, dead: int) -> None:
    """Every directory records that a micro-batch is committed, whichever directory it was submitted in."""
    left = 3 - dead
    submit(two, 0, through=dead)
    break_disk(two.disk(dead))
    two.engine.maintenance(two.clock())
    two.open(DISKS[left - 1], left_out=(DISKS[dead - 1],))
    submit(two, 0, through=left)
    submit(two, 1, through=left)
    assert ["0", "1"] == two.lines()


@pytest.mark.parametrize("away", [1, 2])
def test_a_directory_that_was_away_gets_the_record_when_it_is_back(two: Replicated, away: int) -> None:
    """A returning directory learns which micro-batch was committed while it was away.

    If the other directory fails afterwards, a repeated micro-batch is still refused.
    """
    other = 3 - away
    submit(two, 0, through=other)
    break_disk(two.disk(away))
    submit(two, 1, through=other)
    two.bring_back(away)
    assert [1, 1] == batches(two)
    assert (1, 2) == tuple(sorted(two.in_sync()))
    break_disk(two.disk(other))
    submit(two, 1, through=away)
    submit(two, 2, through=away)
    assert ["0", "1", "2"] == two.lines()


@pytest.mark.parametrize("away", [1, 2])
def test_a_start_goes_by_the_newest_record_of_commits(two: Replicated, away: int) -> None:
    """A start replaces the older file of commits by the newer one.

    A repeated micro-batch therefore appends nothing, even if the disk with the newer file is lost afterwards.
    """
    other = 3 - away
    submit(two, 0, through=other)
    break_disk(two.disk(away))
    submit(two, 1, through=other)
    two.engine.close()
    two.disk(away).heal()
    two.open()
    assert [1, 1] == batches(two)
    two.engine.catch_up()
    break_disk(two.disk(other))
    submit(two, 1, through=away)
    assert ["0", "1"] == two.lines()


@pytest.mark.parametrize("damaged", [1, 2])
def test_a_damaged_copy_is_written_again_at_the_next_start(two: Replicated, damaged: int) -> None:
    """A start replaces a damaged copy by that of a directory that served until the shutdown. No directory fails."""
    submit(two, 0, through=1)
    two.engine.close()
    two.disks.write_bytes(DISKS[damaged - 1] / COMMITTED_WRITES, b"\0" * 40)
    two.open()
    assert [0, 0] == batches(two)
    assert [None, None] == [one.offline for one in two.engine.directories()]


def test_an_old_copy_does_not_stand_for_a_damaged_one_at_a_start(two: Replicated) -> None:
    """If only a damaged copy may have the last micro-batch, nothing is committed until that copy is removed."""
    submit(two, 0, through=1)
    break_disk(two.disk(2))
    submit(two, 1, through=1)
    two.engine.close()
    two.disk(2).heal()
    two.disks.write_bytes(DISKS[0] / COMMITTED_WRITES, b"\0" * 40)
    two.open()
    write = WriteId(QUERY, 1)
    manifest = Manifest((staged(StagingArea(DISKS[0], two.disks), write),))
    two.disks.write_bytes(DISKS[0] / write_file(write, WriteFileKind.REQUESTED), encode_manifest(manifest))
    two.engine.commit_staged_writes()
    assert ["0", "1"] == two.lines()
    assert any("not a committed-writes file" in line for line in two.engine.warnings)


def test_a_write_at_its_own_offsets_is_refused_before_topics_are_made(two: Replicated) -> None:
    """A write with given offsets is refused before it creates topics: replicas take such writes only from a leader."""
    write = WriteId("e59ff979-41aa")
    area = StagingArea(DISKS[0], two.disks)
    places = {TopicPartition("clicks", 0): LogPlacement(Offset(0))}
    area.submit(write, [], Placement({"clicks": NewTopic(1, {})}, places))
    two.engine.commit_staged_writes()
    assert WriteState.REFUSED is area.state(write)
    assert "only in directories without replicas" in str(area.take_refusal(write))
    assert ["orders"] == list(two.engine.topics())


@pytest.mark.parametrize("number", [1, 2], ids=["leader", "follower"])
def test_a_directory_that_could_not_note_a_commit_leaves_at_once(two: Replicated, number: int) -> None:
    """A directory that fails to record a commit is immediately out of sync, because its file lacks the commit."""
    two.disk(number).fail("write_bytes", times=1_000, suffix=f"{COMMITTED_WRITES}.tmp")
    submit(two, 0, through=3 - number)
    assert ((3 - number,), 3 - number) == (two.in_sync(), two.leader())
    assert ["0"] == two.lines()
    submit(two, 1, through=3 - number)
    assert ["0", "1"] == two.lines()


def test_two_threads_do_not_append_one_write(two: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a directory's write is appended, no other thread appends a copy of it from another directory."""
    entered, append = [], Committer._append

    def append_while_another_looks(*arguments: Any) -> None:
        entered.append(1)
        other = Thread(target=two.engine.commit_staged_writes)
        other.start()
        other.join()
        append(*arguments)

    monkeypatch.setattr(Committer, "_append", append_while_another_looks)
    submit(two, 0, through=1)
    assert ([1], ["0"]) == (entered, two.lines())
    assert () == two.engine.warnings
