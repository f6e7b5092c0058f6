"""Tests of a broker's partitions: all other files can be rebuilt from the `.log` files, and a look changes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from topicfs.storage.checkpoints.offset_checkpoint import read_offsets
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk import names
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.log.log import Log
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.recovery.loader import load_log
from topicfs.storage.segment.roll import SegmentDirectory

VECTORS = Path(__file__).parents[2] / "vectors"
PARTITIONS = sorted(path.relative_to(VECTORS) for path in VECTORS.glob("*/log-dirs/*") if path.is_dir())
INDEX_INTERVAL_BYTES = {
    ("kafka", "g"): 1024,
    ("kafka", "__"): 4096,
    ("broker-made", "codecs"): 4096,
    ("broker-made", "headers"): 4096,
    ("broker-made", "old-times"): 100,
    ("broker-made", ""): 200,
}
"""The brokers' index.interval.bytes, by folder and first characters of the topic. The first match counts."""

NOT_LONG_AFTER = 1_700_000_000_000
"""A time at which no producer has been idle for a day.

No producer had been idle for a day either when the broker wrote its snapshots.
"""

TELLS_OF_TRANSACTIONS = (names.SegmentFileKind.SNAPSHOT, names.SegmentFileKind.TRANSACTION_INDEX)


def load(folder: Path, directory: Path, *, clean: bool, read_only: bool = False) -> Log:
    """Load the files of `directory` with the settings that the broker had for the partition in `folder`."""
    interval = next(
        size
        for (vectors, start), size in INDEX_INTERVAL_BYTES.items()
        if vectors == folder.parts[0] and directory.name.startswith(start)
    )
    return load_log(
        SegmentDirectory(directory, NativeFileSystem(read_only=read_only), lambda: NOT_LONG_AFTER),
        TopicConfig(index_interval_bytes=interval),
        clean=clean,
    )


def files_beside(directory: Path, first_dirty: Offset) -> dict[str, bytes]:
    """Return indexes, transaction indexes and snapshots by name.

    Snapshots and transaction indexes below `first_dirty` are left out, because their batches were compacted later.
    """
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if (file := names.parse_segment_file(path.name))
        and (file.kind not in TELLS_OF_TRANSACTIONS or file.base_offset >= first_dirty)
    }


def first_dirty_offset(directory: Path) -> Offset:
    topic, _, number = directory.name.rpartition("-")
    cleaned = read_offsets(NativeFileSystem(read_only=True), directory.parent / names.CLEANER_OFFSETS)
    return cleaned.get(TopicPartition(topic, int(number)), Offset(0))


def test_there_are_partitions_of_two_brokers():
    """The partitions have files of each kind, with producers and aborts."""
    kinds = {path.suffix for folder in PARTITIONS for path in (VECTORS / folder).iterdir()}
    assert {".log", ".index", ".timeindex", ".txnindex", ".snapshot"} <= kinds
    assert 25 == len(PARTITIONS)


@pytest.mark.parametrize("folder", PARTITIONS, ids=str)
def test_all_other_files_are_rebuilt_from_the_log(folder, tmp_path):
    """The rebuilt files equal the broker's files, and no other files are made.

    The snapshot at the log start is left out, because neither topicfs nor a broker has one after recovery.
    """
    written = VECTORS / folder
    directory = tmp_path / written.name
    directory.mkdir()
    for log in written.glob("*.log"):
        shutil.copyfile(log, directory / log.name)
    load(folder, directory, clean=False).close()

    first_dirty = first_dirty_offset(written)
    expected = files_beside(written, first_dirty)
    expected.pop(f"{min(expected)[:20]}.snapshot", None)
    assert expected == files_beside(directory, first_dirty)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("folder", PARTITIONS, ids=str)
def test_looking_changes_nothing(folder, clean):
    """A read-only load finds both ends of the log and each index entry, and changes no byte."""
    directory = VECTORS / folder
    before = {path: path.read_bytes() for path in directory.iterdir()}
    log = load(folder, directory, clean=clean, read_only=True)
    ends = [int(path.name[:20]) for path in directory.glob("*.snapshot")]
    assert max(ends, default=0) == log.log_end_offset
    for segment in log.chain.segments:
        for offset, position in segment.offset_index:
            assert position == log.locate(offset).batch.position
    log.close()
    assert before == {path: path.read_bytes() for path in directory.iterdir()}
