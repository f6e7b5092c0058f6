"""Tests of schemas in the topic `_schemas`, which a registry writes and compacts while the source follows it."""

from __future__ import annotations

import json
import tracemalloc
from uuid import UUID

import pytest

from tests.doubles.damage import flip_text
from tests.schemas.examples import ORDER, ORDER_PROTO, appended, engine_with, line, registered
from topicfs.coordination.engine import Engine
from topicfs.replication import open_engine
from topicfs.schemas.schema import Kind, PayloadSchema, SchemaReference
from topicfs.schemas.sources.topic import SchemasTopic

GUID = "89791762-2336-4186-9674-299b90a802e2"


@pytest.fixture
def engine(tmp_path):
    lines = b"".join([
        line(None, b'{"keytype":"NOOP","magic":0}'),
        registered("orders-value", 1, 7, "string"),
        registered("orders-value", 2, 8, ORDER, references=[{"name": "shop.Line", "subject": "lines", "version": 3}]),
        registered("refunds-value", 1, 9, ORDER_PROTO, "PROTOBUF", guid=GUID),
        line(b'{"compatibilityLevel":"FULL"}', b'{"keytype":"CONFIG","subject":null,"magic":0}'),
    ])  # fmt: skip
    engine = engine_with(tmp_path / "data", lines)
    yield engine
    engine.close()


def grow(engine: Engine, *lines: bytes) -> None:
    appended(engine.topic("_schemas"), b"".join(lines))


def test_schemas_are_found_by_id_guid_and_version(engine):
    """Schemas are found by id, GUID and version, with their language (by default Avro) and their references."""
    source = SchemasTopic(engine)
    assert PayloadSchema(Kind.AVRO, '"string"', (), 7) == source.by_id(7)
    need = SchemaReference("shop.Line", "lines", 3)
    assert PayloadSchema(Kind.AVRO, json.dumps(ORDER), (need,), 8) == source.by_id(8)
    protobuf = PayloadSchema(Kind.PROTOBUF, ORDER_PROTO, (), 9)
    assert protobuf == source.by_id(UUID(GUID))
    assert protobuf == source.referenced(SchemaReference("any", "refunds-value", 1))
    assert source.by_id(10) is None
    assert source.by_id(UUID(int=1)) is None
    assert source.referenced(SchemaReference("any", "refunds-value", 2)) is None


def test_what_is_registered_later_is_found(engine):
    """A schema that is registered later is found, and changes the stamp."""
    source = SchemasTopic(engine)
    assert source.by_id(10) is None
    before = source.stamp()
    grow(engine, registered("more-value", 1, 10, "int"))
    assert before != source.stamp()
    assert "int" == json.loads(source.by_id(10).text)


def test_the_newest_schema_is_that_of_the_highest_version_left(engine):
    """A subject's newest schema has the highest version that is not deleted. A deleted one is found by its id."""
    source = SchemasTopic(engine)
    assert 8 == source.newest("orders-value").number
    grow(engine, registered("orders-value", 2, 8, ORDER, deleted=True))
    assert 7 == source.newest("orders-value").number
    assert 8 == source.by_id(8).number
    deleted = b'{"keytype":"DELETE_SUBJECT","subject":"orders-value","magic":0}'
    grow(engine, line(b'{"subject":"orders-value","version":2}', deleted))
    assert source.newest("orders-value") is None
    assert 7 == source.by_id(7).number
    grow(engine, line(None, b'{"keytype":"SCHEMA","subject":"refunds-value","version":1,"magic":1}'))
    assert source.newest("refunds-value") is None
    assert source.newest("unknown-value") is None


def test_records_that_are_none_of_a_registry_are_passed(engine):
    """Malformed, deeply nested and huge records, which no registry writes, are skipped."""
    good = b'{"keytype":"SCHEMA","subject":"bad-value","version":1,"magic":1}'
    no_object = [b"", b"{", b"[]", b"\xff", b"[" * 100_000]
    no_id = [b'{"id":"x"}', b'{"id":-1}', b'{"id":true}', b'{"id":99999999999}']
    grow(engine, *(line(value, good) for value in no_object + no_id))
    no_key = [b"", b"[1]", b'{"keytype":"SCHEMA","subject":1,"version":1}', b"x" * 5000]
    grow(engine, *(line(b"{}", key) for key in no_key))
    grow(engine, line(b'{"id":11}', None), registered("after-value", 1, 12, "int"))
    source = SchemasTopic(engine)
    assert 12 == source.by_id(12).number
    assert source.newest("bad-value") is None


def test_an_engine_without_the_topic_has_no_schemas_until_it_has(tmp_path):
    """Without the topic there are no schemas. It may be created later, and be deleted and created again."""
    engine = engine_with(tmp_path / "data", b"", topic="orders")
    source = SchemasTopic(engine)
    assert source.stamp() is None
    assert source.by_id(7) is None
    appended(engine.create_topic("_schemas"), registered("a-value", 1, 7, "int"))
    assert 7 == source.by_id(7).number
    engine.delete_topic("_schemas")
    assert source.by_id(7) is None
    appended(engine.create_topic("_schemas"), registered("a-value", 1, 8, "int"))
    assert source.by_id(7) is None
    assert 8 == source.by_id(8).number
    engine.close()


def test_schemas_whose_records_were_deleted_are_unknown(engine):
    """If the records of a schema were deleted, the schema is unknown.

    The source keeps only the schema's offset in memory.
    """
    source = SchemasTopic(engine)
    assert 7 == source.by_id(7).number
    partition = engine.topic("_schemas").partitions()[0]
    partition.delete_records(3)
    assert source.by_id(7) is None
    assert 9 == source.by_id(9).number


def test_a_damaged_batch_hides_its_own_schemas_alone(tmp_path):
    """A damaged batch hides only the schemas in it; the schemas after it are found."""
    engine = engine_with(tmp_path / "data", registered("a-value", 1, 7, "int"))
    grow(engine, registered("b-value", 1, 8, "int"))
    grow(engine, registered("c-value", 1, 9, "int"))
    engine.close()
    flip_text(next(tmp_path.glob("data/_schemas-0/*.log")), b"b-value")
    engine = open_engine(tmp_path / "data", read_only=True)
    source = SchemasTopic(engine)
    assert [7, None, 9] == [found and found.number for found in map(source.by_id, (7, 8, 9))]
    engine.close()


def test_all_schemas_can_be_read_into_memory(engine):
    """All schemas can be read into memory, with versions and deletions. Bad schemas are left out."""
    grow(
        engine,
        registered("bad-value", 1, 11, "int", "XML"),
        registered("orders-value", 2, 8, ORDER, deleted=True),
    )
    source = SchemasTopic(engine)
    kept = source.kept()
    for schema_id in (7, 8, 9, UUID(GUID)):
        assert source.by_id(schema_id) == kept.by_id(schema_id)
    assert kept.by_id(11) is None
    assert 7 == kept.newest("orders-value").number == source.newest("orders-value").number
    assert kept.newest("none") is None
    assert 9 == kept.referenced(SchemaReference("any", "refunds-value", 1)).number
    assert kept.stamp() is None


def test_of_very_many_schemas_only_their_places_are_in_memory(tmp_path):
    """Only the offsets of schemas are in memory: 500 schemas of 20 KB take less than a tenth of their size."""
    fields = [{"name": f"a_field_with_a_long_name_{n}", "type": ["null", "string"]} for n in range(300)]
    large = {"type": "record", "name": "Large", "fields": fields}
    engine = engine_with(tmp_path / "data", b"")
    for first in range(0, 500, 50):
        grow(engine, *(registered(f"s{n}-value", 1, n, large) for n in range(first, first + 50)))
    source = SchemasTopic(engine)
    tracemalloc.start()
    try:
        assert 499 == source.by_id(499).number
        kept, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000
    engine.close()


def test_of_two_contexts_that_have_one_id_the_subject_says_which(engine):
    """If two contexts have the same id, the subject's context decides which schema is used.

    If the subject's context lacks the id, the schema of the default context is used. If the default context lacks the
    id as well, the only schema with the id is used.
    """
    grow(
        engine,
        registered(
            ":.staging:users-value", 1, 7, "int", references=[{"name": "a", "subject": "b", "version": 1}]
        ),
        registered(":.staging:users-value", 2, 20, "long"),
        registered(":.eu:users-value", 1, 21, "float"),
        registered(":.us:users-value", 1, 21, "double"),
        registered(":.us:stock-value", 1, 22, "bytes"),
        registered(":.eu:refunds-value", 1, 22, "boolean"),
        registered(":.:more-value", 1, 23, "int"),
    )
    source = SchemasTopic(engine)
    kept = source.kept()
    for number, subject, expected in (
        (7, "orders-value", "string"),
        (7, "", "string"),
        (7, "users-value", "int"),
        (7, "unknown-value", "string"),
        (20, "unknown-value", "long"),
        (21, "users-value", None),
        (22, "refunds-value", "boolean"),
        (22, "stock-value", "bytes"),
        (22, "unknown-value", None),
        (23, "", "int"),
    ):
        found = source.by_id(number, subject)
        assert expected == (found and json.loads(found.text)), (number, subject)
        assert found == kept.by_id(number, subject)
    needed = source.by_id(7, "users-value").references
    assert (SchemaReference("a", ":.staging:b", 1),) == needed
