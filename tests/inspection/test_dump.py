"""The dump of a broker's files equals the output of kafka-dump-log byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.doubles.damage import flip, overwrite
from tests.doubles.records import old_entry
from topicfs.inspection.dump.files import DumpLine, dump
from topicfs.inspection.dump.log import DumpOptions
from topicfs.inspection.dump.report import optional_long
from topicfs.storage.codec.batch import assign_offsets
from topicfs.storage.codec.compression.codecs import deflate
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import encode
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import CorruptionError, InvalidNameError
from topicfs.storage.indexes.transaction_index import AbortedSpan
from topicfs.storage.indexes.transaction_index import encode as encode_span
from topicfs.storage.model import Offset, ProducerId, Record, Timestamp

VECTORS = Path(__file__).parents[1] / "vectors" / "kafka"
LOG_DIRS = VECTORS / "log-dirs"

EVERY = ("g-none-0", "g-compact-0", "g-gzip-0", "g-lz4-0", "g-zstd-0")
DECODED = tuple(
    f"{topic}-{number}" for topic in ("__consumer_offsets", "__transaction_state") for number in range(4)
)
"""Partitions of coordinators' topics. kafka-dump-log printed their records with a decoder."""


@pytest.fixture(autouse=True)
def _in_log_dirs(monkeypatch):
    """Change to the log directory, because kafka-dump-log was given relative file names."""
    monkeypatch.chdir(LOG_DIRS)


def run(names, **options) -> list[DumpLine]:
    return list(dump(names, DumpOptions(**options), NativeFileSystem(read_only=True)))


def logs_of(partition: str) -> list[str]:
    return sorted(str(path.relative_to(LOG_DIRS)) for path in (LOG_DIRS / partition).glob("*.log"))


def printed(partition: str) -> str:
    """Return the standard output of Kafka's tool for a partition's log files, with the content of records."""
    text = (VECTORS / "dump" / f"{partition}.log.txt").read_text()
    return text.partition("Non-consecutive offsets in ")[0]


def dumped(segment: Path) -> list[str]:
    """Return the lines that are printed for the batches and records of a log file."""
    return output(run([str(segment)], print_data_log=True)).splitlines()[2:]


def output(lines) -> str:
    return "".join(f"{line.text}\n" for line in lines if not line.error)


def findings(lines) -> str:
    return "".join(f"{line.text}\n" for line in lines if line.error).replace(f"{LOG_DIRS}/", "")


@pytest.mark.parametrize("partition", [*EVERY, *DECODED])
def test_without_flags_only_batches_are_printed(partition):
    """The dump without flags is the full dump minus records, and does not report gaps."""
    every_line = printed(partition).splitlines(keepends=True)
    batch_lines = "".join(line for line in every_line if not line.startswith("|"))
    lines = run(logs_of(partition))
    assert (batch_lines, "") == (output(lines), findings(lines))


def test_deep_iteration_prints_records_without_their_content():
    """With --deep-iteration alone, the line of a record has neither a key nor a payload."""
    without = re.sub(r"(?m)^(\| .*?\])(?: key: .*| payload: .*)?$", r"\1", printed("g-none-0"))
    assert without == output(run(logs_of("g-none-0"), deep_iteration=True))


def test_skip_record_metadata_prints_keys_and_payloads_only():
    """--skip-record-metadata prints only key and payload; a record that has neither is an empty line."""
    lines = output(run(["g-none-0/00000000000000000000.log"], print_data_log=True, skip_record_metadata=True))
    records = [line for line in lines.splitlines()[2:] if not line.startswith("baseOffset")]
    assert ["", "| key: key-1 payload: value-1-abcdefghijabcdefghijabcdefghij"] == records[:2]
    assert records[5].startswith("| payload: value-5-")


def test_max_bytes_ends_before_the_batch_that_does_not_fit():
    """--max-bytes limits the bytes that are read, and bytes beyond the limit are not reported."""
    lines = output(run(["g-none-0/00000000000000000000.log"], max_bytes=1889 + 643)).splitlines()
    assert 3 == len(lines)
    assert lines[2].startswith("baseOffset: 0 ")


def test_an_index_that_contradicts_its_segment_is_reported(tmp_path):
    """Mismatches are printed to standard error in Kafka's words, the highest offset first."""
    segment = copy(tmp_path, "g-none-0/00000000000000000000.log")
    index = copy(tmp_path, "g-none-0/00000000000000000000.index")
    overwrite(index, 3, bytes([21]))
    overwrite(index, 11, bytes([44]))
    lines = run([str(index)], verify_index_only=True)
    assert f"Dumping {index}\n" == output(lines)
    assert (
        f"Mismatches in :{index}\n  Index offset: 44, log offset: 45\n  Index offset: 21, log offset: 22\n"
    ) == findings(lines)
    assert segment.exists()


def test_a_time_index_that_contradicts_its_segment_is_reported(tmp_path):
    """A wrong timestamp, a timestamp out of order, and an offset that is not a batch's last have different messages."""
    copy(tmp_path, "g-none-0/00000000000000000000.log")
    copy(tmp_path, "g-none-0/00000000000000000000.index")
    index = copy(tmp_path, "g-none-0/00000000000000000000.timeindex")
    broken = bytearray(index.read_bytes())
    broken[12 + 7] -= 1
    broken[24 : 24 + 8] = broken[0:8]
    broken[36 + 11] += 1
    index.write_bytes(broken)
    assert (
        f"Found timestamp mismatch in :{index}\n"
        "  Index timestamp: 1767225644099, log timestamp: 1767225644100\n"
        "  Index timestamp: 1767225621700, log timestamp: 1767225666500\n"
        f"Found out of order timestamp in :{index}\n"
        "  Index timestamp: 1767225621700, Previously indexed timestamp: 1767225644099\n"
        f"The following indexed offsets are not found in :{index}\n"
        "Indexed offset: 87, found log offset: 91\n"
    ) == findings(run([str(index)], verify_index_only=True))


def test_the_zeros_behind_a_preallocated_index_are_passed_over(tmp_path):
    """The dump of an active segment's index ends with the last entry, before the preallocated zeros."""
    copy(tmp_path, "g-none-0/00000000000000000000.log")
    for suffix in (".index", ".timeindex"):
        index = copy(tmp_path, f"g-none-0/00000000000000000000{suffix}")
        before = output(run([str(index)]))
        with index.open("ab") as file:
            file.write(bytes(240))
        assert before == output(run([str(index)]))


def test_the_sanity_check_says_one_line_or_fails(tmp_path):
    """--index-sanity-check accepts whole indexes, and fails for an index that ends inside an entry."""
    copy(tmp_path, "g-none-0/00000000000000000132.log")
    index = copy(tmp_path, "g-none-0/00000000000000000132.index")
    times = copy(tmp_path, "g-none-0/00000000000000000132.timeindex")
    lines = output(run([str(index), str(times)], index_sanity_check=True))
    assert [f"{index} passed sanity check.", f"{times} passed sanity check."] == lines.splitlines()[1::2]
    index.write_bytes(index.read_bytes()[:-1])
    with pytest.raises(CorruptionError):
        run([str(index)], index_sanity_check=True)


def test_bytes_behind_the_last_whole_batch_are_counted(tmp_path):
    """A torn end of a log is reported in one line and is not an error."""
    segment = copy(tmp_path, "g-none-0/00000000000000000000.log")
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[:100])
    lines = output(run([str(segment)])).splitlines()
    assert f"Found 100 invalid bytes at the end of {segment.name}" == lines[-1]


def test_a_batch_whose_checksum_is_wrong_is_printed_as_invalid(tmp_path):
    """A flipped byte gives isvalid: false for its batch only."""
    segment = copy(tmp_path, "g-none-0/00000000000000000000.log")
    flip(segment, 1889 + 100)
    verdicts = [line.rsplit(" ", 1)[1] for line in output(run([str(segment)])).splitlines()[2:5]]
    assert ["true", "false", "true"] == verdicts


def test_files_that_cannot_be_dumped_are_reported(tmp_path):
    """A file with an unknown suffix is skipped, as by Kafka's tool.

    A segment file without a base offset in its name, or a missing file, raises an error.
    """
    stranger = tmp_path / "notes.txt"
    stranger.write_text("")
    assert [
        DumpLine(f"Dumping {stranger}"),
        DumpLine(f"Ignoring unknown file {stranger}", error=True),
    ] == run([str(stranger)])
    misnamed = tmp_path / "orders.log"
    misnamed.write_bytes(b"")
    with pytest.raises(InvalidNameError):
        run([str(misnamed)])
    with pytest.raises(FileNotFoundError):
        run([str(tmp_path / "00000000000000000000.log")])


def test_a_transaction_index_prints_its_aborts(tmp_path):
    """Each aborted transaction prints as one line."""
    index = tmp_path / "00000000000000000000.txnindex"
    index.write_bytes(encode_span(AbortedSpan(ProducerId(7), Offset(3), Offset(9), Offset(10))))
    line = "version: 0 producerId: 7 firstOffset: 3 lastOffset: 9 lastStableOffset: 10"
    assert f"Dumping {index}\n{line}\n" == output(run([str(index)]))


def test_control_records_print_what_they_end(tmp_path):
    """The recorded COMMIT marker prints offset 50, leader epoch 4, producer 12345/2, coordinator epoch 6."""
    segment = tmp_path / "00000000000000000050.log"
    segment.write_bytes(
        bytes.fromhex(
            "0000000000000032000000420000000402cc367bda0030000000000000018bcfe568000000018bcfe56800"
            "00000000000030390002ffffffff000000012000000008000000010c00000000000600"
        )
    )
    assert [
        (
            "baseOffset: 50 lastOffset: 50 count: 1 baseSequence: -1 lastSequence: -1 producerId: 12345 "
            "producerEpoch: 2 partitionLeaderEpoch: 4 isTransactional: true isControl: true "
            "deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1700000000000 size: 78 magic: 2 "
            "compresscodec: none crc: 3426122714 isvalid: true"
        ),
        (
            "| offset: 50 CreateTime: 1700000000000 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] "
            "endTxnMarker: COMMIT coordinatorEpoch: 6"
        ),
    ] == dumped(segment)


@pytest.mark.parametrize(
    ("message", "batch", "record"),
    [
        (
            "000000000000000a00000018cf056e6e01000000000000000001000000016b0000000176",
            "offset: 10 position: 0 CreateTime: 1 size: 36 magic: 1 compresscodec: none crc: 3473239662 isvalid: true",
            "| offset: 10 CreateTime: 1 keySize: 1 valueSize: 1 isValid: true crc: 3473239662 key: k payload: v",
        ),
        (
            "000000000000000a000000101fecd70a0000000000016b0000000176",
            (
                "offset: 10 position: 0 NoTimestampType: -1 size: 28 magic: 0 compresscodec: none crc: 535615242 "
                "isvalid: true"
            ),
            "| offset: 10 NoTimestampType: -1 keySize: 1 valueSize: 1 isValid: true crc: 535615242 key: k payload: v",
        ),
    ],
)
def test_the_old_formats_print_what_they_have(tmp_path, message, batch, record):
    """A message of magic 0 or 1 prints one offset and its own checksum."""
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(bytes.fromhex(message))
    assert [batch, record] == dumped(segment)


def test_sequences_and_text_that_is_not_utf8(tmp_path):
    """Bytes that are not UTF-8 print as in Java, with the replacement character."""
    batch = encode([Record(Offset(0), Timestamp(5), b"\xff", "€".encode())])
    assign_offsets(batch, 0, base_offset=7, leader_epoch=3)
    segment = tmp_path / "00000000000000000007.log"
    segment.write_bytes(batch)
    record = (
        "| offset: 7 CreateTime: 5 keySize: 1 valueSize: 3 sequence: -1 headerKeys: [] key: \ufffd payload: €"
    )
    assert record == dumped(segment)[-1]


def test_an_optional_number_prints_as_javas():
    """An optional number prints like Java's OptionalLong."""
    assert ["OptionalLong.empty", "OptionalLong[0]"] == [optional_long(None), optional_long(0)]


def copy(directory: Path, name: str) -> Path:
    source = LOG_DIRS / name
    target = directory / source.name
    target.write_bytes(source.read_bytes())
    return target


def test_an_offset_index_that_leads_behind_the_segment_is_reported(tmp_path):
    """If an offset index points beyond the segment, it and the time index have a finding, and the dump continues."""
    copy(tmp_path, "g-none-0/00000000000000000000.log")
    index = copy(tmp_path, "g-none-0/00000000000000000000.index")
    times = copy(tmp_path, "g-none-0/00000000000000000000.timeindex")
    index.write_bytes((22).to_bytes(4, "big") + (10_000_000).to_bytes(4, "big"))
    assert (
        f"Mismatches in :{index}\n  Index offset: 22, log offset: -1\n"
        f"The following indexed offsets are not found in :{times}\n"
    ) == "".join(findings(run([str(index), str(times)])).partition("Indexed offset: ")[:1])


def test_a_damaged_snapshot_is_reported_and_the_dump_goes_on(tmp_path):
    """A damaged snapshot is reported and the dump continues; a broker would use an older snapshot."""
    broken = tmp_path / "00000000000000000400.snapshot"
    sound = copy(tmp_path, "g-gzip-0/00000000000000000400.snapshot").rename(
        tmp_path / "00000000000000000500.snapshot"
    )
    broken.write_bytes(b"\0\1" + bytes(20))
    lines = run([str(broken), str(sound)])
    assert [f"Dumping {broken}", f"{broken}: position 2: the snapshot's checksum does not match"] == [
        line.text for line in lines[:2]
    ]
    assert [False, True, False, False] == [line.error for line in lines]
    assert lines[3].text.startswith("producerId: ")


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_entries_inside_a_wrapper_print_their_own_checksums(tmp_path, magic, codec):
    """An entry with a wrong checksum prints isValid: false, whatever the checksums of its wrapper and neighbors."""
    first = 0 if magic else 20
    entries = [old_entry(first + n, b"v%d" % n, magic=magic, timestamp=5) for n in (0, 1)]
    inner = entries[0] + entries[1][:12] + (7).to_bytes(4, "big") + entries[1][16:]
    wrapper = old_entry(21, bytes(deflate(codec, inner)), magic=magic, timestamp=5, attributes=codec)
    segment = tmp_path / "00000000000000000020.log"
    segment.write_bytes(wrapper)
    lines = dumped(segment)
    kind = "CreateTime: 5" if magic else "NoTimestampType: -1"
    crc = int.from_bytes(inner[12:16], "big")
    assert (
        f"offset: 21 position: 0 {kind} size: {len(wrapper)} magic: {magic} compresscodec: {codec.label} "
        in lines[0]
    )
    assert [
        f"| offset: 20 {kind} keySize: -1 valueSize: 2 isValid: true crc: {crc} payload: v0",
        f"| offset: 21 {kind} keySize: -1 valueSize: 2 isValid: false crc: 7 payload: v1",
    ] == lines[1:]
