"""Tests of Avro messages shown as JSON, and of malicious schemas and messages."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import random
from decimal import Decimal

import pytest

from tests.schemas.examples import ORDER, avro, of_avro, record
from topicfs.schemas.codecs.avro import AvroCodec
from topicfs.schemas.schema import Kind, PayloadSchema, SchemaError


def decoded(schema: object, message: bytes) -> bytes:
    return AvroCodec(of_avro(schema), {}).decode(message, None)


def test_a_record_is_an_object_in_the_order_of_its_fields():
    """A record is shown as an object on one line, in UTF-8, with its fields in order. A union is shown as its value."""
    message = avro(ORDER, {"id": 1, "note": "größer\n"})
    assert '{"id":1,"note":"größer\\n"}'.encode() == decoded(ORDER, message)
    assert b'{"id":-1,"note":null}' == decoded(ORDER, b"\x01\x00")


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        ("bytes", b"\x00\xff", '"\\u0000ÿ"'),
        ({"type": "fixed", "name": "F", "size": 2}, b"a\x80", '"a\x80"'),
        ("double", float("nan"), '"NaN"'),
        ({"type": "array", "items": "float"}, [float("inf"), 1.5], '["Infinity",1.5]'),
        ({"type": "map", "values": "int"}, {"a": 1}, '{"a":1}'),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", '"B"'),
        (["null", "boolean"], True, "true"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, Decimal("-1.20"), '"-1.20"'),
        ({"type": "long", "logicalType": "timestamp-millis"}, dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "1767225600000"),
        ({"type": "int", "logicalType": "date"}, dt.date(1970, 1, 2), "1"),
    ],
)  # fmt: skip
def test_each_type_has_one_rendering(schema, value, shown):
    """Logical types are shown as their numbers and strings, and a decimal as its digits."""
    assert shown.encode() == decoded(schema, avro(schema, value))


def test_a_uuid_is_shown_as_it_is():
    """A string of the logical type uuid is shown unchanged, even if it is not a UUID."""
    schema = {"type": "string", "logicalType": "uuid"}
    assert b'"no uuid"' == decoded(schema, avro("string", "no uuid"))


def test_types_of_referenced_schemas_are_known():
    """The types of a referenced schema are known by their full names.

    The types in the references of the referenced schema are known as well.
    """
    line = record("shop.Line", count="int")
    lines = record("shop.Lines", all={"type": "array", "items": "shop.Line"})
    needed = {"shop.Line": of_avro(line), "shop.Lines": of_avro(lines)}
    codec = AvroCodec(of_avro(record(lines="shop.Lines")), needed)
    assert b'{"lines":{"all":[{"count":3}]}}' == codec.decode(b"\x02\x06\x00", None)


def test_a_union_of_referenced_types_is_a_schema():
    """A union of types of referenced schemas is a schema. Topics with several kinds of events use such unions.

    A type in the union may need another type in the union.
    """
    line, order = record("shop.Line", count="int"), record("shop.Order", line="shop.Line")
    codec = AvroCodec(of_avro(["shop.Line", "shop.Order"]), {"a": of_avro(line), "b": of_avro(order)})
    assert b'{"count":3}' == codec.decode(b"\x00\x06", None)
    assert b'{"line":{"count":3}}' == codec.decode(b"\x02\x06", None)
    assert b"\x02\x06" == codec.encode({"line": {"count": 3}})
    assert b"\x06" == AvroCodec(of_avro("shop.Line"), {"a": of_avro(line)}).encode({"count": 3})


@pytest.mark.parametrize(
    "message", [b"", b"\x02", b"\x02\x02", b"\x02\x02\x7fx", b"\x02\x00rest", b"\x02\x04", b"\xff" * 30]
)
def test_a_message_that_does_not_follow_its_schema_is_refused(message):
    """A message that is truncated, has extra bytes, or names a missing branch is refused."""
    with pytest.raises(SchemaError):
        decoded(ORDER, message)


@pytest.mark.parametrize(
    "text",
    ["", "{", "nonsense", '"nonsense"', "[" * 100_000, "1", "{}", '{"type":"record","name":5,"fields":[]}',
     '{"type":"record","name":"R","fields":{}}', '{"type":"fixed","name":"F","size":"x"}', '{"type":"enum","name":"E"}',
     '{"type":"array"}', '{"type":"record","name":"R","fields":[{"type":"int"}]}',
     '{"type":' * 500 + '"int"' + "}" * 500],
)  # fmt: skip
def test_what_is_no_schema_is_refused(text):
    """An invalid schema is a SchemaError, whatever the library raises."""
    with pytest.raises(SchemaError):
        AvroCodec(PayloadSchema(Kind.AVRO, text), {})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": record()},
        {"type": "array", "items": record(a="null", b=record("Empty"))},
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        record(r="R"),
    ],
)
def test_items_that_take_no_bytes_are_refused(schema):
    """Array items without bytes are refused, because a message of five bytes could have a billion items."""
    with pytest.raises(SchemaError, match="the size of a message does not bound"):
        AvroCodec(of_avro(schema), {})


def test_records_of_records_of_records_are_not_written_out():
    """Nested records are not expanded, because a schema of 2 KB could turn an empty message into 10^40 fields."""
    types = [record("R0", n="null")]
    types += [record(f"R{n}", **{f"f{i}": f"R{n - 1}" for i in range(10)}) for n in range(1, 41)]
    codec = AvroCodec(of_avro(types), {})
    with pytest.raises(SchemaError, match="bytes of memory"):
        codec.decode(b"\x50", None)


def test_a_list_of_a_million_links_ends_no_process():
    """A list of a million links does not crash the process, because C code never decodes it by recursion."""
    link = record("Link", next=["null", "Link"])
    assert b'{"next":{"next":null}}' == decoded(link, b"\x02\x00")
    with pytest.raises(SchemaError):
        decoded(link, b"\x02" * 1_000_000)


def test_a_tree_is_shown():
    """A type whose values are lists of the same type is shown."""
    tree = record("Tree", kids={"type": "array", "items": "Tree"})
    assert b'{"kids":[{"kids":[]},{"kids":[]}]}' == decoded(tree, b"\x04\x00\x00\x00")
    names = record("Tree", kids={"type": "map", "values": "Tree"})
    assert b'{"kids":{"a":{"kids":{}}}}' == decoded(names, b"\x02\x02a\x00\x00")


def test_a_decimal_has_a_bound():
    """A decimal of 1 MiB, which takes minutes to read, is refused; a short one shows all digits and trailing zeros."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 8}
    assert b'"0.00000000"' == decoded(decimal, b"\x00")
    assert b'"-0.00000001"' == decoded(decimal, b"\x02\xff")
    assert b'"1.50000000"' == decoded(decimal, avro(decimal, Decimal("1.5")))
    with pytest.raises(SchemaError, match="a decimal of 1048576 bytes"):
        decoded(decimal, b"\x80\x80\x80\x01" + b"\x7f" * 2**20)


def test_a_schema_has_bounds():
    """A schema has a limited number of types and of nesting levels."""
    with pytest.raises(SchemaError, match="more than"):
        AvroCodec(of_avro(record(**{f"f{n}": "int" for n in range(50_001)})), {})
    nested: object = "int"
    for _ in range(70):
        nested = {"type": "array", "items": nested}
    with pytest.raises(SchemaError, match="more than"):
        AvroCodec(of_avro(nested), {})


@pytest.mark.parametrize("seed", range(3))
def test_any_bytes_are_a_value_or_refused(seed):
    """A message with random changed bytes is refused or shown as JSON. No other exception is raised."""
    chance = random.Random(seed)
    schema = record(
        a="long", b=["null", "string"], c={"type": "array", "items": {"type": "map", "values": "double"}},
        d={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    )  # fmt: skip
    codec = AvroCodec(of_avro(schema), {})
    sound = avro(schema, {"a": 7, "b": "text", "c": [{"x": 1.5}, {}], "d": Decimal("1.25")})
    for _ in range(1000):
        message = bytearray(sound)
        for _ in range(chance.randrange(1, 4)):
            message[chance.randrange(len(message))] = chance.randrange(256)
        with contextlib.suppress(SchemaError):
            json.loads(codec.decode(bytes(message), None))


def test_a_symbol_counts_as_often_as_it_is_shown():
    """A symbol's length counts each time the symbol occurs; otherwise showing a message could take all memory."""
    symbols = {"type": "enum", "name": "E", "symbols": ["A" * 2**19]}
    codec = AvroCodec(of_avro({"type": "array", "items": symbols}), {})
    assert b'["' + b"A" * 2**19 + b'"]' == codec.decode(b"\x02\x00\x00", None)
    with pytest.raises(SchemaError, match="might take"):
        codec.decode(b"\x80\x20" + b"\x00" * 2048 + b"\x00", None)
