"""Tests of the file of commits: it has one line per commit, survives crashes, and drops old entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.mortal_disk import End, MortalDisk, dies, every_step
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.disk.names import COMMITTED_WRITES, WriteId
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import ProducerId
from topicfs.storage.staging import record
from topicfs.storage.staging.manifest import Content
from topicfs.storage.staging.record import RETENTION_MS, CommitRecord, CommittedQuery

DATA = Path("/data")
FILE = DATA / COMMITTED_WRITES
TOPIC, OTHER = "1EvPSKI_SvihSIy3lMKMvg", "Zk0Zq0bHQ6uYf1m0tqYt2A"
NOW = 1_700_000_000_000


def record_on(disk: SimulatedDisk) -> CommitRecord:
    if not disk.exists(DATA):
        disk.make_directory(DATA)
        disk.sync_directory(Path("/"))
    return CommitRecord(disk, lambda: [DATA])


def committed(batch: int, time_ms: int = NOW) -> CommittedQuery:
    return CommittedQuery(batch, ProducerId(2**62 + 7), batch, Content(50, 2**64 - 1 - batch), time_ms)


def note(disk: SimulatedDisk, batch: int, query: str = "query", target: str = TOPIC) -> None:
    record_on(disk).note(WriteId(query, batch, target), committed(batch), lambda: {TOPIC, OTHER})


def entries(disk: SimulatedDisk) -> dict[str, int]:
    """Return the last number of each series, as a new process would read it."""
    return {series: one.batch for series, one in record_on(disk).read().items()}


def test_what_was_noted_is_read() -> None:
    """All fields are read, for all queries or one query. `q` and `q.2` are different queries."""
    disk = SimulatedDisk()
    for query, target in (("q", TOPIC), ("q", OTHER), ("q", ""), ("q.2", TOPIC), ("r", TOPIC)):
        for batch in (3, 4):
            note(disk, batch, query, target)
    found = record_on(disk).read()
    assert {f"q@{TOPIC}", f"q@{OTHER}", "q", f"q.2@{TOPIC}", f"r@{TOPIC}"} == found.keys()
    assert {committed(4)} == set(found.values())
    assert {f"r@{TOPIC}": committed(4)} == record_on(disk).read("r")
    assert committed(4) == record_on(disk).read("q")[f"q@{OTHER}"]


@pytest.mark.parametrize("call", ["exists", "read_bytes"])
def test_a_reader_sees_no_damage_while_the_first_commit_is_written(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A process that reads the file while the first commit creates it finds no damage."""
    disk = SimulatedDisk()
    note(disk, 7)
    record = record_on(disk)
    disk.rename(FILE, FILE.with_suffix(".tmp"))

    def create_afterwards(path: Path) -> object:
        monkeypatch.undo()
        try:
            return getattr(disk, call)(path)
        finally:
            disk.rename(FILE.with_suffix(".tmp"), FILE)

    monkeypatch.setattr(disk, call, create_afterwards)
    assert record.read_copy(DATA) in ({}, {f"query@{TOPIC}": committed(7)})


def test_a_commit_writes_its_line_alone() -> None:
    """A commit appends and syncs one line; it does not rewrite the file."""
    disk = SimulatedDisk()
    for number in range(300):
        note(disk, 0, f"query-{number}")
    before, _ = disk.read_bytes(FILE), disk.calls.clear()
    note(disk, 1, "query-7")
    changes = [name for name, _ in disk.calls if name not in ("open", "read_bytes", "close")]
    assert ["pwrite", "sync"] == changes
    added = disk.read_bytes(FILE).removeprefix(before)
    assert (True, 1) == (added.startswith(b"query-7@"), added.count(b"\n"))


def test_the_file_stays_as_small_as_what_it_holds() -> None:
    """The file is rewritten whenever its size has doubled, so that it has only a few lines per query."""
    disk = SimulatedDisk()
    for batch in range(1000):
        note(disk, batch)
    assert {f"query@{TOPIC}": 999} == entries(disk)
    assert disk.read_bytes(FILE).count(b"\n") <= 105


@pytest.mark.parametrize("end", End, ids=str)
@pytest.mark.parametrize("spare", [0, 100], ids=["rewritten", "extended"])
def test_a_crash_leaves_the_entry_before_or_the_one_noted(
    monkeypatch: pytest.MonkeyPatch, end: End, spare: int
) -> None:
    """After a crash at any step the file has the old or the new entry, and the next commit works."""
    monkeypatch.setattr(record, "_SPARE_LINES", spare)
    for steps in every_step():
        disk = MortalDisk(seed=steps)
        for batch in range(3):
            note(disk, batch)
            note(disk, batch, "other")
        died = dies(disk, lambda: note(disk, 3), steps)  # noqa: B023
        end.of(disk)
        found = entries(disk)
        assert 2 == found.pop(f"other@{TOPIC}")
        assert found in ([{f"query@{TOPIC}": 2}, {f"query@{TOPIC}": 3}] if died else [{f"query@{TOPIC}": 3}])
        note(disk, 4)
        end.of(disk)
        assert {f"query@{TOPIC}": 4, f"other@{TOPIC}": 2} == entries(disk)
        if not died:
            break
    assert steps >= 1


@pytest.mark.parametrize("cut", range(1, 60, 7))
@pytest.mark.parametrize("filler", [b"", b"\0"])
def test_a_line_that_a_crash_cut_short_is_no_commit(cut: int, filler: bytes) -> None:
    """A line without a newline, or with zeros, is ignored, and the next commit replaces it."""
    disk = SimulatedDisk()
    note(disk, 0)
    whole = disk.read_bytes(FILE)
    note(disk, 1)
    torn = disk.read_bytes(FILE)
    for data in (
        torn[:-cut] + filler * cut,
        whole + filler * cut + torn[len(whole) + cut :] if filler else whole,
    ):
        disk.write_bytes(FILE, data)
        assert {f"query@{TOPIC}": 0} == entries(disk)
        note(disk, 2)
        assert {f"query@{TOPIC}": 2} == entries(disk)


def test_any_other_damage_is_an_error() -> None:
    """Any other damage raises an error; otherwise a committed write could be appended again."""
    disk = SimulatedDisk()
    for batch in range(2):
        note(disk, batch)
        note(disk, batch, "other")
    data = disk.read_bytes(FILE)
    lines = data.splitlines(keepends=True)
    damaged = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data) - 1)]
    damaged += [b"".join(lines[:at] + lines[at + 1 :]) for at in range(len(lines) - 1)]
    damaged += [b"", b"2 0", b"\0" * len(data)]
    for one in damaged:
        disk.write_bytes(FILE, one)
        with pytest.raises(CorruptionError, match="not a committed-writes file"):
            record_on(disk).read()
        with pytest.raises(CorruptionError):
            note(disk, 2)
        assert one == disk.read_bytes(FILE)


@pytest.mark.parametrize("operation", ["pwrite", "sync"])
def test_a_commit_that_is_not_on_disk_is_not_read(operation: str) -> None:
    """If a commit could not be written or synced, readers do not see it, so its write is continued."""
    disk = SimulatedDisk()
    note(disk, 0)
    disk.fail(operation)
    with pytest.raises(OSError, match=COMMITTED_WRITES):
        note(disk, 1)
    assert {f"query@{TOPIC}": 0} == entries(disk)
    note(disk, 1)
    disk.crash(keep=0.0)
    assert {f"query@{TOPIC}": 1} == entries(disk)


def test_a_full_disk_loses_no_commit() -> None:
    """A full disk loses no committed line."""
    disk = SimulatedDisk()
    note(disk, 0)
    disk.fill(0)
    for batch in range(1, 200):
        try:
            note(disk, batch)
        except OSError:
            break
    assert {f"query@{TOPIC}": batch - 1} == entries(disk)
    disk.fill(None)
    note(disk, batch)
    assert {f"query@{TOPIC}": batch} == entries(disk)


def test_a_topic_takes_its_entries_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry for the ID of a deleted topic is dropped.

    An entry of a query whose rows name their topics stays, because it is not for a single topic.
    """
    monkeypatch.setattr(record, "_SPARE_LINES", 0)
    disk = SimulatedDisk()
    for query, target in (("a", TOPIC), ("b", OTHER), ("c", "")):
        note(disk, 3, query, target)
    for batch in range(4, 9):
        record_on(disk).note(WriteId("a", batch, TOPIC), committed(batch), lambda: {TOPIC})
    assert {f"a@{TOPIC}": 8, "c": 3} == entries(disk)


def test_a_year_without_a_commit_is_forgotten_but_not_unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries older than a year are dropped, and leave a mark for their topic.

    An entry that is one millisecond younger is kept. An entry whose time is in the future is kept as well; such a
    time occurs after the clock was set back.
    """
    monkeypatch.setattr(record, "_SPARE_LINES", 0)
    disk = SimulatedDisk()
    for query, target in (("old", TOPIC), ("young", TOPIC), ("old", "")):
        age = RETENTION_MS + (query == "old")
        record_on(disk).note(WriteId(query, 3, target), committed(3, NOW - age), lambda: {TOPIC, OTHER})
    record_on(disk).note(
        WriteId("ahead", 3, OTHER), committed(3, NOW + 2 * RETENTION_MS), lambda: {TOPIC, OTHER}
    )
    for batch in range(4, 12):
        note(disk, batch, "alive", OTHER)
    found = entries(disk)
    assert {f"young@{TOPIC}", f"ahead@{OTHER}", f"alive@{OTHER}", f"@{TOPIC}", "@"} == found.keys()
    forgotten = {target: record_on(disk).forgot(WriteId("any", 1, target)) for target in (TOPIC, OTHER, "")}
    assert {TOPIC: True, OTHER: False, "": True} == forgotten
