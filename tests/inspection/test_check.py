"""`topicfs check` finds every kind of fault in a data directory, and none in a directory that a broker wrote."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.doubles.damage import flip, overwrite
from topicfs.inspection.check.directory import DirectoryCheck, duplicates
from topicfs.inspection.check.segment import SegmentCheck
from topicfs.storage.codec.batch import assign_offsets, scan, seal
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.disk.lock import DirectoryLock
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import Finding, NotALogDirectoryError
from topicfs.storage.indexes.transaction_index import AbortedSpan
from topicfs.storage.indexes.transaction_index import encode as encode_aborted
from topicfs.storage.model import Offset, Position, ProducerId, Record, Timestamp, TopicPartition

LOG_DIRS = Path(__file__).parents[1] / "vectors" / "kafka" / "log-dirs"
SEGMENT = "g-none-0/00000000000000000132"
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
)


@pytest.fixture
def directory(tmp_path) -> Path:
    """A cleanly closed broker's directory with the partition g-none-0: segments 0, 132 and 268, offsets 0 to 399."""
    shutil.copytree(LOG_DIRS / "g-none-0", tmp_path / "g-none-0")
    for name in (*CHECKPOINTS, "meta.properties", ".kafka_cleanshutdown"):
        shutil.copy(LOG_DIRS / name, tmp_path / name)
    return tmp_path


def check(directory: Path) -> list[Finding]:
    return list(DirectoryCheck(directory, NativeFileSystem(read_only=True)).findings())


def the_finding(directory: Path, file: str) -> Finding:
    """Return the only finding, which must be in `file`."""
    findings = check(directory)
    assert [directory / file] == [finding.file for finding in findings]
    return findings[0]


def snapshot(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return all observable state of a directory."""
    return {
        str(path): (
            path.stat().st_mtime_ns,
            path.stat().st_size,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(directory.rglob("*"))
    }


@pytest.mark.parametrize("partition", ["every", "g-none-0"])
def test_what_a_broker_wrote_is_sound(partition, tmp_path):
    """A broker's log directory, even with compacted and compressed logs, gives no finding and is not changed."""
    source = LOG_DIRS if partition == "every" else LOG_DIRS / partition
    shutil.copytree(source, tmp_path / "copy" / ("" if partition == "every" else partition))
    before = snapshot(tmp_path)
    assert [] == check(tmp_path / "copy")
    assert before == snapshot(tmp_path)


def test_progress_is_reported_in_bytes_of_log(directory):
    """The bytes of all progress reports add up to the announced total."""
    examination = DirectoryCheck(directory, NativeFileSystem(read_only=True))
    passed: list[int] = []
    assert [] == list(examination.findings(passed.append))
    size = sum(path.stat().st_size for path in (directory / "g-none-0").glob("*.log"))
    assert (size, size, size) == (examination.total_bytes, sum(passed), examination.summary.log_bytes)
    assert 1 == examination.summary.partitions


def test_a_flipped_byte_is_found_at_its_batch(directory):
    """A damaged batch is one finding with the batch's position and both checksums."""
    log = directory / f"{SEGMENT}.log"
    flip(log, 700)
    finding = the_finding(directory, f"{SEGMENT}.log")
    assert 609 == finding.position
    assert finding.cause.startswith("checksum is 0x")
    assert finding.cause.endswith(" (offsets 138 to 155); reading can go on at 156")


def test_the_end_of_a_damaged_last_batch_is_the_end_of_the_log(directory):
    """A finding in the last batch says that reading can go on at the log end offset."""
    last = max(directory.glob("g-none-0/*.log"))
    flip(last, last.stat().st_size - 1)
    (finding,) = check(directory)
    assert finding.cause.endswith(" to 399); reading can go on at 400")


def test_damage_does_not_hide_what_comes_after(directory):
    """Two damaged batches of one segment are two findings."""
    log = directory / f"{SEGMENT}.log"
    for position in (700, 12_000):
        flip(log, position)
    assert 2 == len(check(directory))


def test_a_wrong_length_ends_the_check_of_a_segment(directory):
    """A wrong length hides the next batch, so the finding has the number of unchecked bytes after it."""
    size = (directory / f"{SEGMENT}.log").stat().st_size
    overwrite(directory / f"{SEGMENT}.log", 8, b"\x7f\xff\xff\xff")
    finding = check(directory)[0]
    assert (directory / f"{SEGMENT}.log", 0) == (finding.file, finding.position)
    assert f"({size} bytes; nothing after it can be read)" in finding.cause


def test_a_torn_tail_is_found_unless_somebody_is_writing(directory):
    """An unfinished batch at the end is an error in a closed directory, but normal in one that is in use."""
    log = directory / "g-none-0" / "00000000000000000268.log"
    end = log.stat().st_size
    with log.open("ab") as file:
        file.write(log.read_bytes()[:200])
    finding = the_finding(directory, "g-none-0/00000000000000000268.log")
    assert end == finding.position
    assert "recovery cuts it off" in finding.cause
    lock = DirectoryLock(directory)
    try:
        assert [] == check(directory)
    finally:
        lock.release()


def test_offsets_that_do_not_follow_are_found(directory):
    """A batch that repeats offsets of the previous batch is found by comparing the two batches.

    No checksum covers a base offset.
    """
    log = directory / f"{SEGMENT}.log"
    overwrite(log, 0, (131).to_bytes(8, "big"))
    causes = [finding.cause for finding in check(directory)]
    assert "base offset 131, but 132 or more must follow" in causes


def test_leader_epochs_are_held_against_their_checkpoint(directory):
    """Leader epochs must never decrease, and must equal those of the checkpoint; no checksum covers them."""
    overwrite(directory / f"{SEGMENT}.log", 12, (5).to_bytes(4, "big"))
    causes = [finding.cause for finding in check(directory)]
    assert ["leader epoch 5, leader-epoch-checkpoint says 0", "leader epoch 0 after 5"] == causes


def test_a_wrong_max_timestamp_is_found(tmp_path):
    """A max timestamp that is not the records' latest timestamp is found even if the checksum is valid."""
    batch = bytearray(encode([Record(Offset(0), Timestamp(1000), None, b"x")]))
    batch[35:43] = (2000).to_bytes(8, "big")
    seal(batch, 0, len(batch))
    write_partition(tmp_path, batch)
    finding = the_finding(tmp_path, "t-0/00000000000000000000.log")
    assert (
        Finding(finding.file, Position(0), "max timestamp is 2000, but its latest record has 1000") == finding
    )


def test_records_that_do_not_ascend_are_found(tmp_path):
    """Records whose offsets do not ascend are found.

    The checksum of such a batch is valid if a client sent the batch in this form.
    """
    batch = bytearray(encode([Record(Offset(at), Timestamp(5), None, b"x") for at in range(3)]))
    first_record = 61
    batch[first_record + 3] = 0x02
    seal(batch, 0, len(batch))
    write_partition(tmp_path, batch)
    assert (
        "the offsets of its records do not ascend"
        == the_finding(tmp_path, "t-0/00000000000000000000.log").cause
    )


def write_partition(directory: Path, log: bytes) -> None:
    partition = directory / "t-0"
    partition.mkdir()
    (partition / "00000000000000000000.log").write_bytes(log)
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: 1EvPSKI_SvihSIy3lMKMvg")


def test_offsets_too_far_from_the_base_are_found(tmp_path):
    """An offset more than 2^31-1 above the segment's base is found, because the indexes cannot hold it."""
    batch = bytearray(encode([Record(Offset(0), Timestamp(5), None, b"x")], BatchStamp()))
    assign_offsets(batch, 0, base_offset=2**31, leader_epoch=0)
    write_partition(tmp_path, batch)
    assert "too far above" in the_finding(tmp_path, "t-0/00000000000000000000.log").cause


@pytest.mark.parametrize(
    ("suffix", "position", "data", "causes"),
    [
        pytest.param(
            ".index", 4, (2628).to_bytes(4, "big"), ["no batch begins at position 2628"], id="position"
        ),
        pytest.param(
            ".index",
            0,
            (27).to_bytes(4, "big"),
            ["offset 159, but the batch at 2627 ends with offset 160", "no batch ends with offset 159"],
            id="offset",
        ),
        pytest.param(
            ".index",
            8,
            (28).to_bytes(4, "big"),
            [
                "relative offset 28 at 4989 after 28 at 2627",
                "offset 160, but the batch at 4989 ends with offset 183",
            ],
            id="order",
        ),
        pytest.param(
            ".timeindex",
            7,
            b"\x01",
            ["timestamp 1767225757953 up to offset 160, but the latest one there is 1767225758200"],
            id="time",
        ),
        pytest.param(".timeindex", 11, b"\x1d", ["no batch ends with offset 161"], id="time-offset"),
    ],
)
def test_wrong_index_entries_are_found(directory, suffix, position, data, causes):
    """Index entries with a wrong position, offset, timestamp or order are found."""
    index = directory / f"{SEGMENT}{suffix}"
    overwrite(index, position, data)
    assert causes == [finding.cause for finding in check(directory) if finding.file == index]


def test_an_entry_behind_the_log_is_found(directory):
    """An index entry beyond the end of a truncated log is found."""
    log = directory / "g-none-0" / "00000000000000000268.log"
    log.write_bytes(log.read_bytes()[:11_145])
    causes = [finding.cause for finding in check(directory)]
    assert "offset 390 at 13912 leads beyond the last batch" in causes
    assert "g-none-0: recovery point 400 is beyond the log's end 361" in causes
    assert "g-none-0: high watermark 400 is beyond the log's end 361" in causes


def test_index_files_of_a_wrong_size_are_found(directory):
    """Half an entry, and unused slots in a cleanly closed directory, are found."""
    for suffix, size in ((".index", 3), (".timeindex", 24)):
        with (directory / f"{SEGMENT}{suffix}").open("ab") as file:
            file.write(bytes(size))
    assert [
        "size 51 is not a multiple of 8",
        "2 unused slots, which a broker takes for entries",
    ] == [finding.cause for finding in check(directory)]


def test_room_in_an_active_index_is_fine_after_a_crash(directory):
    """After a crash, unused slots in an active index are not a finding.

    A clean shutdown removes unused slots, so after a clean shutdown they are a finding.
    """
    (directory / ".kafka_cleanshutdown").unlink()
    with (directory / "g-none-0" / "00000000000000000268.index").open("ab") as file:
        file.write(bytes(80))
    assert [] == check(directory)


def test_the_older_brokers_way_of_indexing_is_accepted(directory):
    """The index of an older broker gives no finding.

    For an append of several batches, brokers up to 3.9 write the append's last offset with the first batch's
    position. A lookup can use such an entry.
    """
    index = directory / f"{SEGMENT}.index"
    first, second = (int.from_bytes(index.read_bytes()[at : at + 4], "big") for at in (0, 8))
    ends = [header.last_offset - 132 for header in scan((directory / f"{SEGMENT}.log").read_bytes())]
    later = next(end for end in ends if first < end < second)
    overwrite(index, 0, later.to_bytes(4, "big"))
    assert [] == check(directory)


def test_files_without_their_segment_are_found(directory):
    """An index without its log file is a finding."""
    shutil.copy(directory / f"{SEGMENT}.index", directory / "g-none-0" / "00000000000000000500.index")
    assert (
        "belongs to no segment: its .log is missing"
        == the_finding(directory, "g-none-0/00000000000000000500.index").cause
    )


def test_aborted_transactions_that_do_not_ascend_are_found(directory):
    """Aborted transactions that are not in the order of their markers are found."""
    index = directory / f"{SEGMENT}.txnindex"
    spans = [(140, 150), (140, 150), (160, 155)]
    index.write_bytes(
        b"".join(
            encode_aborted(AbortedSpan(ProducerId(1), Offset(first), Offset(last), Offset(last)))
            for first, last in spans
        )
    )
    assert [
        Finding(index, Position(34), "transaction at 140 to 150 after marker 150"),
        Finding(index, Position(68), "transaction at 160 to 155 after marker 150"),
    ] == check(directory)


def test_a_segments_numbers_are_learnt_on_the_way(directory):
    """The reported batches and records of a segment are the valid ones. The reported size is the size of the file."""
    partition = DirectoryCheck(directory, NativeFileSystem(read_only=True)).partition(
        TopicPartition("g-none", 0)
    )
    log = directory / f"{SEGMENT}.log"
    _, work, _ = partition.segments()
    whole, damaged = [SegmentCheck(work, NativeFileSystem(read_only=True)) for _ in range(2)]
    assert [] == list(whole.findings(lambda _: None))
    flip(log, 700)
    assert 1 == len(list(damaged.findings(lambda _: None)))
    size = log.stat().st_size
    headers = list(scan(log.read_bytes()))
    facts = whole.facts
    assert (size, len(headers), 136, 132, 267) == (
        facts.log_bytes,
        facts.batches,
        facts.records,
        facts.first_offset,
        facts.last_offset,
    )
    assert (max(header.max_timestamp for header in headers), {Codec.NONE}) == (
        facts.largest_timestamp,
        facts.codecs,
    )
    assert (size, len(headers) - 1) == (damaged.facts.log_bytes, damaged.facts.batches)
    assert 136 - headers[1].record_count == damaged.facts.records


def test_a_partition_in_two_directories_is_found(directory, tmp_path):
    """A partition in two directories is a finding, because either copy may be the valid one."""
    shutil.copytree(directory / "g-none-0", tmp_path / "other" / "g-none-0")
    files = NativeFileSystem(read_only=True)
    examinations = [DirectoryCheck(one, files) for one in (directory, tmp_path / "other")]
    cause = f"g-none-0 is in {directory}, too"
    assert [Finding(tmp_path / "other" / "g-none-0", None, cause)] == list(duplicates(examinations))


def test_segments_that_overlap_are_found(directory):
    """A segment that begins before the end of the previous one is a finding."""
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        path = directory / f"{SEGMENT}{suffix}"
        path.rename(path.with_name(f"{131:020d}{suffix}"))
    assert "begins before offset 132, where the segment before it ends" in [
        finding.cause for finding in check(directory)
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("g-none-0/leader-epoch-checkpoint", "0\n2\n0 0\n"),
        ("g-none-0/partition.metadata", "version: 0\ntopic_id: short"),
        ("g-none-0/00000000000000000132.snapshot", "damaged"),
        ("recovery-point-offset-checkpoint", "0\n1\ng-none 0\n"),
        ("meta.properties", "version=7\n"),
        *product(
            ("topicfs.topics", "topicfs.writes", "topicfs.producers"),
            ("", "{", '{"version": 7}', "[]", '{"version": 1}'),
        ),
    ],
)
def test_small_files_that_cannot_be_read_are_found(directory, name, content):
    """Unreadable checkpoints, metadata and snapshots are found; they are read as a broker reads them.

    Damaged files of topicfs's own are found, too, because no engine may write to a directory with such a file.
    """
    (directory / name).write_text(content)
    the_finding(directory, name)


def test_a_missing_topic_id_is_found(directory):
    """A partition directory without partition.metadata is a finding."""
    (directory / "g-none-0" / "partition.metadata").unlink()
    assert "missing" == the_finding(directory, "g-none-0/partition.metadata").cause


def test_two_ids_of_one_topic_are_found(directory):
    """Partitions of one topic with different topic ids are a finding."""
    (directory / "g-none-1").mkdir()
    other = directory / "g-none-1" / "partition.metadata"
    other.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    assert the_finding(directory, "g-none-1/partition.metadata").cause.startswith("topic id AAAA")


def test_a_directory_that_stops_a_broker_is_found(directory):
    """A directory name with which a broker refuses to start is found; plain files and deleted partitions are fine."""
    (directory / "lost+found").mkdir()
    (directory / "topicfs.reserve").write_bytes(bytes(100))
    (directory / "g-none-3.0123456789abcdef0123456789abcdef-delete").mkdir()
    assert "a broker refuses to start with it" in the_finding(directory, "lost+found").cause


def test_something_else_than_a_data_directory_is_refused(tmp_path):
    """A directory such as a home directory gives one clear error rather than a finding for each folder."""
    (tmp_path / "holiday photos").mkdir()
    with pytest.raises(NotALogDirectoryError):
        DirectoryCheck(tmp_path, NativeFileSystem(read_only=True))


@pytest.mark.parametrize("inside", ["X", "conf.d", None])
def test_a_folder_whose_name_ends_in_a_number_is_no_partition(tmp_path, inside):
    """A folder like /etc/X-11, which has neither a topic id nor a segment, does not count as a partition."""
    (tmp_path / "X-11").mkdir()
    if inside:
        (tmp_path / "X-11" / inside).mkdir()
        (tmp_path / "profile.d").mkdir()
    with pytest.raises(NotALogDirectoryError, match="not a data directory"):
        DirectoryCheck(tmp_path, NativeFileSystem(read_only=True))


def test_a_partition_is_no_data_directory(directory):
    """Checking a single partition's directory is an error rather than a check without findings."""
    with pytest.raises(NotALogDirectoryError, match="not a data directory"):
        DirectoryCheck(directory / "g-none-0", NativeFileSystem(read_only=True))


def test_settings_that_cannot_be_applied_are_found(directory):
    """Invalid settings are reported, because opening ignores them and the topic lacks what its owner expects."""
    (directory / "topicfs.topics").write_text(
        '{"version": 1, "topics": {"g-none": {"id": "x", "overrides": {"retention.ms": "soon"}}}}'
    )
    assert "g-none: retention.ms=soon: must be" in the_finding(directory, "topicfs.topics").cause


def test_a_directory_in_use_by_another_process_is_reported(directory):
    """Another process's lock on the directory is reported and left alone."""
    script = (
        "import sys; from pathlib import Path; from topicfs.storage.disk.lock import DirectoryLock;"
        "lock = DirectoryLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as holder:
        assert b"held\n" == holder.stdout.readline()
        examination = DirectoryCheck(directory, NativeFileSystem(read_only=True))
        assert examination.in_use
        assert [] == list(examination.findings())
        holder.stdin.close()
