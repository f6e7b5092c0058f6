"""Tests of the file of share groups' settings and rejected records, and of reading it after a crash."""

from __future__ import annotations

import errno
import uuid
from pathlib import Path

import pytest

from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.coordination.share_groups import RejectedBy
from topicfs.coordination.shares import journal as journal_module
from topicfs.coordination.shares.journal import QueueJournal, RejectedKey, RejectedRecord
from topicfs.storage.model import Offset, Timestamp

DATA = Path("/data")
FILE = DATA / "topicfs.queues"


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(DATA)
    return disk


def key(offset: int, group: str = "g") -> RejectedKey:
    return RejectedKey(group, uuid.UUID(int=7), 0, Offset(offset))


def record(deliveries: int = 5) -> RejectedRecord:
    return RejectedRecord(
        "orders", Timestamp(1_700_000_000_000), RejectedBy.LIMIT, deliveries, "bash, process 7"
    )


def test_what_was_written_is_read_back(disk: SimulatedDisk):
    """Settings and rejected records are read as they were written.

    If the journal has several lines about a group's settings or about a record, the last line counts.
    """
    journal = QueueJournal(disk, lambda: [DATA])
    assert not disk.exists(FILE)
    journal.set("g", {"share.delivery.count.limit": "3"})
    journal.set("h", {"share.delivery.count.limit": "4"})
    journal.set("h", {})
    journal.reject({key(1): record(), key(2): record()})
    journal.reject({key(1): record(4)})
    journal.forget([key(2), key(9)])

    for found in (journal, QueueJournal(disk, lambda: [DATA])):
        assert {"g": {"share.delivery.count.limit": "3"}} == found.settings
        assert {key(1): record(4)} == found.rejected


def test_a_line_is_json_that_names_the_record(disk: SimulatedDisk):
    """The lines are JSON that names the record, for people who read the file."""
    QueueJournal(disk, lambda: [DATA]).reject({key(42): record()})

    assert (
        b'{"group":"g","id":"AAAAAAAAAAAAAAAAAAAABw","partition":0,"offset":42,"topic":"orders","time":1700000000000,'
        b'"by":"limit","deliveries":5,"holder":"bash, process 7"}\n'
    ) == disk.read_bytes(FILE)


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_line_that_was_cut_off_does_not_count_and_hurts_no_other(disk: SimulatedDisk, cut: int):
    """A truncated last line does not count, and the next write begins a new line."""
    QueueJournal(disk, lambda: [DATA]).reject({key(1): record(), key(2): record()})
    content = disk.read_bytes(FILE)
    disk.write_bytes(FILE, content[:-cut])
    journal = QueueJournal(disk, lambda: [DATA])
    assert ({key(1), key(2)} if cut == 1 else {key(1)}) == set(journal.rejected)
    journal.reject({key(3): record()})

    assert {key(1), key(3)} <= set(QueueJournal(disk, lambda: [DATA]).rejected)


@pytest.mark.parametrize(
    "line", [b"\xff\xfe", b"[]", b"{}", b'{"group":7}', b'{"group":"g","id":"?","partition":0}']
)
def test_other_lines_are_skipped(disk: SimulatedDisk, line: bytes):
    """Lines that are not journal lines are skipped."""
    disk.write_bytes(FILE, line + b"\n")
    journal = QueueJournal(disk, lambda: [DATA])
    journal.reject({key(1): record()})

    assert {key(1)} == set(QueueJournal(disk, lambda: [DATA]).rejected)


def test_the_oldest_go_and_the_file_stays_small(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch):
    """The oldest records are removed, and the file is rewritten when most of its lines no longer count."""
    monkeypatch.setattr(journal_module, "MAX_REJECTED", 10)
    monkeypatch.setattr(journal_module, "_LINES_BEFORE_REWRITE", 50)
    journal = QueueJournal(disk, lambda: [DATA])
    journal.set("g", {"share.delivery.count.limit": "3"})
    for offset in range(500):
        journal.reject({key(offset): record()})

    assert [key(offset) for offset in range(490, 500)] == list(journal.rejected)
    again = QueueJournal(disk, lambda: [DATA])
    assert journal.settings == again.settings
    assert set(journal.rejected) <= set(again.rejected)
    assert 100 > disk.read_bytes(FILE).count(b"\n")


def test_a_write_that_fails_changes_nothing(disk: SimulatedDisk):
    """On a full disk the write fails, and the state stays as it was."""
    journal = QueueJournal(disk, lambda: [DATA])
    journal.reject({key(1): record()})
    disk.fail("pwrite", number=errno.ENOSPC, suffix="topicfs.queues")
    with pytest.raises(OSError, match="No space"):
        journal.reject({key(2): record()})

    assert {key(1)} == set(journal.rejected) == set(QueueJournal(disk, lambda: [DATA]).rejected)


def test_a_group_is_forgotten_whole(disk: SimulatedDisk):
    """Forgetting a group removes its settings and records, but no other group's."""
    journal = QueueJournal(disk, lambda: [DATA])
    journal.set("g", {"share.delivery.count.limit": "3"})
    journal.reject({key(1): record(), key(1, "other"): record()})
    journal.forget_group("g")

    again = QueueJournal(disk, lambda: [DATA])
    assert ({}, {key(1, "other")}) == (again.settings, set(again.rejected))


class Two:
    """Two directories, of which one or both are in service."""

    def __init__(self) -> None:
        self.serving = [Path("/a"), Path("/b")]

    def directories(self) -> list[Path]:
        return list(self.serving)

    def failed(self, directory: Path, error: OSError) -> None:
        del error
        self.serving.remove(directory)


@pytest.fixture
def two(disk: SimulatedDisk) -> Two:
    places = Two()
    for directory in places.serving:
        disk.make_directory(directory)
    return places


def kept(disk: SimulatedDisk, directory: str) -> QueueJournal:
    """Return the journal of one directory."""
    return QueueJournal(disk, lambda: [Path(directory)])


def test_every_directory_has_a_copy(disk: SimulatedDisk, two: Two):
    """The journal of each directory alone has all settings and records."""
    journal = QueueJournal(disk, two.directories, two.failed)
    journal.set("g", {"share.delivery.count.limit": "3"})
    journal.reject({key(1): record()})

    for directory in ("/a", "/b"):
        found = kept(disk, directory)
        assert ({"g": {"share.delivery.count.limit": "3"}}, {key(1): record()}) == (
            found.settings,
            found.rejected,
        )


@pytest.mark.parametrize("comes_back", ["meanwhile", "with the next start", "with the next change"])
@pytest.mark.parametrize("away", ["/a", "/b"])
def test_the_copy_of_a_directory_that_was_away_is_replaced(
    disk: SimulatedDisk, two: Two, away: str, comes_back: str
):
    """A returning directory's copy gets the lines that it missed, and loses records that were forgotten meanwhile."""
    journal = QueueJournal(disk, two.directories, two.failed)
    journal.reject({key(1): record(), key(2): record()})
    two.serving.remove(Path(away))
    journal.reject({key(3): record()})
    journal.forget([key(2)])
    two.serving = [Path("/a"), Path("/b")]
    if comes_back == "with the next start":
        journal = QueueJournal(disk, two.directories, two.failed)
    if comes_back == "with the next change":
        journal.reject({key(4): record()})
        journal.forget([key(4)])
    else:
        journal.update_copies()

    assert [{key(1), key(3)}] * 3 == [
        set(one.rejected) for one in (journal, kept(disk, "/a"), kept(disk, "/b"))
    ]


def test_a_disk_that_fails_takes_no_record_along(disk: SimulatedDisk, two: Two):
    """If one directory fails, the other one has the record. If both fail, an error is raised and nothing changes."""
    journal = QueueJournal(disk, two.directories, two.failed)
    journal.reject({key(1): record()})
    disk.fail("pwrite", suffix="/a/topicfs.queues")
    journal.reject({key(2): record()})
    assert [Path("/b")] == two.serving
    assert {key(1), key(2)} == set(kept(disk, "/b").rejected)
    disk.fail("pwrite", suffix="/b/topicfs.queues")
    with pytest.raises(OSError):
        journal.reject({key(3): record()})
    assert {key(1), key(2)} == set(journal.rejected)


def test_a_journal_is_copied_to_an_added_directory(disk: SimulatedDisk, two: Two):
    """A journal of an older version, without revisions, is copied to an added directory."""
    kept(disk, "/b").reject({key(1): record()})
    QueueJournal(disk, two.directories, two.failed).update_copies()

    assert {key(1): record()} == kept(disk, "/a").rejected
