"""Tests that a check in parts has the findings of `topicfs check`, each reported for its segment."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.doubles.damage import overwrite
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.inspection.check.segment import check_segment
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.tasks.task_sizing import FILE_BYTES, MAX_TASKS, pack
from topicfs.pipeline.verification import DirectoryVerification
from topicfs.storage.codec.batch import scan, seal
from topicfs.storage.disk.lock import DirectoryLock
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.indexes.transaction_index import AbortedSpan, encode
from topicfs.storage.model import Offset, ProducerId

LOG_DIRS = Path(__file__).parents[1] / "vectors" / "kafka" / "log-dirs"
FILES = NativeFileSystem(read_only=True)
PARTITION = "g-none-0"
FIRST, MIDDLE, LAST = (f"{PARTITION}/{base:020d}" for base in (0, 132, 268))


@pytest.fixture
def directory(tmp_path) -> Path:
    """Make a broker's directory without damage: partition g-none-0 with segments 0, 132 and 268, offsets 0 to 399."""
    data = tmp_path / "data"
    shutil.copytree(LOG_DIRS / PARTITION, data / PARTITION)
    for path in LOG_DIRS.iterdir():
        if path.is_file():
            shutil.copy(path, data / path.name)
    return data


def verify(*directories):
    """Return every row of a verification that checks the segments in reverse order."""
    verification = DirectoryVerification(directories, FILES)
    checked = [check_segment(work, FILES) for work in reversed(verification.work)]
    return list(verification.rows(checked[::-1]))


@contextmanager
def of_an_owner(directory):
    """Lock the directory as its owner does, and yield a verification of it."""
    lock = DirectoryLock(directory)
    try:
        yield DirectoryVerification([directory], FILES)
    finally:
        lock.release()


def found_by_check(directory):
    return sorted(DirectoryCheck(directory, FILES).findings())


def flip(directory):
    log = directory / f"{MIDDLE}.log"
    overwrite(log, 700, bytes([log.read_bytes()[700] ^ 1]))


def tear(directory, segment=LAST):
    log = directory / f"{segment}.log"
    log.write_bytes(log.read_bytes()[:-10])


def tear_a_sealed_one(directory):
    tear(directory, FIRST)


def repeat_offsets(directory):
    overwrite(directory / f"{MIDDLE}.log", 0, (131).to_bytes(8, "big"))


def overlap(directory):
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        path = directory / f"{MIDDLE}{suffix}"
        path.rename(path.with_name(f"{131:020d}{suffix}"))


def miscount(directory):
    log = directory / f"{MIDDLE}.log"
    content = bytearray(log.read_bytes())
    header = scan(content)[1]
    content[header.position + 57 : header.position + 61] = (header.record_count - 1).to_bytes(4, "big")
    seal(content, header.position, header.end_position)
    log.write_bytes(content)


def mislead(directory):
    overwrite(directory / f"{MIDDLE}.index", 4, (2628).to_bytes(4, "big"))


def disorder(directory):
    overwrite(directory / f"{MIDDLE}.index", 8, (28).to_bytes(4, "big"))


def lie_about_time(directory):
    overwrite(directory / f"{MIDDLE}.timeindex", 7, b"\x01")


def abort(directory):
    span = AbortedSpan(ProducerId(1), Offset(150), Offset(140), Offset(140))
    (directory / f"{MIDDLE}.txnindex").write_bytes(encode(span))


def change_epoch(directory):
    overwrite(directory / f"{MIDDLE}.log", 12, (5).to_bytes(4, "big"))


def lose_a_log(directory):
    (directory / f"{LAST}.log").unlink()


def lose_the_topic(directory):
    (directory / PARTITION / "partition.metadata").unlink()


def add_an_unknown_entry(directory):
    (directory / "lost+found").mkdir()


ANYWHERE = None
DAMAGE = [
    pytest.param(flip, 132, (".log", 609, "checksum is 0x"), id="checksum"),
    pytest.param(tear, 268, (".log", 14334, "recovery cuts it off"), id="torn"),
    pytest.param(tear_a_sealed_one, 0, (".log", 13959, "nothing after it can be read"), id="torn-sealed"),
    pytest.param(repeat_offsets, 132, (".log", 0, "but 132 or more must follow"), id="offsets"),
    pytest.param(overlap, 131, (".log", ANYWHERE, "begins before offset 132"), id="overlap"),
    pytest.param(miscount, 132, (".log", 609, "bytes remain after the last record"), id="count"),
    pytest.param(mislead, 132, (".index", 0, "no batch begins at position 2628"), id="index"),
    pytest.param(disorder, 132, (".index", 8, "relative offset 28"), id="index-order"),
    pytest.param(lie_about_time, 132, (".timeindex", 0, "the latest one there is"), id="timeindex"),
    pytest.param(abort, 132, (".txnindex", 0, "transaction at 150 to 140"), id="txnindex"),
    pytest.param(change_epoch, 132, (".log", 0, "leader-epoch-checkpoint says 0"), id="epoch"),
    pytest.param(lose_a_log, None, (".index", ANYWHERE, "its .log is missing"), id="index without a log"),
    pytest.param(lose_the_topic, None, (".metadata", ANYWHERE, "missing"), id="metadata"),
    pytest.param(add_an_unknown_entry, None, ("lost+found", ANYWHERE, "a broker refuses"), id="unknown"),
]


@pytest.mark.parametrize(("damage", "segment", "told"), DAMAGE)
def test_damage_is_reported_for_its_segment(directory, damage, segment, told):
    """Each kind of damage is reported for its segment, and all rows together have the findings of `topicfs check`."""
    damage(directory)
    rows = verify(directory)
    assert found_by_check(directory) == sorted(wrong for row in rows for wrong in row.wrong)
    suffix, position, cause = told
    assert [segment] == [
        row.segment
        for row in rows
        for wrong in row.wrong
        if str(wrong.file).endswith(suffix) and wrong.position == position and cause in wrong.cause
    ]


def test_what_a_broker_wrote_is_sound():
    """For a broker's undamaged directory, each segment has a row without findings and with the numbers of its log."""
    rows = verify(LOG_DIRS)
    assert len(list(LOG_DIRS.glob("*/*.log"))) == len(rows)
    assert [] == [wrong for row in rows for wrong in row.wrong]
    of_none = [row for row in rows if row.topic == "g-none"]
    assert [(0, 0, 131, 132), (132, 132, 267, 136), (268, 268, 399, 132)] == [
        (row.segment, row.first_offset, row.last_offset, row.records) for row in of_none
    ]
    assert [path.stat().st_size for path in sorted((LOG_DIRS / PARTITION).glob("*.log"))] == [
        row.bytes for row in of_none
    ]
    assert {("none",), ("gzip",), ("lz4",), ("zstd",)} == {
        tuple(row.codecs) for row in rows if row.topic.startswith("g-") and row.batches
    }


def test_what_a_living_owner_has_not_finished_is_no_error(directory):
    """A batch that is being appended, and a segment that was removed after the listing, are not findings."""
    with (directory / f"{LAST}.log").open("ab") as log:
        log.write((directory / f"{LAST}.log").read_bytes()[:200])
    with of_an_owner(directory) as verification:
        for suffix in (".log", ".index", ".timeindex"):
            (directory / f"{FIRST}{suffix}").unlink()
        rows = list(verification.rows([check_segment(work, FILES) for work in verification.work]))
    assert [(132, ()), (268, ())] == [(row.segment, tuple(row.wrong)) for row in rows]


def test_a_removed_last_segment_makes_checkpoints_no_finding(directory):
    """If the last segment is removed during the check, a checkpoint beyond the remaining segments is no finding.

    The end of the log is then unknown.
    """
    with of_an_owner(directory) as verification:
        (directory / f"{LAST}.log").unlink()
        rows = list(verification.rows([check_segment(work, FILES) for work in verification.work]))
    assert [(0, ()), (132, ())] == [(row.segment, tuple(row.wrong)) for row in rows]


def test_a_segment_compacted_away_meanwhile_overlaps_nothing(directory):
    """A segment that is compacted into the previous segment during the check does not count as overlapping it."""
    with of_an_owner(directory) as verification:
        _, middle, last = [check_segment(work, FILES) for work in verification.work]
        log = directory / f"{FIRST}.log"
        log.write_bytes(log.read_bytes() + (directory / f"{MIDDLE}.log").read_bytes())
        for suffix in (".log", ".index", ".timeindex"):
            (directory / f"{MIDDLE}{suffix}").unlink()
        first = check_segment(verification.work[0], FILES)
        rows = list(verification.rows([first, middle, last]))
    assert [] == [wrong for row in rows for wrong in row.wrong]


def test_a_partition_may_stand_in_directories_of_two_brokers_but_not_twice_in_one(directory, tmp_path):
    """A partition may be in the directories of two brokers; two copies in one broker's log.dirs are a finding."""
    other = tmp_path / "other"
    shutil.copytree(directory, other)
    (wrong,) = [wrong for row in verify(directory, other) for wrong in row.wrong]
    assert (other / PARTITION, f"{PARTITION} is in {directory}, too") == (wrong.file, wrong.cause)
    meta = (other / "meta.properties").read_text()
    (other / "meta.properties").write_text(meta.replace("node.id=1", "node.id=2"))
    rows = verify(directory, other)
    assert ([], 6) == ([wrong for row in rows for wrong in row.wrong], len(rows))


def test_a_directory_that_is_none_is_refused(tmp_path):
    """A directory that is not a data directory gives a one-line error with its name."""
    (tmp_path / "photos").mkdir()
    with pytest.raises(PipelineError, match="not a data directory"):
        DirectoryVerification([tmp_path], FILES)


@pytest.mark.parametrize(
    ("sizes", "tasks"),
    [
        ([], []),
        ([10], [range(1)]),
        ([40, 40, 40], [range(2), range(2, 3)]),
        ([10, 500, 10, 10], [range(1, 2), range(2, 4), range(1)]),
    ],
)
def test_neighbors_make_a_task_and_the_largest_comes_first(sizes, tasks):
    """Neighboring segments share a task. The largest task comes first, and a huge segment has its own task."""
    assert tasks == pack([size * FILE_BYTES for size in sizes], task_bytes=100 * FILE_BYTES)


def test_there_are_never_more_tasks_than_can_be_put_together():
    """The number of tasks is limited. If there is more work, each task gets a larger part of the work."""
    assert MAX_TASKS / 2 < len(pack([0] * 10_000, task_bytes=1)) <= MAX_TASKS
