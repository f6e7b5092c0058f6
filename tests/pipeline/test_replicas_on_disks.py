"""Tests of replicas on separate file systems, one of which fails all I/O with EIO."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.small_disk import small_disk
from tests.fusefs.mounted.replica_disks import shut_down
from tests.pipeline.test_replicated_directories import TWO, lines, path_of, stream, write
from topicfs.replication import open_directories

pytestmark = [pytest.mark.root, pytest.mark.spark]


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[Path]]:
    """Make two ext4 file systems of 16 MB."""
    with ExitStack() as stack:
        made = []
        for name in "ab":
            (tmp_path / name).mkdir()
            made.append(stack.enter_context(small_disk(tmp_path / name, kind="ext4", size_mb=16)))
        yield made


@pytest.fixture
def roots(disks: list[Path]) -> list[Path]:
    """Make a directory with replicas of `orders` on each disk."""
    found = [disk / "data" for disk in disks]
    with closing(open_directories(found, replicated=True, config=TWO)) as engine:
        engine.create_topic("orders", partitions=1)
    return found


@pytest.mark.parametrize("dead", [0, 1])
def test_rows_outlive_a_dead_disk(spark: Any, disks: list[Path], roots: list[Path], dead: int):
    """Reads and writes that name the dead directory are errors with a remedy. Without the directory no row is lost."""
    write(spark, path_of(*roots), 70)
    shut_down(disks[dead])
    read = spark.read.format("topicfs").options(path=path_of(*roots), subscribe="orders")
    for act in (lambda: write(spark, path_of(*roots), 5), lambda: read.load().count()):
        with pytest.raises(Exception, match=f"{roots[dead]}.*: Input/output error; .* the option without"):
            act()
    write(spark, path_of(*roots), 5, without=str(roots[dead]))
    assert 75 == read.option("without", str(roots[dead])).load().count()
    assert 75 == len(lines(roots[1 - dead], left_out=(roots[dead],)))


@pytest.mark.parametrize("dead", [0, 1])
def test_a_repeated_micro_batch_is_dropped_after_a_disk_died(
    spark: Any, disks: list[Path], roots: list[Path], tmp_path: Path, dead: int
):
    """After a disk failed, the remaining directory still records that a repeated micro-batch is committed."""
    folder, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "one.txt").write_text("".join(f"{number}\n" for number in range(50)))
    stream(spark, folder, checkpoint, path_of(*roots))
    for file in (checkpoint / "commits").iterdir():
        file.unlink()
    shut_down(disks[dead])
    stream(spark, folder, checkpoint, path_of(*roots), without=str(roots[dead]))
    assert 50 == len(lines(roots[1 - dead], left_out=(roots[dead],)))
