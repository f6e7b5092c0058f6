"""Tests of errors for bad options and input, as the driver sees them: a condition, and one line with the cause."""

from __future__ import annotations

import pytest

from tests.pipeline.conftest import ROOT
from topicfs.pipeline.errors import raised_in
from topicfs.replication import open_engine
from topicfs.storage.codec.records import encode_lines

pytestmark = pytest.mark.spark

BATCHES = 5
LOST = "if its replicas are lost, leave it out: --without DIR, in Spark the option without"
EMPTY = f"{{folder}}/empty: not a data directory: it has neither meta.properties nor a partition; {LOST}"
SECOND_BATCH = 74
"""Position of the batch with a wrong checksum; every batch has this size."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make `data` with the topic `orders`, `bad` with a corrupt batch, and `empty`, which is not a data directory."""
    folder = tmp_path_factory.mktemp("bad-input")
    engine = open_engine(folder / "data")
    for topic in ("orders", "bad"):
        partition = engine.create_topic(topic).partitions()[0]
        for number in range(BATCHES):
            partition.append(encode_lines(f"line {number}\n".encode(), timestamp=0)[0])
    engine.close()
    segment = folder / "data" / "bad-0" / f"{0:020}.log"
    content = bytearray(segment.read_bytes())
    assert BATCHES * SECOND_BATCH == len(content)
    content[SECOND_BATCH + 70] ^= 1
    segment.write_bytes(content)
    (folder / "empty").mkdir()
    return folder


def options(folder, changed):
    given = {"path": "data", "subscribe": "orders", "startingOffsets": "earliest"} | changed
    return given | {"path": str(folder / given["path"])}


def batch(spark, given):
    """Count the records of a batch query."""
    return spark.read.format("topicfs").options(**given).load().count()


def stream(spark, given):
    """Count the records of a stream until it ends."""
    counts = []
    frame = spark.readStream.format("topicfs").options(**given).load()
    query = frame.writeStream.foreachBatch(lambda rows, _: counts.append(rows.count()))
    query.trigger(availableNow=True).start().awaitTermination()
    return sum(counts)


def told(error, condition):
    """Return topicfs's line in Spark's `error`. The error must have `condition`, and no traceback of a worker."""
    text = str(error)
    raised = raised_in(text)
    assert raised is not None, text
    assert condition == raised.condition
    assert 'File "' + str(ROOT / "pipeline") not in text
    return raised.message


ASKED = [
    ({"color": "red"}, "INVALID_OPTION", "color: not an option of topicfs"),
    ({"subscribe": "payments"}, "UNKNOWN_TOPIC", "payments: no such topic; there are bad, orders"),
    ({"path": "empty"}, "PIPELINE", EMPTY),
    (
        {"path": "nowhere"},
        "PIPELINE",
        "{folder}/nowhere: no such directory; path takes one, several after commas, or a glob",
    ),
    (
        {"subscribe": "bad"},
        "CORRUPTION",
        "{folder}/data/bad-0/00000000000000000000.log: position 74: checksum is 0x",
    ),
]


@pytest.mark.parametrize("read", [batch, stream])
@pytest.mark.parametrize(("changed", "condition", "line"), ASKED)
def test_an_invalid_read_is_an_error(spark, folder, read, changed, condition, line):
    """An invalid read gives an error with thing, cause and remedy; for a corrupt batch, with file and position."""
    with pytest.raises(Exception) as caught:
        read(spark, options(folder, changed))
    assert told(caught.value, f"TOPICFS_{condition}").startswith(line.format(folder=folder))


LATE = '{"orders":{"0":7}}'
"""Offset 7, beyond the end of a topic that ends at 5."""


@pytest.mark.parametrize(
    ("read", "changed", "line"),
    [
        (batch, {"endingOffsets": LATE}, "orders-0: ending offset 7 is beyond 5"),
        (stream, {"startingOffsets": LATE}, "orders-0: starting offset 7 is outside [0, 5]"),
    ],
)
def test_an_offset_that_is_not_there(spark, folder, read, changed, line):
    """A missing offset gives an error with a remedy. failOnDataLoss=false reads the existing records."""
    with pytest.raises(Exception) as caught:
        read(spark, options(folder, changed))
    assert told(caught.value, "TOPICFS_DATA_LOSS") == f"{line}; failOnDataLoss=false reads what exists"
    expected = {batch: BATCHES, stream: 0}[read]
    assert expected == read(spark, options(folder, changed | {"failOnDataLoss": "false"}))


@pytest.mark.parametrize("read", [batch, stream])
def test_corrupt_batches_are_passed_over(spark, folder, read):
    """With corruptBatches=skip all other batches are read."""
    changed = {"subscribe": "bad", "corruptBatches": "skip"}
    assert BATCHES - 1 == read(spark, options(folder, changed))


@pytest.mark.parametrize(
    ("changed", "condition", "line"),
    [
        ({"color": "red"}, "INVALID_OPTION", "color: not an option for writes to topicfs"),
        (
            {"topic": "payments"},
            "UNKNOWN_TOPIC",
            "payments: no such topic; make it first: topicfs topics create payments",
        ),
        (
            {"path": "empty"},
            "PIPELINE",
            EMPTY,
        ),
        (
            {"path": "nowhere"},
            "PIPELINE",
            "{folder}/nowhere: no such directory; path takes one, several after commas, or a glob; " + LOST,
        ),
    ],
)
def test_an_invalid_write_is_an_error(spark, folder, changed, condition, line):
    """An invalid write fails before any task runs."""
    given = {"path": "data", "topic": "orders"} | changed
    given["path"] = str(folder / given["path"])
    rows = spark.range(1).selectExpr("'v' AS value")
    with pytest.raises(Exception) as caught:
        rows.write.format("topicfs").mode("append").options(**given).save()
    assert told(caught.value, f"TOPICFS_{condition}") == line.format(folder=folder)
