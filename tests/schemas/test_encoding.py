"""Tests that JSON values are encoded by schemas of three languages, and decoded to the same values.

A value that does not fit its schema is refused.
"""

from __future__ import annotations

import json

import pytest

from tests.schemas.examples import ORDER, ORDER_PROTO, of_avro, of_protobuf, record
from topicfs.schemas.codecs.avro import AvroCodec
from topicfs.schemas.codecs.json_schema import JsonSchemaCodec, decode_json
from topicfs.schemas.codecs.protobuf import ProtobufCodec
from topicfs.schemas.schema import Kind, PayloadSchema, SchemaError

ALL = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "a", "type": ["null", "int", "string", record("In", x="int")]},
        {"name": "b", "type": {"type": "array", "items": {"type": "map", "values": "double"}}},
        {"name": "c", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "e", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "f", "type": "bytes"},
        {"name": "g", "type": ["string", {"type": "enum", "name": "G", "symbols": ["X"]}], "default": "none"},
    ],
}  # fmt: skip
GOOD = {"a": 1, "b": [{"x": 1.5}, {}], "c": "B", "d": "1.25", "e": "ab", "f": "\x00ÿ", "g": "X"}


def json_schema(schema: object) -> JsonSchemaCodec:
    return JsonSchemaCodec(PayloadSchema(Kind.JSON, json.dumps(schema)), {})


@pytest.mark.parametrize(
    "changed",
    [{}, {"d": "0.00"}, {"d": "1234567.89"}, {"d": "-1234567.89"}, {"a": None}, {"a": "s"}, {"a": {"x": 7}}, {"b": []}, {"b": [{"x": "NaN"}, {"y": "-Infinity"}]}, {"d": "-0.01"}],
)  # fmt: skip
def test_what_is_shown_of_avro_is_written_back(changed):
    """An Avro value is encoded from the JSON form in which it is shown.

    This holds for each branch of a union, and for values that JSON lacks.
    """
    codec = AvroCodec(of_avro(ALL), {})
    value = GOOD | changed
    assert value == json.loads(codec.decode(codec.encode(value), None))


def test_golden_bytes_of_avro():
    """The encoder writes the expected bytes: zigzag varints, and the branch of a union before its value."""
    assert b"\x0e\x02\x04hi" == AvroCodec(of_avro(ORDER), {}).encode({"id": 7, "note": "hi"})
    assert b"\x0e\x00" == AvroCodec(of_avro(ORDER), {}).encode({"id": 7})


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"a": 2**31}, "at .a"),
        ({"a": True}, "at .a"),
        ({"a": {"x": "no"}}, "at .a.x"),
        ({"b": [{"x": "1"}]}, r"'1' is not a valid double, at .b\[0\].x"),
        ({"c": "C"}, "at .c"),
        ({"d": "x"}, "is not a decimal"),
        ({"d": "NaN"}, "is not a decimal"),
        ({"d": "1.234"}, "more than 2 digits after the point, at .d"),
        ({"d": "12345678.00"}, "more than 9 digits"),
        ({"d": "1e1000000000"}, "more than 9 digits"),
        ({"d": "1e-1000000000"}, "after the point"),
        ({"e": "abc"}, "2 bytes"),
        ({"f": "€"}, "bytes"),
        ({"h": 1}, "no field 'h'"),
        ({"c": None}, "at .c"),
        ({"f": "\ud800"}, "bytes"),
    ],
)
def test_a_value_that_does_not_fit_avro_is_refused_with_its_place(changed, reason):
    """A number out of range, an unknown symbol and an unknown field are refused with their path."""
    with pytest.raises(SchemaError, match=reason):
        AvroCodec(of_avro(ALL), {}).encode(GOOD | changed)


def test_a_missing_field_needs_a_default():
    """A field may be missing if it has a default, which is then written."""
    codec = AvroCodec(of_avro(ALL), {})
    value = {name: part for name, part in GOOD.items() if name != "g"}
    assert "none" == json.loads(codec.decode(codec.encode(value), None))["g"]
    del value["c"]
    with pytest.raises(SchemaError, match="'c' is missing"):
        codec.encode(value)


def test_unions_within_unions_end():
    """A value that fits none of very many branches is refused after a limited number of attempts."""
    names = [record("R0", n="int")]
    for depth in range(1, 25):
        branches = [f"R{depth - 1}", {"type": "map", "values": f"R{depth - 1}"}]
        names.append(record(f"R{depth}", n=branches))
    value: object = {"n": "x"}
    for _ in range(1, 25):
        value = {"n": value}
    with pytest.raises(SchemaError):
        AvroCodec(of_avro(names), {}).encode(value)


def test_what_is_shown_of_protobuf_is_written_back():
    """A value is encoded as the schema's first message type, with a path of one byte before the message."""
    codec = ProtobufCodec(of_protobuf(ORDER_PROTO), {})
    message = b"\x00\x08\x07\x12\x02hi\x1a\x02\x08\x05"
    assert message == codec.encode({"id": "7", "note": "hi", "lines": [{"count": 5}]})
    assert message == codec.encode(json.loads(codec.decode(message, None)))


@pytest.mark.parametrize(
    "value", [1, "x", [], {"id": "x"}, {"unknown": 1}, {"lines": {}}, {"id": 2**64}, {"note": 1}]
)
def test_a_value_that_does_not_fit_protobuf_is_refused(value):
    """Unknown fields and values of other types are refused."""
    with pytest.raises(SchemaError):
        ProtobufCodec(of_protobuf(ORDER_PROTO), {}).encode(value)


def test_json_is_written_if_its_schema_accepts_it():
    """A JSON value that its schema accepts is written in compact form."""
    codec = json_schema({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})
    assert b'{"id":1,"note":"\xc3\xa4"}' == codec.encode({"id": 1, "note": "ä"})
    for bad, reason in (
        ({"id": "1"}, "'1' is not of type 'integer', at \\$.id"),
        ({}, "required"),
        (1, "object"),
    ):
        with pytest.raises(SchemaError, match=reason):
            codec.encode(bad)


def test_referenced_json_schemas_are_those_of_the_registry():
    """A referenced JSON Schema is found in the registry by its name.

    No schema is fetched from a network address.
    """
    needed = {"id.json": PayloadSchema(Kind.JSON, '{"type":"integer"}')}
    schema = PayloadSchema(Kind.JSON, '{"properties":{"id":{"$ref":"id.json"}}}')
    codec = JsonSchemaCodec(schema, needed)
    assert b'{"id":1}' == codec.encode({"id": 1})
    with pytest.raises(SchemaError, match="integer"):
        codec.encode({"id": "x"})
    with pytest.raises(SchemaError):
        json_schema({"$ref": "http://127.0.0.1:9/schema.json"}).encode(1)


def doubling(levels: int) -> dict[str, object]:
    definitions = {
        f"d{n}": {"allOf": [{"$ref": f"#/definitions/d{n + 1}"}, {"$ref": f"#/definitions/d{n + 1}"}]}
        for n in range(levels)
    }
    return {"definitions": {**definitions, f"d{levels}": {}}, "$ref": "#/definitions/d0"}


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "#"}, doubling(60), {"pattern": "(a+)+$"}, {"patternProperties": {"(a+)+$": {}}}, {"type": 5}, [], 1],
    ids=["circle", "doubling", "pattern", "patterns", "bad type", "list", "number"],
)  # fmt: skip
def test_hostile_json_schemas_are_refused(schema, monkeypatch):
    """JSON Schemas with cycles, exponential references, or slow patterns are refused."""
    monkeypatch.setattr("topicfs.schemas.codecs.json_schema.MAX_CHECKS", 2000)
    with pytest.raises(SchemaError):
        json_schema(schema).encode("a" * 40 + "b")


def doubled_default(levels: int) -> dict[str, object]:
    """Return a record type of `levels` levels; each contains the next level twice and has a default."""
    found: dict[str, object] = {"type": "record", "name": f"R{levels}", "fields": [{"name": "x", "type": "int", "default": 0}]}  # fmt: skip
    for level in reversed(range(levels)):
        fields = [{"name": "a", "type": found, "default": {}}, {"name": "b", "type": f"R{level + 1}", "default": {}}]  # fmt: skip
        found = {"type": "record", "name": f"R{level}", "fields": fields}
    return found


SYMBOLS = {"type": "enum", "name": "E", "symbols": [f"A{n}" for n in range(50_000)]}
LONG_DEFAULT = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "string", "default": "A" * 2**19}]}  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (doubled_default(30), {}),
        ({"type": "array", "items": LONG_DEFAULT}, [{}] * 100),
        ({"type": "array", "items": SYMBOLS}, ["A49999"] * 100),
    ],
    ids=["doubling", "long", "symbols"],
)
def test_defaults_and_symbols_that_take_for_ever_are_refused(schema, value, monkeypatch):
    """A short line is refused if defaults and symbols would expand it to billions of parts, bytes or comparisons."""
    monkeypatch.setattr("topicfs.schemas.codecs.avro_values.MAX_STEPS", 10_000)
    with pytest.raises(SchemaError, match="too long"):
        AvroCodec(of_avro(schema), {}).encode(value)


def test_defaults_stand_where_a_field_is_missing():
    """A missing field gets its default, even in a nested record, and even bytes, which a schema has as a string."""
    inner = {"type": "record", "name": "In", "fields": [{"name": "b", "type": "bytes", "default": "\xff"}]}
    fields = [{"name": "in", "type": inner, "default": {}}, {"name": "u", "type": ["null", "int"], "default": None}]  # fmt: skip
    codec = AvroCodec(of_avro({"type": "record", "name": "R", "fields": fields}), {})
    assert b"\x02\xff\x00" == codec.encode({})


def test_items_that_must_be_unique_are_compared_by_their_values():
    """Unique items are compared by value in linear time: 1.0 equals 1, true differs from 1, field order is ignored."""
    codec = json_schema({"uniqueItems": True})
    for value in ([1, True, "1", [1], {"a": 1}], "aa", {"a": 1}, [{"a": number} for number in range(20_000)]):
        assert value == json.loads(codec.encode(value))
    for twice in ([1, 1.0], [{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], [[True], [True]], [None, None]):
        with pytest.raises(SchemaError, match="has an item twice"):
            codec.encode(twice)


def test_many_values_of_a_keyword_are_many_checks():
    """A keyword with many values counts as many checks, because each item is compared with each value."""
    codec = json_schema({"items": {"enum": list(range(100_000))}})
    assert b"[99999]" == codec.encode([99_999])
    with pytest.raises(SchemaError, match="more than 200000 checks"):
        codec.encode([99_999] * 1000)


def test_a_number_that_is_not_finite_is_refused():
    """1e999, which is JSON but not a finite number, is refused."""
    with pytest.raises(SchemaError, match="not JSON"):
        json_schema({"type": "number"}).encode(float("inf"))


def test_a_message_of_json_has_a_bound_of_memory():
    """The memory for a JSON message is limited, as in other languages, but a long text is accepted."""
    with pytest.raises(SchemaError, match="might take"):
        decode_json(b"[" + b"[]," * 3_000_000 + b"[]]")
    long = b'"' + b"a" * 20_000_000 + b'"'
    assert long == decode_json(long)
