"""Tests that a restored archive has its offsets, gaps, times and timestamp types, even after conflicts and kills."""

from __future__ import annotations

import contextlib
import shutil

import pytest

from tests.doubles.engines import append_lines
from tests.doubles.records import read_records, record
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.replication import open_engine
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.compaction.cleaner import clean, cleaning_params
from topicfs.storage.compaction.selection import plan
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.model import Header, Offset, TimestampType

pytest.importorskip("pyspark")

from testing.broker.client import Client
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.jobs.archive import ArchiveOptions, archive
from topicfs.pipeline.jobs.restore import restore as module
from topicfs.pipeline.jobs.restore.plan import ConflictError
from topicfs.pipeline.jobs.restore.restore import RestoreOptions, restore
from topicfs.storage.errors import StorageError

pytestmark = pytest.mark.spark

NEW_YEAR = 1_767_225_600_000


def put_everything(engine):
    """Fill `orders` with all that logs may have: gaps, stamps, an empty partition, and one with a deleted start."""
    partitions = engine.create_topic(
        "orders", partitions=3, overrides={"max.message.bytes": "2000000", "cleanup.policy": "delete"}
    ).partitions()
    first, _, last = partitions.values()
    first.append(
        encode(
            [
                record(
                    0, b"a", b"old", timestamp=NEW_YEAR - 1, headers=(Header(b"h", b"v"), Header(b"n", None))
                ),
                record(1, None, None),
                record(2, b"", b"", timestamp=NEW_YEAR - 5),
            ]
        )
    )
    first.appender.append_as_follower(encode([record(7), record(9), record(100)]))
    stamped = BatchStamp(timestamp_type=TimestampType.LOG_APPEND_TIME, codec=Codec.GZIP)
    first.appender.append_as_follower(
        encode([record(200, timestamp=NEW_YEAR + 7), record(201, timestamp=NEW_YEAR + 7)], stamped)
    )
    first.appender.append_as_follower(encode([record(202, value=bytes(1_500_000))]))
    first.appender.append_as_follower(encode([record(2**31 + 500)]))
    append_lines(last, "\n".join("abcdef") + "\n", timestamp=NEW_YEAR)
    last.delete_records(Offset(4))


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    """Make a data directory and its archive once; tests copy the files that they change."""
    folder = tmp_path_factory.mktemp("restore")
    with contextlib.closing(open_engine(folder / "data")) as engine:
        put_everything(engine)
    archive(spark, ArchiveOptions(path=str(folder / "data"), topics="orders", target=folder / "archive"))
    return folder


def test_topics_without_records_come_back(spark, tmp_path, target):
    """Topics without records are restored with partitions and settings. A second run has nothing to do."""
    with contextlib.closing(open_engine(tmp_path / "data")) as engine:
        settings = dict(
            engine.create_topic("empty", partitions=3, overrides={"cleanup.policy": "compact"}).overrides
        )
        append_lines(engine.create_topic("full").partitions()[0], "a\n", timestamp=NEW_YEAR)
    for topics in ("empty", "empty,full"):
        kept = tmp_path / topics
        archive(spark, ArchiveOptions(path=str(tmp_path / "data"), topics=topics, target=kept))
        folder = target / topics.replace(",", "-")
        folder.mkdir()
        for brought in (1, 0):
            rows = [("full", 0, 0, 0, brought, 1 - brought)] if "full" in topics else []
            empty = [("empty", number, None, None, 0, 0) for number in range(3)]
            assert [*rows, *empty] == restored(spark, kept, folder)
        with contextlib.closing(open_engine(folder, read_only=True)) as engine:
            found = engine.topic("empty")
            assert (3, settings) == (len(found.partitions()), dict(found.overrides))
            assert topics.split(",") == list(engine.topics())


@pytest.fixture
def target(tmp_path):
    """Make an empty directory."""
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def restored(spark, saved, target, **options):
    found = restore(spark, RestoreOptions(archive=saved, path=str(target), **options))
    return [tuple(row) for row in found.collect()]


def rows_of(spark, data, topic="orders"):
    read = spark.read.format("topicfs").options(path=str(data), subscribe=topic, includeHeaders="true").load()
    return [tuple(row) for row in read.drop("topic").orderBy("partition", "offset").collect()]


def findings(data):
    return [
        str(one) for one in DirectoryCheck(data, NativeFileSystem(read_only=True)).findings(lambda _: None)
    ]


def test_all_columns_are_restored(spark, made, target, tmp_path):
    """All columns are restored, even from an archive that was moved. A second run finds that every record exists."""
    moved = tmp_path / "moved"
    shutil.copytree(made / "archive", moved)
    expected = [("orders", 0, 0, 2**31 + 500, 10, 0), ("orders", 2, 4, 5, 2, 0)]
    assert expected == restored(spark, moved, target)
    assert rows_of(spark, made / "data") == rows_of(spark, target)
    assert [] == findings(target)
    with contextlib.closing(open_engine(target, read_only=True)) as engine:
        topic = engine.topic("orders")
        assert "2000000" == topic.overrides["max.message.bytes"]
        bounds = [one.offsets() for one in topic.partitions().values()]
        assert [(0, 2**31 + 501), (0, 0), (4, 6)] == [
            (one.log_start_offset, one.log_end_offset) for one in bounds
        ]
    expected = [(*row[:4], 0, row[4]) for row in expected]
    assert expected == restored(spark, moved, target)


def interrupt_round(number, monkeypatch):
    """Interrupt the run when it begins to write round `number`."""
    write_placed, rounds = module.write_placed, []

    def write_or_stop(*arguments, **options):
        rounds.append(arguments)
        if len(rounds) == number:
            raise KeyboardInterrupt
        return write_placed(*arguments, **options)

    monkeypatch.setattr(module, "write_placed", write_or_stop)


def test_an_interrupted_run_is_continued(spark, made, target, monkeypatch):
    """The next run continues a run that was interrupted in the third of many small rounds."""
    interrupt_round(3, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        restored(spark, made / "archive", target, round_bytes=600_000)
    there = len(rows_of(spark, target))
    assert 0 < there < 12
    told = restored(spark, made / "archive", target, topics="orders")
    assert [12 - there, there] == [sum(row[4] for row in told), sum(row[5] for row in told)]
    assert rows_of(spark, made / "data") == rows_of(spark, target)
    assert [] == findings(target)


def test_a_run_is_continued_after_a_compaction(spark, tmp_path, target, monkeypatch):
    """Restored records that compaction has removed are neither a conflict for the next run nor restored again."""
    with contextlib.closing(open_engine(tmp_path / "data")) as engine:
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        log = engine.create_topic("orders", overrides=compacted).partitions()[0]
        for number in range(40):
            log.append(encode([record(0, b"k%d" % (number % 4), b"%d" % number, timestamp=NEW_YEAR)]))
    archive(spark, ArchiveOptions(path=str(tmp_path / "data"), topics="orders", target=tmp_path / "archive"))
    interrupt_round(2, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        restored(spark, tmp_path / "archive", target, round_bytes=600)
    with contextlib.closing(open_engine(target)) as engine:
        log, now = engine.partition("orders", 0), system_clock()
        there = log.log_end_offset
        assert 4 < there < 40
        log.appender.roll()
        clean(log, plan(cleaning_params(log, None, now)), now=now)
    assert 4 == len(rows_of(spark, target))
    restored(spark, tmp_path / "archive", target)
    with contextlib.closing(open_engine(target)) as engine:
        values = [int(each.value) for each in read_records(engine.partition("orders", 0))]
    assert [*range(there - 4, 40)] == values


def test_a_topic_is_restored_under_another_name(spark, made, tmp_path):
    """A topic is restored under another name next to the original topic, with more partitions if requested."""
    data = tmp_path / "data"
    shutil.copytree(made / "data", data)
    restored(spark, made / "archive", data, topics="orders", into="orders-again", partitions=5)
    assert rows_of(spark, data) == rows_of(spark, data, "orders-again")
    with contextlib.closing(open_engine(data, read_only=True)) as engine:
        assert 5 == len(engine.topic("orders-again").partitions())


def differ(engine):
    append_lines(engine.create_topic("orders", partitions=3).partitions()[0], "another\n")


def hold_more(engine):
    append_lines(
        engine.create_topic("orders", partitions=3).partitions()[2], "a\nb\nc\nd\ne\nf\n", timestamp=NEW_YEAR
    )
    engine.partition("orders", 0).append(encode([record(0, b"a", b"old", timestamp=NEW_YEAR - 1)]))


def begin_later(engine):
    put_everything(engine)
    engine.partition("orders", 0).delete_records(Offset(1))


def have_given_offsets(engine):
    put_everything(engine)
    append_lines(engine.partition("orders", 2), "g\n")
    engine.partition("orders", 2).delete_records(Offset(7))


def be_too_few(engine):
    engine.create_topic("orders", partitions=2)


def forget(engine):
    engine.create_topic("orders", partitions=3, overrides={"retention.ms": "1000"})


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (differ, r"orders-0: offset 0 has another record in the archive \(key, value, timestamp, headers\)"),
        (hold_more, r"orders-0: offset 0 has another record in the archive \(headers\)"),
        (begin_later, "orders-0: begins at 1, the archive at 0"),
        (have_given_offsets, "orders-2: is empty, but its offsets up to 6 are used"),
        (be_too_few, "orders: has 2 partitions, the archive has 3"),
        (forget, "orders: retention.ms=1000 would delete restored records as too old"),
    ],
)
def test_a_conflict_is_reported_and_stays(spark, made, target, prepare, reason):
    """The error names the conflict, and the run changes nothing."""
    with contextlib.closing(open_engine(target)) as engine:
        prepare(engine)
    before = rows_of(spark, target)
    with pytest.raises(ConflictError, match=reason):
        restored(spark, made / "archive", target)
    assert before == rows_of(spark, target)


def test_a_record_on_one_side_alone_is_a_conflict(spark, made, target):
    """An offset with a record only in the archive, or only in the topic, is a conflict."""

    def end_with(*offsets):
        log = engine.partition("orders", 0)
        log.replacer.truncate_to(Offset(7))
        log.appender.append_as_follower(encode([record(offset) for offset in offsets]))

    with contextlib.closing(open_engine(target)) as engine:
        put_everything(engine)
        end_with(8)
    with pytest.raises(ConflictError, match="orders-0: offset 7 is only in the archive"):
        restored(spark, made / "archive", target)
    with contextlib.closing(open_engine(target)) as engine:
        end_with(7, 8)
    with pytest.raises(ConflictError, match="orders-0: offset 8 is only in the topic"):
        restored(spark, made / "archive", target)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topics": "orders,clicks"}, "has no records of clicks"),
        ({"into": "other"}, "into other: name exactly one topic"),
        ({"topics": "orders", "into": "a/b"}, "a/b"),
    ],
)
def test_bad_options_are_reported(spark, made, target, options, reason, monkeypatch):
    """Invalid options raise an error before anything is created or staged."""
    staged = []
    monkeypatch.setattr(module, "write_placed", lambda *arguments, **_: staged.append(arguments) or {})
    with pytest.raises(StorageError, match=reason):
        restored(spark, made / "archive", target, **options)
    assert ([], []) == (staged, [path.name for path in target.iterdir() if path.is_dir()])


@pytest.mark.java
def test_a_cluster_takes_everything_but_offsets(spark, made, broker):
    """With --without-offsets a cluster gets all but offsets: partitions, order, times, keys, values and headers."""
    place = f"kafka://{broker.bootstrap_server}"
    options = {"topics": "orders", "into": "restored"}
    with pytest.raises(PipelineError, match="a cluster assigns its own offsets.*--without-offsets"):
        restored(spark, made / "archive", place, **options)
    options["without_offsets"] = True
    with pytest.raises(
        ConflictError,
        match="restored: does not exist, or is hidden from you, in the cluster; create it with 3",
    ):
        restored(spark, made / "archive", place, **options)
    settings = {"max.message.bytes": "2000000", "retention.ms": "-1"}
    Client(broker.bootstrap_server).create_topic("restored", partitions=3, settings=settings)
    told = restored(spark, made / "archive", place, **options)
    assert [("restored", 0, 10), ("restored", 2, 2)] == [(*row[:2], row[4]) for row in told]

    columns = "partition", "key", "value", "timestamp", "headers"
    found = (
        spark.read.format("kafka")
        .options(
            subscribe="restored",
            includeHeaders="true",
            **{"kafka.bootstrap.servers": broker.bootstrap_server},
        )
        .load()
        .orderBy("partition", "offset")
    )
    expected = spark.read.format("topicfs").options(
        path=str(made / "data"), subscribe="orders", includeHeaders="true"
    )
    assert (
        expected.load().orderBy("partition", "offset").select(*columns).collect()
        == found.select(*columns).collect()
    )
    with pytest.raises(ConflictError, match="restored: has records already"):
        restored(spark, made / "archive", place, **options)
