"""Tests that the source reads the same records as Spark's own Kafka connector, for every option that both support.

A broker writes the topics, and topicfs reads the broker's log directory, so both read the same records.
"""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as spark_functions

from testing.broker.client import Client, Outgoing
from tests.doubles.waiting import wait_until
from tests.pipeline.both_formats import Both, of_orders
from tests.pipeline.topics_of_a_broker import NOON, checkpoint, write_topics
from topicfs.storage.disk.names import HIGH_WATERMARKS
from topicfs.storage.model import TopicPartition

pytestmark = [pytest.mark.spark, pytest.mark.java]

ALL = {"subscribe": "orders,orders.eu,stamped,compacted,empty,cut,ledger"}
ORDERS = {"subscribe": "orders"}
LEDGER = {"subscribe": "ledger"}
COMMITTED = {"kafka.isolation.level": "read_committed", "kafka.group.id": "committed"}
CARELESS = {"failOnDataLoss": "false"}
LATEST = {"startingOffsetsByTimestampStrategy": "latest"}


def at(second: float) -> str:
    """Return a time of `orders`, whose records are a second apart."""
    return str(NOON + int(1000 * second))


def times(*seconds: float) -> str:
    return of_orders(*(NOON + int(1000 * second) for second in seconds))


@pytest.fixture(scope="module")
def both(spark, broker):
    """Make the topics; one transaction stays open."""
    undecided = write_topics(Client(broker.bootstrap_server), broker.log_dir)
    yield Both(spark, broker.bootstrap_server, broker.log_dir)
    undecided.abort_transaction(30)


READ = [
    ALL,
    LEDGER | COMMITTED,
    LEDGER | {"kafka.isolation.level": "read_uncommitted", "kafka.group.id": "uncommitted"},
    ORDERS | CARELESS | {"startingOffsets": of_orders(0, 3, 2), "endingOffsets": of_orders(9, -1, 4)},
    {
        "assign": '{"orders":[0,2]}',
        "startingTimestamp": at(3),
        "endingTimestamp": at(6),
        "minPartitions": "3",
    },
    {"subscribePattern": "^orders$", "failOnDataLoss": "TRUE", "maxOffsetsPerTrigger": "3"},
]


def test_equal_rows(both):
    """Both formats return equal rows in all columns for each query."""
    cases = [options | {"includeHeaders": "true"} for options in READ]
    theirs, ours = both.batches("kafka", cases), both.batches("topicfs", cases)
    assert theirs.schema == ours.schema
    # PySpark's own comparison needs a version of pandas before 3.
    assert sorted(map(repr, theirs.collect())) == sorted(map(repr, ours.collect()))


BOUNDED = [
    # Partitions.
    {"subscribe": " orders , stamped ,"},
    {"subscribePattern": "orders"},
    {"subscribePattern": "^orders$"},
    {"subscribePattern": "none"},
    {"assign": '{"orders":[0,2],"ledger":[1]}'},
    {"assign": '{"orders":[0,0,7,-1]}'},
    {"assign": '{"orders":[]}'},
    # Starting and ending offsets.
    ORDERS | {"startingOffsets": " Earliest "},
    ORDERS | {"startingOffsets": of_orders(5, -2, 0)},
    ORDERS | {"startingOffsets": of_orders(40, 24, 8)},
    ORDERS | {"endingOffsets": "LATEST"},
    ORDERS | {"endingOffsets": of_orders(5, -1, 0)},
    ORDERS | {"startingOffsets": of_orders(9, 3, 2), "endingOffsets": of_orders(22, 5, 2)},
    {"subscribe": "compacted", "startingOffsets": of_orders(1, topic="compacted")},
    {"subscribe": "compacted", "endingOffsets": of_orders(23, topic="compacted")},
    # Starting and ending times.
    ORDERS | {"startingTimestamp": at(3)},
    ORDERS | {"startingTimestamp": at(3.5)},
    ORDERS | {"startingTimestamp": " 0 "},
    ORDERS | {"startingTimestamp": "-1"},
    ORDERS | {"startingTimestamp": "-2"},
    ORDERS | {"startingTimestamp": at(20)} | LATEST,
    ORDERS | {"startingOffsetsByTimestamp": times(3, 0, -9)},
    ORDERS | {"startingOffsetsByTimestamp": times(3, 90, 0)} | LATEST,
    ORDERS | {"startingOffsetsByTimestamp": of_orders(-2, -1, 0)},
    ORDERS | {"endingTimestamp": at(10)},
    ORDERS | {"endingTimestamp": at(99)},
    ORDERS | {"endingTimestamp": "-1"},
    ORDERS | {"endingOffsetsByTimestamp": times(3, 90, 2)},
    ORDERS | {"endingOffsetsByTimestamp": of_orders(-2, -1, NOON)},
    ORDERS | {"startingTimestamp": at(5), "endingTimestamp": at(6)},
    {"subscribe": "compacted", "startingTimestamp": str(NOON + 3)},
    {"subscribe": "stamped", "startingTimestamp": "0"},
    {"subscribe": "empty", "startingTimestamp": "0"} | LATEST,
    # Precedence of the options.
    ORDERS | {"startingTimestamp": at(3), "startingOffsetsByTimestamp": times(9, 9, 9)},
    ORDERS | {"startingTimestamp": at(3), "startingOffsets": "latest"},
    ORDERS | {"startingOffsetsByTimestamp": times(5, 0, 0), "startingOffsets": of_orders(9, 9, 2)},
    ORDERS | {"endingTimestamp": at(3), "endingOffsetsByTimestamp": times(9, 9, 9)},
    ORDERS | {"endingOffsetsByTimestamp": times(5, 4, 1), "endingOffsets": of_orders(9, 9, 2)},
    ORDERS | {"endingTimestamp": at(3), "endingOffsets": "earliest"},
    # Lost records.
    ORDERS | CARELESS | {"startingOffsets": of_orders(0, 0, 0)},
    ORDERS | CARELESS | {"startingOffsets": of_orders(0, 0, 0), "endingOffsets": of_orders(1, -1, 0)},
    ORDERS | CARELESS | {"startingOffsets": of_orders(50, 0, 0), "endingOffsets": of_orders(60, -1, 0)},
    {"subscribe": "cut", "startingOffsets": of_orders(1, topic="cut")} | CARELESS,
    # Transactions.
    LEDGER | COMMITTED | {"startingOffsets": of_orders(2, 1, topic="ledger")},
    LEDGER | COMMITTED | {"endingOffsets": of_orders(10, 12, topic="ledger")},
]


def test_equal_choices(both):
    """Both formats return the same records for every choice of partitions and offsets. topicfs reads without Spark."""
    frame = both.batches("kafka", BOUNDED).select("case", "topic", "partition", "offset")
    theirs = sorted(map(tuple, frame.collect()))
    ours = [(case, *one) for case, options in enumerate(BOUNDED) for one in both.our_offsets(options)]
    assert theirs == sorted(ours)


def test_equal_schemas(both):
    """The schemas with and without headers have the same names, types and nullability."""
    for include in ({}, {"includeHeaders": "FALSE"}, {"includeHeaders": "TRUE"}):
        theirs, ours = (both.batch(kind, ORDERS | include) for kind in ("kafka", "topicfs"))
        assert theirs.schema == ours.schema


@pytest.mark.parametrize(
    "options",
    [
        {},
        ORDERS | {"assign": '{"orders":[0]}'},
        {"subscribe": ""},
        {"subscribe": ","},
        {"subscribe": "orders,nope"},
        {"subscribe": "or/ders"},
        {"subscribePattern": ""},
        {"subscribePattern": "("},
        {"assign": "orders"},
        {"assign": '{"orders":["0"]}'},
        {"assign": '{"nope":[0]}'},
        ORDERS | {"startingOffsets": "latest"},
        ORDERS | {"startingOffsets": ""},
        ORDERS | {"startingOffsets": "7"},
        ORDERS | {"startingOffsets": of_orders(5)},
        ORDERS | {"startingOffsets": of_orders(5, 0, 0, 0)},
        ORDERS | {"startingOffsets": of_orders(5, -1, 0)},
        ORDERS | {"startingOffsets": of_orders(5, -3, 0)},
        ORDERS | {"startingOffsets": of_orders(0, 0, 0)},
        ORDERS | {"startingOffsets": of_orders(41, 0, 0)},
        ORDERS | {"startingOffsets": of_orders(41, 0, 0)} | CARELESS,
        ORDERS | {"endingOffsets": "earliest"},
        ORDERS | {"endingOffsets": of_orders(5)},
        ORDERS | {"endingOffsets": of_orders(5, -2, 0)},
        ORDERS | {"endingOffsets": of_orders(1, -1, 0)},
        ORDERS | {"endingOffsets": of_orders(1, -1, 0)} | CARELESS,
        ORDERS | {"endingOffsets": of_orders(100, -1, 0)},
        ORDERS | {"startingOffsets": of_orders(9, 0, 0), "endingOffsets": of_orders(5, -1, 0)} | CARELESS,
        ORDERS | {"startingTimestamp": at(20)},
        ORDERS | {"startingTimestamp": "now"},
        ORDERS | {"startingTimestamp": "1.5"},
        ORDERS | {"startingTimestamp": at(3), "startingOffsetsByTimestampStrategy": "guess"},
        ORDERS | {"startingTimestamp": at(6), "endingTimestamp": at(5)},
        ORDERS | {"startingOffsetsByTimestamp": times(3)},
        ORDERS | {"startingOffsetsByTimestamp": times(3, 90, 0)},
        ORDERS | {"startingOffsetsByTimestamp": "latest"},
        ORDERS | {"endingOffsetsByTimestamp": "latest"},
        {"subscribe": "empty", "startingTimestamp": "0"},
        {"subscribe": "cut", "startingOffsets": of_orders(1, topic="cut")},
        ORDERS | {"failOnDataLoss": "maybe"},
        ORDERS | {"includeHeaders": ""},
        ORDERS | {"minPartitions": "0"},
        ORDERS | {"minPartitions": " 5"},
        ORDERS | {"maxRecordsPerPartition": "-1"},
        ORDERS | {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "10"},
        ORDERS | {"kafka.isolation.level": "READ_COMMITTED"},
        ORDERS | {"kafka.auto.offset.reset": "earliest"},
        ORDERS | {"kafka.key.deserializer": "x"},
        ORDERS | {"kafka.value.deserializer": "x"},
        ORDERS | {"kafka.enable.auto.commit": "true"},
        ORDERS | {"kafka.interceptor.classes": "x"},
    ],
    ids=repr,
)
def test_errors_of_both(both, options):
    """Queries on which the connector fails also fail with topicfs."""
    assert both.connectors_error(options)
    assert both.our_error(options)


def test_equal_tasks(both):
    """minPartitions gives equal ranges in both formats. So does maxRecordsPerPartition if the connector applies it."""
    cases = [ORDERS | {"minPartitions": least} for least in ("2", "4", "7", "13")]
    cases.append(ORDERS | {"minPartitions": "5", "maxRecordsPerPartition": "4"})
    tasks = both.batches("kafka", cases).groupBy("case", "partition", spark_functions.spark_partition_id())
    found = tasks.agg(spark_functions.min("offset"), spark_functions.max("offset")).collect()
    theirs = sorted((case, partition, first, last + 1) for case, partition, _, first, last in found)
    ours = [(case, *task.range) for case, options in enumerate(cases) for task in both.our_tasks(options)]
    assert theirs == [(case, partition.partition, start, end) for case, partition, start, end in sorted(ours)]


STREAMED = [
    ORDERS,
    ORDERS | {"maxOffsetsPerTrigger": "33", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "5s"},
    {"subscribe": "compacted", "maxOffsetsPerTrigger": "20"},
    ORDERS | {"startingOffsets": of_orders(5, -2, -1)},
    ORDERS | {"startingOffsets": "latest"},
    ORDERS | CARELESS | {"startingOffsets": of_orders(0, 50, 0)},
    ORDERS | {"startingOffsetsByTimestamp": times(5, 20, 1)} | LATEST,
    {"subscribePattern": "stam|cut|emp"},
    {"assign": '{"orders":[0,7]}', "minPartitions": "3"},
    LEDGER | COMMITTED,
]


def test_equal_streams(both, tmp_path):
    """Both formats return equal rows in equal micro-batches, from any start and with any limit."""
    cases = [{"startingOffsets": "earliest", "includeHeaders": "true"} | options for options in STREAMED]
    theirs = both.streams("kafka", cases, tmp_path / "theirs")
    ours = both.streams("topicfs", cases, tmp_path / "ours")
    assert theirs == ours
    assert {0: 1, 1: 3} == {case: len(ours[case]) for case in range(2)}


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "orders,nope"},
        ORDERS | {"startingOffsets": of_orders(0, 0, 0)},
        ORDERS | {"startingOffsets": of_orders(50, 0, 0)},
        ORDERS | {"startingOffsets": of_orders(5)},
        ORDERS | {"startingTimestamp": at(20)},
        ORDERS | {"endingOffsets": "latest"},
        ORDERS | {"endingOffsetsByTimestamp": times(1, 1, 1)},
        ORDERS | {"maxOffsetsPerTrigger": "x"},
        ORDERS | {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "9"},
        ORDERS | {"maxTriggerDelay": "soon"},
        ORDERS | {"maxTriggerDelay": "5 min", "minOffsetsPerTrigger": "3"},
    ],
    ids=repr,
)
def test_errors_of_both_streams(both, options, tmp_path):
    """Streams on which the connector fails also fail with topicfs."""
    given = {"startingOffsets": "earliest"} | options
    assert both.connectors_error(given, tmp_path)
    assert both.our_error(given, streaming=True)


def test_a_checkpoint_moves_between_the_formats(both, tmp_path):
    """A stream continues with the other format, because both formats write the next offsets in the same form."""
    client, place = Client(both.server), TopicPartition("moving", 0)
    client.create_topic("moving")
    found = []

    def take(frame, _):
        found.append([bytes(row.value) for row in frame.orderBy("offset").collect()])

    for number, kind in enumerate(("kafka", "topicfs", "kafka")):
        client.produce("moving", [Outgoing(b"%d" % number)])
        wait_until(
            lambda: checkpoint(both.log_dir, HIGH_WATERMARKS).get(place) == number + 1,  # noqa: B023 (at once)
            "it is replicated",
        )
        frame = both.stream(kind, {"subscribe": "moving", "startingOffsets": "earliest"})
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path))
        query.trigger(availableNow=True).start().awaitTermination()
    assert [[b"0"], [b"1"], [b"2"]] == found


def test_both_fail_over_a_topic_created_again(both, tmp_path):
    """Both formats fail if a topic was created again and is now shorter than before.

    The connector does not notice a new topic that is longer than the old one.
    """
    client, place = Client(both.server), TopicPartition("anew", 0)

    def run(kind):
        frame = both.stream(kind, {"subscribe": "anew", "startingOffsets": "earliest"})
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / kind))
        writer.trigger(availableNow=True).start().awaitTermination()

    for count in (3, 1):
        client.create_topic("anew")
        client.produce("anew", [Outgoing(b"%d" % number) for number in range(count)])
        wait_until(lambda: checkpoint(both.log_dir, HIGH_WATERMARKS).get(place) == count, "it is replicated")  # noqa: B023 (at once)
        for kind, said in (
            ("kafka", "offset was changed from 3 to 1"),
            ("topicfs", "was deleted and created again"),
        ):
            if count == 3:
                run(kind)
            else:
                with pytest.raises(StreamingQueryException, match=said):
                    run(kind)
        client.delete_topics(["anew"])
        wait_until(lambda: not (both.log_dir / "anew-0").exists(), "it is deleted")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (ORDERS | {"color": "red"}, "color: not an option of topicfs"),
        (ORDERS | {"maxOffsetsPerTrigger": "x"}, "expected a positive number"),
        (ORDERS | {"startingOffsetsByTimestamp": of_orders(-3, 0, 0)}, "the invalid time -3"),
        ({"subscribePattern": "\\p{Lower}"}, "is not a valid pattern"),
    ],
    ids=repr,
)
def test_what_only_ours_refuses(both, options, said):
    """As documented, topicfs refuses names that the connector ignores, and values that only the connector accepts."""
    both.batch("kafka", options).collect()
    assert said in both.our_error(options)


def test_times_are_those_of_records(both):
    """As documented, topicfs finds only the times of records.

    A broker also finds transaction markers, whose time is the time at which the broker wrote them.
    """
    client = Client(both.server)
    theirs = [client.offset_at("ledger", NOON + 1, partition=number) for number in range(2)]
    ours = [task.range.start_offset for task in both.our_tasks(LEDGER | {"startingTimestamp": str(NOON + 1)})]
    assert ([3, 3], [5, 4]) == (theirs, ours)
