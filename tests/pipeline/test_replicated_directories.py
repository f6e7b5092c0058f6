"""Tests of directories with replicas: some are named, some are lost, and each write is committed once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.doubles.engines import append_lines, read_lines
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.places.paths import data_directories
from topicfs.pipeline.sink.options import parse_sink_options
from topicfs.pipeline.source.directories import SourceDirectories
from topicfs.replication import open_directories
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.model import TopicPartition
from topicfs.storage.staging.record import CommitRecord

ORDERS, SMALL = TopicPartition("orders", 0), TopicPartition("small", 0)
TWO = EngineConfig()._replace(replication_factor=2)


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    """Make two directories with replicas of `orders`."""
    found = tmp_path / "r1", tmp_path / "r2"
    with closing(open_directories(found, replicated=True, config=TWO)) as engine:
        engine.create_topic("orders", partitions=1)
    return found


def lines(*roots: Path, left_out: tuple[Path, ...] = ()) -> list[str]:
    with closing(open_directories(roots, read_only=True, left_out=left_out)) as engine:
        return read_lines(engine.partition("orders", 0))


@contextmanager
def owned(*roots: Path) -> Iterator[None]:
    """Run an owner's duties during the block, as a mount's daemon does."""
    stop = Event()
    engine = open_directories(roots)

    def work() -> None:
        while not stop.wait(0.02):
            engine.maintenance(system_clock())

    thread = Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        engine.close()


def path_of(*roots: Path) -> str:
    return ",".join(map(str, roots))


def write(spark: Any, path: str, count: int, **options: str) -> None:
    frame = spark.range(count).selectExpr("cast(id AS string) AS value")
    frame.write.format("topicfs").mode("append").options(path=path, topic="orders", **options).save()


def stream(spark: Any, folder: Path, checkpoint: Path, path: str, **options: str) -> None:
    """Run a query over all files of `folder` until the query ends."""
    frame = spark.readStream.format("text").load(str(folder))
    query = frame.writeStream.format("topicfs").options(path=path, topic="orders", **options)
    query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


@pytest.mark.spark
@pytest.mark.parametrize("has_owner", [True, False])
def test_rows_are_written_to_all_directories_that_are_named(spark, roots, has_owner):
    """Rows are written to all named directories, with and without an owner, and can be read from each of them."""
    if has_owner:
        with owned(*roots):
            write(spark, path_of(*roots), 50)
    else:
        write(spark, path_of(*roots), 50)
    assert 50 == len(lines(*roots))
    for root in roots:
        assert 50 == len(lines(root))
    read = spark.read.format("topicfs").options(path=path_of(*roots), subscribe="orders").load()
    assert 50 == read.count()


@pytest.mark.spark
def test_rows_outlive_the_disk_of_either_directory(spark, roots):
    """After a directory is lost, the remaining one has all rows; the option `without` allows writes and reads."""
    write(spark, path_of(*roots), 70)
    shutil.rmtree(roots[0])
    write(spark, path_of(*roots), 5, without=str(roots[0]))
    assert 75 == len(lines(roots[1], left_out=roots[:1]))
    read = spark.read.format("topicfs").options(
        path=path_of(*roots), without=str(roots[0]), subscribe="orders"
    )
    assert 75 == read.load().count()


@pytest.mark.spark
def test_a_repeated_micro_batch_is_dropped_after_a_disk_died(spark, roots, tmp_path):
    """If Spark repeats a micro-batch after a disk failed, the remaining directory knows that it was committed."""
    folder, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "one.txt").write_text("".join(f"{number}\n" for number in range(50)))
    stream(spark, folder, checkpoint, path_of(*roots))
    assert [[0], [0]] == [
        [one.batch for one in CommitRecord(_files(), tuple).read_copy(root).values()] for root in roots
    ]
    for file in (checkpoint / "commits").iterdir():
        file.unlink()
    shutil.rmtree(roots[0])
    stream(spark, folder, checkpoint, path_of(roots[1]), without=str(roots[0]))
    assert 50 == len(lines(roots[1], left_out=roots[:1]))


def _files() -> Any:
    return NativeFileSystem(read_only=True)


def test_directories_left_out_need_not_exist(roots, tmp_path):
    """Left-out directories are removed from the path, even from a glob, and the engine knows them as left out."""
    lost = tmp_path / "lost"
    given = {"path": f"{tmp_path}/r*,{lost}", "WITHOUT": f"{roots[0]},{lost}"}
    options = parse_sink_options(given)
    assert (roots[1:], (roots[0], lost)) == (options.directories, options.left_out)
    with pytest.raises(PipelineError, match=f"{lost}: no such directory"):
        data_directories(str(lost))


def test_only_replicas_in_sync_are_read(roots):
    """A replica that missed writes is not read, even if the path names its directory."""
    with closing(open_directories(roots)) as engine:
        append_lines(engine.partition("orders", 0), "a\n")
    with closing(open_directories(roots[1:], replicated=True, left_out=roots[:1])) as engine:
        append_lines(engine.partition("orders", 0), "b\n")
    with closing(SourceDirectories(roots)) as source:
        log = source.log(ORDERS)
        assert (roots[1], 2) == (log.directory.parent, log.offsets().high_watermark)
        assert [roots[1]] == source._readable[ORDERS]


def lose(roots: tuple[Path, Path], *lost: int) -> None:
    """Fill `small` with a few records per segment. Then remove the log of one segment from each replica.

    `lost` has a segment's number for each replica.
    """
    with closing(open_directories(roots)) as engine:
        engine.create_topic("small", overrides={"internal.segment.bytes": "1000"})
        for number in range(40):
            append_lines(engine.partition("small", 0), f"{number} {'x' * 100}\n")
    for root, segment in zip(roots, lost, strict=False):
        sorted((root / "small-0").glob("*.log"))[segment].unlink()


def test_a_replica_that_lost_records_is_not_read(roots):
    """A replica that lacks records is not read if another in-sync replica has all of them."""
    lose(roots, 2)
    with closing(SourceDirectories(roots)) as source:
        log = source.log(SMALL)
        assert (roots[1], 40) == (log.directory.parent, log.offsets().high_watermark)


def test_replicas_that_each_lost_other_records_are_not_read(roots):
    """If each replica lacks different records, the topic is refused, because every replica would hide some records.

    Other topics can still be read, and so can this topic if all but one directory are left out.
    """
    lose(roots, 2, 3)
    with closing(SourceDirectories(roots)) as source:
        with pytest.raises(
            PipelineError, match=r"small-0: each replica lacks .*offsets \d+ to \d+ are missing"
        ):
            source.log(SMALL)
        assert 0 == source.log(ORDERS).offsets().high_watermark
    with closing(SourceDirectories(roots[:1], roots[1:])) as source:
        assert 40 == source.log(SMALL).offsets().high_watermark


def test_replicas_that_lost_the_same_records_are_read(roots):
    """Replicas that lack the same records are read, because no replica has those records."""
    lose(roots, 2, 2)
    with closing(SourceDirectories(roots)) as source:
        assert 40 == source.log(SMALL).offsets().high_watermark
