"""Tests that a broker's partitions, rebuilt only from their `.log` files, equal what the broker wrote."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.log.log import Log
from topicfs.storage.recovery.loader import load_log
from topicfs.storage.segment.roll import SegmentDirectory

LOG_DIRS = Path(__file__).parents[2] / "vectors" / "kafka" / "log-dirs"
PARTITIONS = sorted(path.name for path in LOG_DIRS.iterdir() if path.is_dir())
INDEX_INTERVAL_BYTES = {"g-": 1024, "__": 4096}
"""The broker's index.interval.bytes, by the first characters of the topic's name."""


def load(directory: Path, *, clean: bool, read_only: bool = False) -> Log:
    return load_log(
        SegmentDirectory(directory, NativeFileSystem(read_only=read_only), system_clock),
        TopicConfig(index_interval_bytes=INDEX_INTERVAL_BYTES[directory.name[:2]]),
        clean=clean,
    )


def contents(directory: Path, *suffixes: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name.endswith(suffixes)}


def test_there_are_vectors():
    """The repository has the broker's 13 partitions."""
    assert 13 == len(PARTITIONS)


@pytest.mark.parametrize("name", PARTITIONS)
def test_indexes_are_rebuilt_from_the_log_alone(name, tmp_path):
    """Rebuilt `.index` and `.timeindex` files equal the broker's files, and the log does not change."""
    directory = tmp_path / name
    shutil.copytree(LOG_DIRS / name, directory)
    directory.chmod(0o755)
    expected = contents(directory, ".index", ".timeindex", ".log")
    for path in directory.iterdir():
        if path.name.endswith(("index", ".snapshot")):
            path.unlink()
    load(directory, clean=False).close()
    assert expected == contents(directory, ".index", ".timeindex", ".log")


@pytest.mark.parametrize("name", PARTITIONS)
def test_looking_changes_nothing(name):
    """A read-only load finds both ends of the log and each index entry, and changes no byte."""
    directory = LOG_DIRS / name
    before = contents(directory, "")
    for clean in (True, False):
        log = load(directory, clean=clean, read_only=True)
        ends = [int(path.name[:20]) for path in directory.iterdir() if path.suffix == ".snapshot"]
        assert max(ends, default=0) == log.log_end_offset
        for segment in log.chain.segments:
            for offset, position in segment.offset_index:
                assert position == log.locate(offset).batch.position
        log.close()
    assert before == contents(directory, "")
