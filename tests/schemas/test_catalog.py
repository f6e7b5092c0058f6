"""Tests of the catalog: the order of its sources, the references of schemas, and the schemas that it keeps."""

from __future__ import annotations

import pytest

from tests.schemas.examples import ORDER, ORDER_PROTO, of_avro, of_protobuf
from topicfs.schemas import catalog as module
from topicfs.schemas.catalog import SchemaCatalog
from topicfs.schemas.frame import FramedMessage
from topicfs.schemas.payload_reader import Decoded, PayloadReader
from topicfs.schemas.schema import Kind, PayloadSchema, SchemaError, SchemaReference, UnavailableSchemaError
from topicfs.storage.errors import StorageError

ORDER_1 = b"\x02\x00"


class Kept:
    """A source with the schemas that a test adds to it."""

    def __init__(self, *schemas: PayloadSchema) -> None:
        self.by_number = {schema.number: schema for schema in schemas}
        self.by_subject: dict[str, PayloadSchema] = {}
        self.asked = 0

    def stamp(self):
        return len(self.by_number)

    def by_id(self, schema_id, subject=""):
        self.asked += 1
        return self.by_number.get(schema_id)

    def referenced(self, reference):
        return self.by_subject.get(reference.subject)

    def newest(self, subject):
        return self.by_subject.get(subject)


def needing(name: str, *subjects: str) -> PayloadSchema:
    text = f'{{"type":"record","name":"{name}","fields":[]}}'
    return PayloadSchema(Kind.AVRO, text, tuple(SchemaReference(one, one, 1) for one in subjects), 1)


def test_the_first_source_that_has_a_schema_is_believed():
    """The first source that has a schema decides. A schema is compiled once."""
    first, second = Kept(of_avro("int", 7)), Kept(of_avro("string", 7), of_avro("string", 8))
    catalog = SchemaCatalog((first, second))
    assert b"1" == catalog.codec(Kind.AVRO, 7).decode(b"\x02", None)
    assert b'""' == catalog.codec(Kind.AVRO, 8).decode(b"\x00", None)
    assert catalog.codec(Kind.AVRO, 7) is catalog.codec(Kind.AVRO, 7)
    assert (2, 1) == (first.asked, second.asked)
    assert catalog.codec(Kind.AVRO, 9) is None


def test_an_id_means_another_schema_for_the_subject_of_another_context():
    """An id can mean a different schema for a subject in another context.

    If several subjects share a schema, the schema is compiled once.
    """

    class Contexts(Kept):
        def by_id(self, schema_id, subject=""):
            return self.by_subject.get(subject, super().by_id(schema_id, subject))

    source = Contexts(of_avro("int", 7))
    source.by_subject["users-value"] = of_avro("string", 7)
    catalog = SchemaCatalog((source,))
    reader = PayloadReader(Kind.AVRO, catalog)
    assert Decoded(b"1", 7) == reader.decode(FramedMessage(7, b"\x02"), "orders-value")
    assert Decoded(b'"a"', 7) == reader.decode(FramedMessage(7, b"\x02a"), "users-value")
    assert Decoded(b"1", 7) == reader.decode(FramedMessage(7, b"\x02"))
    assert catalog.codec(Kind.AVRO, 7, "orders-value") is catalog.codec(Kind.AVRO, 7, "refunds-value")


def test_what_an_id_means_never_changes():
    """A compiled schema stays, whatever its source returns later, because an open file must not change."""
    source = Kept(of_avro("int", 7), of_avro("nonsense", 8))
    catalog = SchemaCatalog((source,))
    catalog.codec(Kind.AVRO, 7)
    with pytest.raises(SchemaError, match="schema 8"):
        catalog.codec(Kind.AVRO, 8)
    source.by_number = {7: of_avro("string", 7), 8: of_avro("int", 8)}
    assert b"1" == catalog.codec(Kind.AVRO, 7).decode(b"\x02", None)
    with pytest.raises(SchemaError, match="schema 8"):
        catalog.codec(Kind.AVRO, 8)


def test_a_schema_of_another_language_is_refused():
    """A catalog refuses a schema in a language other than the requested one."""
    catalog = SchemaCatalog((Kept(of_protobuf(ORDER_PROTO, 8)),))
    with pytest.raises(SchemaError, match="PROTOBUF"):
        catalog.codec(Kind.AVRO, 8)
    assert b"{}" == catalog.codec(Kind.PROTOBUF, 8).decode(b"\x00", None)


def test_referenced_schemas_come_first():
    """Referenced schemas come before the schemas that need them, each once."""
    source = Kept()
    source.by_subject = {"b": needing("b", "c"), "c": needing("c")}
    assert ["c", "b"] == list(module.needed_by(needing("a", "b", "c"), source))


def test_schemas_that_need_themselves_or_too_much_are_refused():
    """Schemas are refused if their references have a cycle, a missing schema, or a chain of thousands."""
    source = Kept()
    source.by_subject = {"b": needing("b", "c"), "c": needing("c", "b")}
    with pytest.raises(SchemaError, match="needs itself"):
        module.needed_by(needing("a", "b"), source)
    with pytest.raises(SchemaError, match="does not exist"):
        module.needed_by(needing("a", "x"), source)
    source.by_subject = {str(n): needing(f"n{n}", str(n + 1)) for n in range(5000)}
    with pytest.raises(SchemaError, match="more than 100"):
        module.needed_by(needing("a", "0"), source)


def test_compiled_schemas_have_a_bound(monkeypatch):
    """Beyond the limit of compiled schemas a new schema is unknown, and earlier schemas are kept."""
    monkeypatch.setattr(module, "MAX_COMPILED", 2)
    catalog = SchemaCatalog((Kept(*(of_avro("int", number) for number in range(3))),))
    assert [True, True, False] == [catalog.codec(Kind.AVRO, number) is not None for number in range(3)]
    assert catalog.codec(Kind.AVRO, 0) is not None


def test_a_reader_keeps_a_schema_as_unknown():
    """If a schema is unknown to a reader, it stays unknown to this reader.

    When a source gets the schema, the reader becomes outdated. A reader for a stream uses the schema at once.
    """
    source = Kept()
    catalog = SchemaCatalog((source,))
    reading, stream = PayloadReader(Kind.AVRO, catalog), PayloadReader(Kind.AVRO, catalog, lasting=False)
    frame = FramedMessage(7, ORDER_1)
    assert Decoded(None, 7) == reading.decode(frame) == stream.decode(frame)
    assert not reading.outdated
    source.by_number[7] = of_avro(ORDER, 7)
    assert reading.outdated
    assert Decoded(None, 7) == reading.decode(frame)
    shown = b'{"id":1,"note":null}'
    assert Decoded(shown, 7) == stream.decode(frame) == PayloadReader(Kind.AVRO, catalog).decode(frame)


def test_ids_that_nobody_knows_are_asked_for_a_bounded_number_of_times():
    """A million unknown ids cause a limited number of lookups. A stream looks ids up again when sources change."""
    source = Kept()
    catalog = SchemaCatalog((source,))
    for lasting in (True, False):
        source.asked = 0
        reader = PayloadReader(Kind.AVRO, catalog, lasting=lasting)
        for number in range(5000):
            reader.decode(FramedMessage(number, b""))
        assert 1000 == source.asked
    source.by_number[7] = of_avro(ORDER, 7)
    assert Decoded(b'{"id":1,"note":null}', 7) == reader.decode(FramedMessage(7, ORDER_1))


def test_a_known_schema_stays_known():
    """A schema that a reader has used stays known to that reader, however many other ids are unknown."""
    reader = PayloadReader(Kind.AVRO, SchemaCatalog((Kept(of_avro(ORDER, 7), of_avro("int", 8)),)))
    shown = reader.decode(FramedMessage(7, ORDER_1))
    for number in range(100, 2000):
        reader.decode(FramedMessage(number, b""))
    assert Decoded(b'{"id":1,"note":null}', 7) == shown == reader.decode(FramedMessage(7, ORDER_1))
    assert Decoded(None, 8) == reader.decode(FramedMessage(8, b"\x02"))


def test_a_reader_without_unknown_schemas_is_not_outdated():
    """A reader that met no unknown schema does not become outdated when schemas are added."""
    source = Kept(of_avro(ORDER, 7))
    reading = PayloadReader(Kind.AVRO, SchemaCatalog((source,)))
    reading.decode(FramedMessage(7, ORDER_1))
    source.by_number[8] = of_avro("int", 8)
    assert not reading.outdated


def test_json_needs_no_schema():
    """JSON needs no schema. It is shown unchanged on one line, with all digits of its numbers."""
    reading = PayloadReader(Kind.JSON, SchemaCatalog(()))
    message = b' {"a": 1.10,\n"b":12345678901234567890123, "a":"\\n"}\n'
    assert Decoded(b'{"a": 1.10, "b":12345678901234567890123, "a":"\\n"}', 7) == reading.decode(
        FramedMessage(7, message)
    )
    for bad in (b"", b"{", b"NaN", b"\xff", b"[" * 100_000, b'"\n"', b"1 2"):
        assert Decoded(None, 7) == reading.decode(FramedMessage(7, bad))


class Failing(Kept):
    """A source that fails until a test ends the failure."""

    failure: Exception | None = OSError("no room")

    def by_id(self, schema_id, subject=""):
        if self.failure is not None:
            raise self.failure
        return super().by_id(schema_id, subject)

    newest = by_id


@pytest.mark.parametrize(
    "failure", [OSError("no room"), StorageError("offline"), UnavailableSchemaError("asleep")]
)
def test_a_source_that_fails_hides_no_other_and_is_asked_again(failure):
    """If a source fails, its schemas are unknown for now. The failure hides no other source and fails no read."""
    failing = Failing(of_avro("int", 7), of_avro("int", 8))
    failing.failure = failure
    catalog = SchemaCatalog((failing, Kept(of_avro("string", 7))))
    assert b'""' == catalog.codec(Kind.AVRO, 7).decode(b"\x00", None)
    assert catalog.codec(Kind.AVRO, 8) is None
    with pytest.raises(SchemaError, match=str(failure)):
        catalog.newest(Kind.AVRO, "orders-value")
    failing.failure = None
    assert b"1" == catalog.codec(Kind.AVRO, 8).decode(b"\x02", None)


def test_a_schema_that_lacks_what_it_needs_is_tried_again():
    """A schema with a missing reference is looked up again later, because the reference may appear."""
    source = Kept(PayloadSchema(Kind.AVRO, '"B"', (SchemaReference("B", "b", 1),), 7))
    catalog = SchemaCatalog((source,))
    assert catalog.codec(Kind.AVRO, 7) is None
    source.by_subject["b"] = PayloadSchema(Kind.AVRO, '{"type":"enum","name":"B","symbols":["X"]}')
    assert b'"X"' == catalog.codec(Kind.AVRO, 7).decode(b"\x00", None)


def test_only_kept_schemas_count(monkeypatch):
    """Only schemas that are kept count for the limit; a schema that is looked up repeatedly does not."""
    text = '"int"'
    monkeypatch.setattr(module, "MAX_COMPILED_BYTES", 2 * len(text))
    incomplete = PayloadSchema(Kind.AVRO, text, (SchemaReference("x", "x", 1),), 7)
    catalog = SchemaCatalog((Kept(incomplete, of_avro("int", 8)),))
    assert [None] * 5 == [catalog.codec(Kind.AVRO, 7) for _ in range(5)]
    assert catalog.codec(Kind.AVRO, 8) is not None


@pytest.mark.parametrize("subject", ["\ud800", "a/b"])
def test_names_that_nobody_can_have_make_a_bad_schema(subject):
    """A schema with an impossible file name or URL in a reference is bad: its payloads are refused, no read fails."""
    text = f'syntax = "proto3"; import "{subject}"; message M {{}}'
    names = (subject, f"{subject}/c") if "/" in subject else (subject,)
    schema = PayloadSchema(Kind.PROTOBUF, text, tuple(SchemaReference(one, one, 1) for one in names), 8)
    source = Kept(schema)
    source.by_subject = dict.fromkeys(names, of_protobuf('syntax = "proto3";'))
    reading = PayloadReader(Kind.PROTOBUF, SchemaCatalog((source,)))
    assert Decoded(None, 8) == reading.decode(FramedMessage(8, b"\x00"))


def test_without_room_for_protoc_a_schema_is_unknown_for_now(monkeypatch):
    """If the folder for temporary files is full or missing, a schema is unknown for now, and no read fails."""
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    catalog = SchemaCatalog((Kept(of_protobuf(ORDER_PROTO, 8)),))
    assert catalog.codec(Kind.PROTOBUF, 8) is None
    monkeypatch.undo()
    assert catalog.codec(Kind.PROTOBUF, 8) is not None


def test_after_its_end_a_catalog_queries_no_source():
    """After `end` no source is queried, so that a mount ends at once. Compiled schemas still decode payloads."""
    source = Kept(of_avro("int", 7), of_avro("int", 8))
    catalog = SchemaCatalog((source,))
    codec = catalog.codec(Kind.AVRO, 7)
    catalog.end()
    assert codec is catalog.codec(Kind.AVRO, 7)
    for number in (8, 9):
        with pytest.raises(StorageError, match="the mount ends"):
            PayloadReader(Kind.AVRO, catalog).decode(FramedMessage(number, ORDER_1))
    assert 1 == source.asked


def test_end_stops_a_catalog_between_two_schemas():
    """`end` stops a catalog even between two referenced schemas, because a registry may take seconds for each."""
    source = Kept(needing("a", "b", "c"))
    source.by_subject = {"b": needing("b"), "c": needing("c")}
    catalog, asked = SchemaCatalog((source,)), []

    def referenced(reference):
        asked.append(reference.subject)
        catalog.end()
        return source.by_subject[reference.subject]

    source.referenced = referenced
    with pytest.raises(StorageError, match="the mount ends"):
        catalog.codec(Kind.AVRO, 1)
    assert ["b"] == asked
