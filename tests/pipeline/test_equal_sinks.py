"""Tests that the sink writes the same records as Spark's own Kafka connector to topics with equal partitions."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from testing.broker.client import Client
from topicfs.pipeline.sink.writers import target_of
from topicfs.replication import open_engine
from topicfs.storage.errors import StorageError

pytestmark = [pytest.mark.spark, pytest.mark.java]

TOPICS = {"sunk": 3, "sunk-too": 1}
TIMED = "sunk-timed"
"""A further topic of one partition, which `Sinks.records` leaves out."""
IMPATIENT = {
    "kafka.max.block.ms": "2000",
    "kafka.delivery.timeout.ms": "3000",
    "kafka.request.timeout.ms": "2000",
}
"""Short time limits for writes that must be refused; other writes may be slow on a busy machine."""
HEADERS = "array<struct<key:string,value:binary>>"
SUNK = {"topic": "sunk"}
NEW_YEAR = 1_767_225_600


class Sinks(NamedTuple):
    """A broker and a directory with the same topics."""

    spark: Any
    where: dict[str, dict[str, str]]

    def write(self, kind: str, frame: Any, options: Mapping[str, str]) -> None:
        frame.write.format(kind).mode("append").options(**self.where[kind] | dict(options)).save()

    def write_ours(self, frame: Any, options: Mapping[str, str]) -> None:
        """Write with topicfs. First check the write in this process, to raise early errors without Spark."""
        target_of(self.where["topicfs"] | dict(options), frame.schema, overwrite=False)
        self.write("topicfs", frame, options)

    def records(self, kind: str) -> list[tuple[Any, ...]]:
        """Return topic, key, value and headers of each record.

        The partition is included unless the writer is free to choose the record's partition.
        """
        given = {"subscribe": ",".join(TOPICS), "includeHeaders": "true", "startingOffsets": "earliest"}
        frame = self.spark.read.format(kind).options(**self.where[kind] | given).load()
        return sorted(
            (
                (
                    row.topic,
                    row.key,
                    row.value,
                    row.headers,
                    row.partition if row.value != b"unkeyed" else None,
                )
                for row in frame.collect()
            ),
            key=repr,
        )


@pytest.fixture(scope="module")
def sinks(spark, broker, tmp_path_factory):
    """Make topics of three partitions and of one partition, in a broker and in a directory."""
    data = tmp_path_factory.mktemp("sinks")
    client = Client(broker.bootstrap_server)
    with contextlib.closing(open_engine(data)) as engine:
        for topic, partitions in {**TOPICS, TIMED: 1}.items():
            client.create_topic(topic, partitions=partitions)
            engine.create_topic(topic, partitions=partitions)
    shared = {"kafka.linger.ms": "0", "kafka.bootstrap.servers": broker.bootstrap_server}
    return Sinks(spark, {"kafka": shared, "topicfs": shared | {"path": str(data)}})


WRITTEN = [
    ("SELECT cast(id AS string) AS key, concat('keyed ', id) AS value FROM range(0, 200, 1, 2)", SUNK),
    ("SELECT cast(cast(id AS string) AS binary) AS key, 'binary' AS value FROM range(20)", SUNK),
    ("SELECT 'unkeyed' AS value", SUNK),
    (
        "SELECT cast(id % 3 AS int) AS partition, 'k' AS key, 'placed' AS value, 'passed over' AS mood FROM range(7)",
        SUNK,
    ),
    (
        f"""SELECT key, partition, value, cast(headers AS {HEADERS}) AS headers FROM VALUES
            ('null partition', cast(null AS int), X'', null),
            ('null value', null, null, array()),
            ('headers', null, X'00ff', array(struct('h', X'01'), struct('n', null), struct('', X'')))
            AS rows(key, partition, value, headers)""",
        SUNK,
    ),
    (
        """SELECT if(id % 2 = 0, 'sunk', 'sunk-too') AS topic, cast(id AS string) AS key, 'by column' AS value
           FROM range(10)""",
        {},
    ),
    ("SELECT cast(null AS string) AS topic, 'k' AS key, 'null topic overridden' AS value", SUNK),
    ("SELECT 7 AS topic, 'k' AS key, 'topic of another type overridden' AS value", SUNK),
    ("SELECT 'k' AS key, 'no rows' AS value FROM range(0)", SUNK),
]


def test_equal_records(sinks, tmp_path):
    """Both formats write the same records to the same partitions, in batches and in a stream."""
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "file").write_text("one\ntwo\n")
    stream = sinks.spark.readStream.format("text").load(str(tmp_path / "lines"))
    for kind in ("kafka", "topicfs"):
        for query, options in WRITTEN:
            sinks.write(kind, sinks.spark.sql(query), options)
        rows = stream.selectExpr("value AS key", "'streamed' AS value")
        writer = rows.writeStream.format(kind).options(**sinks.where[kind] | SUNK)
        writer = writer.option("checkpointLocation", str(tmp_path / kind)).trigger(availableNow=True)
        writer.start().awaitTermination()
    theirs, ours = sinks.records("kafka"), sinks.records("topicfs")
    assert theirs == ours
    assert 200 + 20 + 1 + 7 + 3 + 10 + 1 + 1 + 2 == len(ours)


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("SELECT 'v' AS value", {}),
        ("SELECT 'k' AS key", SUNK),
        ("SELECT 'k' AS KEY, 'v' AS VALUE", SUNK),
        ("SELECT 1 AS value", SUNK),
        ("SELECT null AS value", SUNK),
        ("SELECT 1 AS key, 'v' AS value", SUNK),
        ("SELECT 1 AS topic, 'v' AS value", {}),
        ("SELECT cast('sunk' AS binary) AS topic, 'v' AS value", {}),
        ("SELECT 1L AS partition, 'v' AS value", SUNK),
        ("SELECT array(struct('h' AS key, 'text' AS value)) AS headers, 'v' AS value", SUNK),
        ("SELECT array(struct('h' AS a, X'01' AS b)) AS headers, 'v' AS value", SUNK),
        ("SELECT 'v' AS value", {"topic": ""}),
        ("SELECT 'v' AS value", {"topic": "a b"}),
        ("SELECT 'v' AS value", {"topic": "none"}),
        ("SELECT 'v' AS value", SUNK | {"kafka.key.serializer": "x"}),
        ("SELECT 'v' AS value", SUNK | {"kafka.value.serializer": "x"}),
        ("SELECT cast(null AS string) AS topic, 'v' AS value", {}),
        ("SELECT -1 AS partition, 'v' AS value", SUNK),
        ("SELECT 9 AS partition, 'v' AS value", SUNK),
        (f"SELECT cast(array(struct(null, X'01')) AS {HEADERS}) AS headers, 'v' AS value", SUNK),
        ("SELECT repeat('v', 2000000) AS value", SUNK),
    ],
    ids=repr,
)
def test_errors_of_both(sinks, query, options):
    """Both formats refuse the same writes."""
    frame = sinks.spark.sql(query)
    with pytest.raises((PySparkException, Py4JError)):
        sinks.write("kafka", frame, IMPATIENT | options)
    with pytest.raises((PySparkException, StorageError)):
        sinks.write_ours(frame, options)


def test_only_ours_writes_times(sinks):
    """As documented, only topicfs writes the column `timestamp`. The connector ignores the column."""
    frame = sinks.spark.sql(f"SELECT 'timed' AS value, timestamp_seconds({NEW_YEAR}) AS timestamp")
    found = {}
    for kind in ("kafka", "topicfs"):
        sinks.write(kind, frame, {"topic": TIMED})
        given = sinks.where[kind] | {"subscribe": TIMED, "startingOffsets": "earliest"}
        rows = sinks.spark.read.format(kind).options(**given).load()
        (found[kind],) = (row.at for row in rows.selectExpr("unix_seconds(timestamp) AS at").collect())
    assert NEW_YEAR == found["topicfs"]
    assert found["kafka"] > NEW_YEAR


def test_what_only_ours_refuses(sinks):
    """As documented, only topicfs refuses unknown options, and a missing topic even if there are no rows for it."""
    frame = sinks.spark.sql("SELECT 'v' AS value FROM range(0)")
    for options, said in (
        (SUNK | {"color": "red"}, "color: not an option"),
        ({"topic": "none"}, "no such topic"),
    ):
        sinks.write("kafka", frame, options)
        with pytest.raises(StorageError, match=said):
            sinks.write_ours(frame, options)
