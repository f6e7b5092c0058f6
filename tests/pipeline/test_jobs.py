"""Tests of jobs over whole topics: the records that a run writes, and the records that a second run adds."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from dataclasses import replace
from threading import Thread

import pytest

from tests.doubles.engines import append_lines, read_lines
from topicfs.replication import open_directories, open_engine
from topicfs.storage.codec.records import encode
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.model import Header, Offset, Record, Timestamp

pytest.importorskip("pyspark")

from topicfs.pipeline.archiving.files import archived_files
from topicfs.pipeline.archiving.parquet import ParquetCommits
from topicfs.pipeline.archiving.plan import plan, source_options
from topicfs.pipeline.errors import DataLossError, PipelineError
from topicfs.pipeline.jobs.aggregate import AggregateOptions, aggregate
from topicfs.pipeline.jobs.archive import ArchiveOptions, archive, archived_rows, read_notes
from topicfs.pipeline.jobs.replay import ReplayOptions, replay
from topicfs.pipeline.jobs.verify import VerifyOptions, verify
from topicfs.pipeline.places.place import SparkPlace, place_of
from topicfs.storage.errors import StorageError
from topicfs.storage.model import Isolation

pytestmark = pytest.mark.spark

NEW_YEAR = 1_767_225_600_000


@pytest.fixture
def data(tmp_path):
    """Make `orders` with three records on two days, and an empty topic `copy`."""
    with contextlib.closing(open_engine(tmp_path / "data")) as engine:
        engine.create_topic("copy")
        partition = engine.create_topic("orders").partitions()[0]
        records = [
            Record(Offset(0), Timestamp(NEW_YEAR - 1), b"a", b"old", (Header(b"h", b"v"),)),
            Record(Offset(1), Timestamp(NEW_YEAR), b"b", b"new"),
            Record(Offset(2), Timestamp(NEW_YEAR + 1), None, None),
        ]
        partition.append(encode(records))
    return tmp_path / "data"


def append(data, text):
    with contextlib.closing(open_engine(data)) as engine:
        append_lines(engine.partition("orders", 0), text, timestamp=NEW_YEAR + 2)


def lines(data, topic):
    with contextlib.closing(open_engine(data, read_only=True)) as engine:
        return read_lines(engine.partition(topic, 0))


def rows(frame):
    return [tuple(row) for row in frame.collect()]


def test_archive_brings_each_record_once(spark, data, tmp_path):
    """An archive has each record once, by topic and date. A second run adds the new records, a third run none."""
    options = ArchiveOptions(path=str(data), topics="orders", target=tmp_path / "archive")

    def run():
        return [(topic, str(date), *rest) for topic, date, *rest in rows(archive(spark, options))]

    assert [("orders", "2025-12-31", 0, 0, 1), ("orders", "2026-01-01", 0, 1, 2)] == run()
    append(data, "later\n")
    for _ in range(2):
        assert [("orders", "2025-12-31", 0, 0, 1), ("orders", "2026-01-01", 0, 1, 3)] == run()
    archived = (
        spark.read.parquet(str(tmp_path / "archive")).orderBy("offset").select("key", "value", "headers")
    )
    assert [b"a", b"b", None, None] == [row.key for row in archived.collect()]
    assert (b"old", [("h", b"v")]) == (
        archived.first().value,
        [tuple(one) for one in archived.first().headers],
    )


def test_an_archive_keeps_to_its_topics(spark, data, tmp_path):
    """A run may add topics to an archive; it reads each added topic from its start.

    A run with fewer topics is refused, so that the archive keeps the offsets of all topics.
    """

    def run(topics):
        found = archive(spark, ArchiveOptions(path=str(data), topics=topics, target=tmp_path / "archive"))
        return [(row.topic, row.records) for row in found.collect()]

    assert [] == run("copy")
    with pytest.raises(PipelineError, match="archive: also has the topics copy; name all of its topics"):
        run("orders")
    assert [("orders", 1), ("orders", 2)] == run("orders,copy")


@pytest.mark.parametrize(("topics", "kind"), [("nosuch", "parquet"), ("orders", "iceberg")])
def test_an_archive_that_cannot_begin_leaves_nothing(spark, data, tmp_path, monkeypatch, topics, kind):
    """An unknown topic or a missing package raises an error before the archive's directory is made."""
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.sql", None)
    target = tmp_path / "archive"
    with pytest.raises(StorageError):
        archive(spark, ArchiveOptions(path=str(data), topics=topics, target=target, format=kind))
    assert not target.exists()


def test_an_archive_takes_no_round_of_other_topics(spark, data, tmp_path):
    """If two runs with different topics begin the same archive at the same time, the second one stops."""
    place, target = place_of(str(data)), tmp_path / "archive"
    first = plan(place, source_options(place, "copy", Isolation.READ_COMMITTED), None, None)
    ParquetCommits(target).plan(0, first.end)
    with pytest.raises(PipelineError, match="archive: also has the topics copy"):
        archive(spark, ArchiveOptions(path=str(data), topics="orders", target=target))
    assert not (target / "_topics.json").exists()


def test_an_archive_and_a_check_do_without_a_lost_replica_directory(spark, tmp_path):
    """An archive job and a check do not look for a replica directory that the place leaves out."""
    roots = [tmp_path / name for name in ("a", "b")]
    config = EngineConfig()._replace(replication_factor=2)
    with contextlib.closing(open_directories(roots, replicated=True, config=config)) as engine:
        append_lines(engine.create_topic("orders", partitions=1).partitions()[0], "a\nb\n")
    shutil.rmtree(roots[0])
    place = SparkPlace(path=",".join(map(str, roots)), without=str(roots[0]))
    options = ArchiveOptions(path=place, topics="orders", target=tmp_path / "archive")
    assert [2] == [row.records for row in archive(spark, options).collect()]
    assert {str(roots[1])} == {row.directory for row in verify(spark, VerifyOptions(place=place)).collect()}


def test_an_archive_goes_on_where_sparks_own_query_stopped(spark, data, tmp_path):
    """A run continues an archive that Spark's own query began, with the query's files and its planned round."""
    target = tmp_path / "archive"
    read = spark.readStream.format("topicfs").options(
        path=str(data), subscribe="orders", startingOffsets="earliest", includeHeaders="true"
    )
    for _ in range(2):
        query = (
            read.load()
            .selectExpr("*", "to_date(timestamp) AS date")
            .writeStream.format("parquet")
            .partitionBy("topic", "date")
            .option("checkpointLocation", f"{target}/_checkpoint")
            .trigger(availableNow=True)
            .start(str(target))
        )
        query.awaitTermination()
        append(data, "later\n")
    shutil.rmtree(target / "_checkpoint" / "commits")
    (target / "_spark_metadata" / "1").unlink()
    archive(spark, ArchiveOptions(path=str(data), topics="orders", target=target))
    assert [0, 1, 2, 3, 4] == sorted(row.offset for row in archived_rows(spark, target).collect())
    assert 5 == spark.read.parquet(str(target)).count()


@pytest.mark.parametrize("kind", ["parquet", "iceberg"])
def test_a_continuous_archive_takes_new_topics_of_a_pattern(spark, data, tmp_path, kind):
    """A continuous archive reads new topics of a pattern from their start. ^C ends it after a committed round."""
    if kind == "iceberg":
        pytest.importorskip("pyiceberg")
    rounds = []

    def committed(state):
        rounds.append(sum(state.offsets.values()))
        with contextlib.closing(open_engine(data)) as engine:
            if len(rounds) == 1:
                engine.create_topic("order-lines")
            append_lines(engine.partition("order-lines", 0), "line\n", timestamp=NEW_YEAR)
        if len(rounds) == 3:
            signal.raise_signal(signal.SIGINT)

    options = ArchiveOptions(
        path=str(data),
        topics="order*",
        target=tmp_path / "archive",
        format=kind,
        every_seconds=0.01,
        committed=committed,
    )
    found = [(row.topic, row.records) for row in archive(spark, options).collect()]
    assert [("order-lines", 2), ("orders", 1), ("orders", 2)] == found
    assert [3, 4, 5] == rounds
    found = archived_rows(spark, tmp_path / "archive").groupBy("topic").count().collect()
    assert {("orders", 3), ("order-lines", 2)} == {tuple(row) for row in found}


def test_an_interrupt_between_two_rounds_ends_an_archive(spark, data, tmp_path):
    """^C ends an archive job even while it waits for the next round."""
    interrupt = Thread(target=os.kill, args=(os.getpid(), signal.SIGINT))
    options = ArchiveOptions(
        path=str(data),
        topics="orders",
        target=tmp_path / "archive",
        every_seconds=1e12,
        committed=lambda _: interrupt.start(),
    )
    assert 3 == sum(row.records for row in archive(spark, options).collect())


def test_spark_reads_an_archive_of_many_rounds(spark, data, tmp_path):
    """Spark reads all records of an archive, although every tenth round replaces small files by a merged file."""
    options = ArchiveOptions(path=str(data), topics="orders", target=tmp_path / "archive")
    for _ in range(22):
        append(data, "later\n")
        (_, last) = archive(spark, options).collect()
    assert ("2026-01-01", 0, 1, 24) == tuple(last)[1:]
    found = spark.read.parquet(str(tmp_path / "archive")).select("offset").orderBy("offset").collect()
    assert list(range(25)) == [row.offset for row in found]
    assert 13 > len(archived_files(tmp_path / "archive"))


def test_an_archive_keeps_its_format(spark, data, tmp_path):
    """A run with the other format is refused, because it would archive all records again."""
    pytest.importorskip("pyiceberg")
    options = ArchiveOptions(path=str(data), topics="orders", target=tmp_path / "archive", format="iceberg")
    archive(spark, options)
    with pytest.raises(PipelineError, match="is an archive in the format iceberg"):
        archive(spark, replace(options, format="parquet"))


def test_replay_copies_through_sql(spark, data):
    """Replay copies records through a filter and a projection. Each run copies all records again."""
    options = ReplayOptions(
        path=str(data), source="orders", target="copy", where="key = 'b'", select="upper(value) AS value"
    )
    for _ in range(2):
        assert [("orders", "copy", 1)] == rows(replay(spark, options))
    assert ["NEW", "NEW"] == lines(data, "copy")


@pytest.mark.parametrize("checkpoint", [None, "progress"])
def test_braces_in_sql_are_the_users(spark, data, tmp_path, checkpoint):
    """`where` and `select` reach Spark unchanged: JSON, regular expressions and `{source}` keep their braces."""
    options = ReplayOptions(
        path=str(data),
        source="orders",
        target="copy",
        where="string(value) RLIKE '^[a-z]{3}$' AND key != '{}' AND key != '{source}'",
        select="""concat('{"value": {"{{is}}": "', value, '"}}') AS value""",
        checkpoint=checkpoint and str(tmp_path / checkpoint),
    )
    assert [("orders", "copy", 2)] == rows(replay(spark, options))
    assert ['{"value": {"{{is}}": "old"}}', '{"value": {"{{is}}": "new"}}'] == lines(data, "copy")


def test_replay_under_a_checkpoint_brings_what_came_since(spark, data, tmp_path):
    """With a checkpoint each run copies only the new records, each once."""
    options = ReplayOptions(
        path=str(data), source="orders", target="copy", checkpoint=str(tmp_path / "progress")
    )
    assert [("orders", "copy", 3)] == rows(replay(spark, options))
    append(data, "later\n")
    assert [("orders", "copy", 1)] == rows(replay(spark, options))
    assert ["old", "new", "", "later"] == lines(data, "copy")


def jobs_over(spark, data, tmp_path):
    """Return each job over `orders` that continues from earlier runs, with the job's message for lost records."""
    progress = [str(tmp_path / name) for name in ("replayed", "aggregated")]
    archived = ArchiveOptions(path=str(data), topics="orders", target=tmp_path / "archive")
    replayed = ReplayOptions(path=str(data), source="orders", target="copy", checkpoint=progress[0])
    counted = AggregateOptions(
        path=str(data), source="orders", target="copy", window="1 minute", checkpoint=progress[1]
    )
    return [
        (lambda: archive(spark, archived), "into another directory"),
        (lambda: replay(spark, replayed), "name another checkpoint"),
        (lambda: aggregate(spark, counted), "name another checkpoint"),
    ]


def test_jobs_over_a_topic_created_again_fail(spark, data, tmp_path):
    """Jobs over a topic that was created again fail with a remedy. They skip no records and change no files."""
    jobs = jobs_over(spark, data, tmp_path)
    for run, _ in jobs:
        run()
    with contextlib.closing(open_engine(data)) as engine:
        engine.delete_topic("orders")
        topic = engine.create_topic("orders", partitions=2, overrides={"max.message.bytes": "4096"})
        append_lines(topic.partitions()[0], "1\n2\n3\n4\n5\n")
    copied, notes = lines(data, "copy"), read_notes(tmp_path / "archive")
    for run, remedy in jobs:
        with pytest.raises(
            DataLossError, match=f"^orders: was deleted and created again [^;]*; [^;]*; .*{remedy}$"
        ):
            run()
    assert (copied, notes) == (lines(data, "copy"), read_notes(tmp_path / "archive"))
