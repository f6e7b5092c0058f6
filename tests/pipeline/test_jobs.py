"""Jobs over whole topics: what they write, and what a second run adds."""

from __future__ import annotations

import contextlib

import pytest

from tests.doubles.engines import append_lines, read_lines
from topicfs.storage.codec.records import encode
from topicfs.storage.manager import open_engine
from topicfs.storage.model import Header, Offset, Record, Timestamp

pytestmark = pytest.mark.spark

NEW_YEAR = 1_767_225_600_000


@pytest.fixture
def data(tmp_path):
    """`orders` with three records of two days, and `copy` without any."""
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
    """By topic and date; a second run adds what came since, a third nothing."""
    from topicfs.pipeline.jobs.archive import ArchiveOptions, archive  # noqa: PLC0415

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
    """More of them may come, each from its start; with fewer, how far it is in the others would be lost."""
    from topicfs.pipeline.errors import PipelineError  # noqa: PLC0415 (needs Spark, as the next one)
    from topicfs.pipeline.jobs.archive import ArchiveOptions, archive  # noqa: PLC0415

    def run(topics):
        found = archive(spark, ArchiveOptions(path=str(data), topics=topics, target=tmp_path / "archive"))
        return [(row.topic, row.records) for row in found.collect()]

    assert [] == run("copy")
    with pytest.raises(PipelineError, match="archive: is the archive of copy, too; name all of its topics"):
        run("orders")
    assert [("orders", 1), ("orders", 2)] == run("orders,copy")


def test_replay_copies_through_sql(spark, data):
    """A filter and a projection; every run copies again."""
    from topicfs.pipeline.jobs.replay import ReplayOptions, replay  # noqa: PLC0415

    options = ReplayOptions(
        path=str(data), source="orders", target="copy", where="key = 'b'", select="upper(value) AS value"
    )
    for _ in range(2):
        assert [("orders", "copy", 1)] == rows(replay(spark, options))
    assert ["NEW", "NEW"] == lines(data, "copy")


@pytest.mark.parametrize("checkpoint", [None, "progress"])
def test_braces_in_sql_are_the_users(spark, data, tmp_path, checkpoint):
    """`where` and `select` reach Spark as they are written: JSON, regular expressions and `{source}` keep their braces."""
    from topicfs.pipeline.jobs.replay import ReplayOptions, replay  # noqa: PLC0415

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
    """Each record once."""
    from topicfs.pipeline.jobs.replay import ReplayOptions, replay  # noqa: PLC0415

    options = ReplayOptions(
        path=str(data), source="orders", target="copy", checkpoint=str(tmp_path / "progress")
    )
    assert [("orders", "copy", 3)] == rows(replay(spark, options))
    append(data, "later\n")
    assert [("orders", "copy", 1)] == rows(replay(spark, options))
    assert ["old", "new", "", "later"] == lines(data, "copy")


def jobs_over(spark, data, tmp_path):
    """Each job that goes on where it was, over `orders`; what it says where records were lost begins and ends so."""
    from topicfs.pipeline.jobs.aggregate import AggregateOptions, aggregate  # noqa: PLC0415 (needs Spark, as the others)
    from topicfs.pipeline.jobs.archive import ArchiveOptions, archive  # noqa: PLC0415
    from topicfs.pipeline.jobs.replay import ReplayOptions, replay  # noqa: PLC0415

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


def test_jobs_over_a_topic_made_anew_fail(spark, data, tmp_path):
    """None of them passes over its records; each says in one line what can be done."""
    from topicfs.pipeline.errors import DataLossError  # noqa: PLC0415 (needs Spark)

    jobs = jobs_over(spark, data, tmp_path)
    for run, _ in jobs:
        run()
    with contextlib.closing(open_engine(data)) as engine:
        engine.delete_topic("orders")
        append_lines(engine.create_topic("orders").partitions()[0], "1\n2\n3\n4\n5\n")
    copied = lines(data, "copy")
    for run, remedy in jobs:
        with pytest.raises(
            DataLossError, match=f"^orders: was deleted and created again [^;]*; [^;]*; .*{remedy}$"
        ):
            run()
    assert copied == lines(data, "copy")
