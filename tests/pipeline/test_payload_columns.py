"""Tests of columns with decoded payloads, in real Spark tasks."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from uuid import UUID

import pytest

from testing.broker.client import Client, Outgoing
from tests.schemas.examples import ORDER, ORDER_PROTO, appended, avro, engine_with, framed, line, registered
from tests.schemas.test_registry import as_registry, serving
from topicfs import pipeline
from topicfs.schemas.schema import MissingLibraryError

pytestmark = pytest.mark.spark

PAYLOADS = [
    framed(7, avro(ORDER, {"id": 1, "note": "größer"})),
    framed(7, avro(ORDER, {"id": 2})),
    None,
    framed(99, b"unknown"),
    framed(7, b"\xff"),
    b"plain",
    b"",
]
DECODED = [
    ('{"id":1,"note":"größer"}', 7, None, None),
    ('{"id":2,"note":null}', 7, None, None),
    None,
    (None, 99, None, "AAAAAGN1bmtub3du"),
    (None, 7, None, "AAAAAAf/"),
    (None, None, None, "cGxhaW4="),
    (None, None, None, ""),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Make topics `orders` and `_schemas` in a data directory."""
    path = tmp_path_factory.mktemp("decoded") / "data"
    lines = registered("orders-value", 1, 7, ORDER) + registered("r-value", 1, 8, ORDER_PROTO, "PROTOBUF")
    engine = engine_with(path, lines)
    appended(engine.create_topic("orders"), b"".join(map(line, PAYLOADS)))
    engine.close()
    return path


def orders(spark, data):
    pipeline.register(spark)
    return spark.read.format("topicfs").options(path=str(data), subscribe="orders").load().orderBy("offset")


def rows(decoded):
    return [row[0] and tuple(row[0]) for row in decoded.collect()]


def test_each_payload_is_decoded_by_its_own_schema(spark, data):
    """Each payload is decoded with its schema in `_schemas`. An undecodable payload does not fail the query."""
    assert DECODED == rows(orders(spark, data).select(pipeline.from_topicfs_avro("value", str(data))))


def test_a_column_may_be_computed(spark, data):
    """The decoded column may be an expression, and the parts of the result are ordinary columns."""
    topic = orders(spark, data)
    decoded = pipeline.from_topicfs_avro(topic.value, str(data))
    ids = topic.select(decoded.payload_schema_id.alias("id")).where("id is not null").collect()
    assert [7, 7, 99, 7] == [row.id for row in ids]


def test_schemas_of_files_are_read_by_the_tasks(spark, data, tmp_path):
    """Tasks read schemas from a directory of files, as a mount does."""
    (tmp_path / "7.avsc").write_text(json.dumps(ORDER))
    decoded = pipeline.from_topicfs_avro("value", schema_dir=str(tmp_path))
    assert DECODED == rows(orders(spark, data).select(decoded))


def test_a_registry_is_asked_by_the_tasks(spark, data):
    """The tasks query the registry for schemas that are neither in the topic nor in files."""
    with serving(as_registry) as (url, _asked):
        decoded = pipeline.from_topicfs_avro("value", schema_registry=url)
        assert DECODED == rows(orders(spark, data).select(decoded))


def test_the_other_languages_have_functions_too(spark, data):
    """Protobuf messages are decoded, and so are JSON messages, which need no schema."""
    payloads = spark.createDataFrame([(framed(8, b"\x02\x02\x0a\x02no"),)], "value binary")
    decoded = payloads.select(pipeline.from_topicfs_protobuf("value", str(data)))
    assert [('{"reason":"no"}', 8, None, None)] == rows(decoded)
    payloads = spark.createDataFrame([(framed(9, b'{"a":1.10}'),)], "value binary")
    assert [('{"a":1.10}', 9, None, None)] == rows(payloads.select(pipeline.from_topicfs_json("value")))


GUID = UUID("3f1c1b8e-0000-4000-8000-00000000002a")


def test_frames_may_stand_in_headers(spark, data):
    """A schema's number or GUID is read from a header of the value or key, or from the start of the payload."""
    number, guid = bytes([0, 0, 0, 0, 7]), bytes([1]) + GUID.bytes
    message = avro(ORDER, {"id": 1})
    rows_given = [
        (message, [("other", b"x"), ("__value_schema_id", number), ("__value_schema_id", b"second")]),
        (message, [("__value_schema_id", guid)]),
        (PAYLOADS[1], [("__key_schema_id", number)]),
        (PAYLOADS[1], None),
        (b"plain", [("__value_schema_id", None)]),
        (None, [("__value_schema_id", number)]),
    ]
    given = "value binary, headers array<struct<key: string, value: binary>>"
    framed_rows = spark.createDataFrame(rows_given, given)
    decoded = framed_rows.select(pipeline.from_topicfs_avro("value", str(data), headers="headers"))
    assert [
        ('{"id":1,"note":null}', 7, None, None),
        (None, None, str(GUID), b64encode(message).decode()),
        DECODED[1],
        DECODED[1],
        (None, None, None, "cGxhaW4="),
        None,
    ] == rows(decoded)
    of_key = spark.createDataFrame([(b'{"a":1}', [("__key_schema_id", number)])], given)
    assert [('{"a":1}', 7, None, None)] == rows(
        of_key.select(pipeline.from_topicfs_json("value", headers=of_key.headers, of_key=True))
    )


def test_a_missing_library_is_an_error_of_the_driver(spark, data, monkeypatch):
    """If a library is missing, the query fails in the driver, before any task runs."""
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MissingLibraryError, match="fastavro"):
        pipeline.from_topicfs_avro("value", str(data))


@pytest.mark.java
def test_schemas_of_a_cluster_are_read_from_its_own_topic(spark, broker):
    """The schemas for a cluster's records come from the cluster's own topic."""
    client = Client(broker.bootstrap_server)
    client.create_topic("_schemas")
    key = {"keytype": "SCHEMA", "subject": "orders-value", "version": 1, "magic": 1}
    value = {"subject": "orders-value", "version": 1, "id": 7, "schema": json.dumps(ORDER), "deleted": False}
    client.produce("_schemas", [Outgoing(json.dumps(value).encode(), json.dumps(key).encode())])
    payloads = spark.createDataFrame([(PAYLOADS[0],), (PAYLOADS[3],)], "value binary")
    decoded = payloads.select(pipeline.from_topicfs_avro("value", f"kafka://{broker.bootstrap_server}"))
    assert [DECODED[0], DECODED[3]] == rows(decoded)
    client.delete_topics(["_schemas"])
