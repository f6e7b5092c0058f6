"""Tests that our engine reads stored files of a broker; no broker runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.interop import ours
from topicfs.replication import open_engine
from topicfs.storage.checkpoints.offset_checkpoint import read_offsets
from topicfs.storage.codec.batch import scan
from topicfs.storage.disk import names
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.model import Header, Isolation, Offset, Record, Timestamp, TopicPartition

VECTORS = Path(__file__).parents[1] / "vectors" / "broker-made"
LOG_DIR = VECTORS / "log-dirs"
OF_TRANSACTIONS = (names.SegmentFileKind.SNAPSHOT, names.SegmentFileKind.TRANSACTION_INDEX)
PARTITIONS = sorted(path.name for path in LOG_DIR.iterdir() if path.is_dir())


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("name", PARTITIONS)
def test_records_are_those_a_consumer_got(name: str, isolation: Isolation) -> None:
    """Offsets, times, keys, values and headers of all visible records equal those that librdkafka consumed."""
    topic, _, number = name.rpartition("-")
    engine = open_engine(LOG_DIR, read_only=True)
    try:
        records = ours.read_records(engine.partition(topic, int(number)), isolation)
    finally:
        engine.close()
    assert consumed(name, isolation) == records


@pytest.mark.parametrize("name", PARTITIONS)
def test_recovery_makes_the_brokers_own_files(name: str, tmp_path: Path) -> None:
    """Recovery from the `.log` files and a clean close write all other files with the broker's bytes.

    There are two exceptions. A snapshot or transaction index of a cleaned section may mention batches that a later
    compaction has removed. After recovery neither our engine nor a broker writes a snapshot at the log start. The
    test sets the clock to its earliest time, so that no producer expires.
    """
    directory = tmp_path / name
    directory.mkdir()
    for file in (LOG_DIR / name).glob("*.log"):
        shutil.copyfile(file, directory / file.name)
    settings = {"index.interval.bytes": index_interval(name)}
    log = ours.load(directory, settings, clean=False, clock=lambda: Timestamp(0))
    log.close()
    expected, made = (
        contents(folder, dirty_start=dirty_start(name)) for folder in (LOG_DIR / name, directory)
    )
    expected.pop(f"{min(expected)[:20]}.snapshot", None)
    assert expected == made


def consumed(name: str, isolation: Isolation) -> list[Record]:
    """Return the records that the consumer got."""
    lines = (VECTORS / "consumed" / f"{name}.{isolation.value}.jsonl").read_text().splitlines()
    return [_record(json.loads(line)) for line in lines]


def _record(plain: dict) -> Record:
    headers = tuple(Header(_bytes(key) or b"", _bytes(value)) for key, value in plain["headers"])
    return Record(
        Offset(plain["offset"]),
        Timestamp(plain["timestamp"]),
        _bytes(plain["key"]),
        _bytes(plain["value"]),
        headers,
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def index_interval(name: str) -> str:
    """Return the index.interval.bytes that `make_vectors.py` set for the topic."""
    topic = name.rpartition("-")[0]
    return {"codecs": "4096", "headers": "4096", "old-times": "100"}.get(topic, "200")


def dirty_start(name: str) -> int:
    """Return the offset of the first record that no compaction has processed."""
    topic, _, number = name.rpartition("-")
    cleaned = read_offsets(NativeFileSystem(read_only=True), LOG_DIR / names.CLEANER_OFFSETS)
    return cleaned.get(TopicPartition(topic, int(number)), Offset(0))


def contents(directory: Path, *, dirty_start: int) -> dict[str, bytes]:
    """Return the bytes of every segment file by name, without snapshots and aborts below `dirty_start`."""
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if (file := names.parse_segment_file(path.name))
        and (file.kind not in OF_TRANSACTIONS or file.base_offset >= dirty_start)
    }


def test_every_kind_of_batch_is_there() -> None:
    """The vectors have all codecs, both timestamp types, markers, delete horizons and empty batches."""
    batches = [batch for log in LOG_DIR.glob("*/*.log") for batch in scan(log.read_bytes())]
    assert {"NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"} == {batch.codec.name for batch in batches}
    assert {"CreateTime", "LogAppendTime"} == {batch.timestamp_type.label for batch in batches}
    assert any(batch.is_control and batch.delete_horizon_ms for batch in batches)
    assert any(not batch.is_control and batch.delete_horizon_ms for batch in batches)
    assert any(batch.record_count == 0 for batch in batches)
