"""The check of a replica's directory reports offsets that no segment has."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles.engines import append_lines
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.replication import open_engine
from topicfs.replication.replicas.startup import open_replicas
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.model import Offset

CONFIG = EngineConfig(
    recovery_threads=1,
    replication_factor=2,
    topic_defaults=TopicConfig(segment_index_bytes=1200, internal_segment_bytes=300),
)


def filled(base: Path, *, settings: Mapping[str, str] | None = None, start: int = 0) -> list[Path]:
    """Make two replicas of a partition with a few segments, closed cleanly."""
    roots = [base / "a", base / "b"]
    with closing(open_replicas(roots, config=CONFIG, in_background=False)) as engine:
        engine.create_topic("orders")
        for number in range(30):
            append_lines(engine.partition("orders", 0), f"line {number:02}\n")
        engine.alter_config("orders", settings or {})
        if start:
            engine.partition("orders", 0).delete_records(Offset(start))
    return roots


def logs(root: Path) -> list[Path]:
    return sorted((root / "orders-0").glob("*.log"))


def check(root: Path) -> list[str]:
    return [
        f"{one.file.name}: {one.cause}"
        for one in DirectoryCheck(root, NativeFileSystem(read_only=True)).findings()
        if "are missing" in one.cause
    ]


def remove(root: Path, which: int) -> str:
    """Remove a segment with its indexes; return the check's findings."""
    log, after = logs(root)[which : which + 2]
    for path in log.parent.glob(f"{log.stem}*"):
        path.unlink()
    return f"{after.name}: offsets {int(log.stem)} to {int(after.stem) - 1} are missing before it"


@pytest.mark.parametrize("which", [0, 1, 2], ids=["first", "second", "third"])
def test_a_segment_that_every_copy_lost_is_named(tmp_path, which):
    """A segment missing in a directory is reported even if only that directory is checked."""
    roots = filled(tmp_path)
    assert [[], []] == [check(root) for root in roots]
    said = [remove(root, which) for root in roots]
    assert said == [one for root in roots for one in check(root)]


def test_a_cut_at_the_end_of_a_batch_is_named(tmp_path):
    """A segment cut between two batches is reported, although the segment itself has no damage."""
    root = filled(tmp_path)[0]
    log = logs(root)[1]
    data = log.read_bytes()
    size = int.from_bytes(data[8:12], "big") + 12
    log.write_bytes(data[:size])
    first, stop = int(log.stem), int(logs(root)[2].stem)
    assert [f"{logs(root)[2].name}: offsets {first + 1} to {stop - 1} are missing before it"] == check(root)


def test_records_that_were_deleted_are_not_missing(tmp_path):
    """Records below a raised log start are not reported as missing."""
    assert [[], []] == [check(root) for root in filled(tmp_path, start=13)]


def test_gaps_of_a_topic_that_compacts_are_not_missing(tmp_path):
    """Gaps in a compacted topic are not reported, because compaction leaves gaps."""
    roots = filled(tmp_path, settings={"cleanup.policy": "compact"})
    remove(roots[0], 1)
    assert [[], []] == [check(root) for root in roots]


def test_gaps_of_a_directory_without_replicas_are_not_looked_for(tmp_path):
    """Gaps in a broker's directory are not reported, because compaction may have left them.

    The directory does not record which topics are compacted.
    """
    with closing(open_engine(tmp_path / "a", config=CONFIG)) as engine:
        engine.create_topic("orders")
        for number in range(30):
            append_lines(engine.partition("orders", 0), f"line {number:02}\n")
    remove(tmp_path / "a", 1)
    assert [] == check(tmp_path / "a")
