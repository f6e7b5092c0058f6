"""Tests of Protobuf messages shown as JSON, and of malicious schemas and messages."""

from __future__ import annotations

import base64
import contextlib
import json
import random

import pytest
from google.protobuf import descriptor_pb2

from tests.schemas.examples import ORDER_PROTO, of_protobuf
from topicfs.schemas.codecs import protobuf as module
from topicfs.schemas.codecs.protobuf import ProtobufCodec, imports_of
from topicfs.schemas.schema import SchemaError

MESSAGE = b"\x08\x07\x12\x02hi\x1a\x02\x08\x05"
SHOWN = b'{"id":"7","note":"hi","lines":[{"count":5}]}'


@pytest.fixture(scope="module")
def codec() -> ProtobufCodec:
    return ProtobufCodec(of_protobuf(ORDER_PROTO), {})


def test_a_message_is_shown_by_protobufs_own_mapping(codec):
    """Messages follow Protobuf's JSON mapping: 64-bit numbers are strings, and fields with defaults are omitted."""
    assert SHOWN == codec.decode(b"\x00" + MESSAGE, None)
    assert b"{}" == codec.decode(b"\x00", None)


def test_the_path_says_which_type_of_the_file_it_is(codec):
    """A path selects a later or nested type of the file. The path is before the message, or in the header."""
    assert b'{"reason":"no"}' == codec.decode(b"\x02\x02\x0a\x02no", None)
    assert b'{"count":5}' == codec.decode(b"\x04\x00\x00\x08\x05", None)
    assert b'{"reason":"no"}' == codec.decode(b"\x0a\x02no", b"\x02\x02")
    assert SHOWN == codec.decode(MESSAGE, b"")


def test_imports_are_resolved():
    """Imports are found: files of the registry by their names, and the files of Protobuf itself."""
    text = 'syntax = "proto3"; import "a/line.proto"; import "google/protobuf/timestamp.proto";\n'
    text += "message M { Line line = 1; google.protobuf.Timestamp at = 2; }"
    needed = {"a/line.proto": of_protobuf('syntax = "proto3"; message Line { int32 count = 1; }')}
    codec = ProtobufCodec(of_protobuf(text), needed)
    assert b'{"line":{"count":5},"at":"1970-01-01T00:00:01Z"}' == codec.decode(
        b"\x00\x0a\x02\x08\x05\x12\x02\x08\x01", None
    )


def test_imports_of_registries_are_there_by_themselves():
    """The files that every registry provides can be imported without a reference, as in schemas of Kafka Connect."""
    text = 'syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto";\n'
    text += 'message M { confluent.type.Decimal d = 1 [(confluent.field_meta) = { doc: "x" }]; }'
    codec = ProtobufCodec(of_protobuf(text), {})
    assert b'{"d":{"scale":2}}' == codec.decode(b"\x00\x0a\x02\x18\x02", None)
    assert [] == imports_of(text)


def test_a_serialized_descriptor_is_a_schema_too():
    """A serialized descriptor in base64, which a registry returns for `format=serialized`, is accepted as a schema."""
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    field = file.message_type.add(name="M").field.add(name="at", number=1, label=1, type=11)
    field.type_name = ".google.protobuf.Timestamp"
    codec = ProtobufCodec(of_protobuf(base64.b64encode(file.SerializeToString()).decode()), {})
    assert b'{"at":"1970-01-01T00:00:01Z"}' == codec.decode(b"\x00\x0a\x02\x08\x01", None)


@pytest.mark.parametrize(
    ("text", "imports"),
    [
        (
            'import "a.proto";\nimport public "b/c.proto" ;\n  import weak "d.proto";',
            ["a.proto", "b/c.proto", "d.proto"],
        ),
        ('import "google/protobuf/any.proto";', []),
        ('// import "a.proto";\nmessage M {}', []),
    ],
)
def test_the_imports_of_a_text_are_found(text, imports):
    """The imports of a schema's text are found, except imports that come with Protobuf."""
    assert imports == imports_of(text)


@pytest.mark.parametrize(
    "message",
    [b"", b"\x02", b"\x02\x08", b"\x00\xff", b"\x00\x0a\x99", b"\x04\x00\x09", b"\x01", b"\x80" * 9],
)
def test_a_message_that_does_not_follow_its_schema_is_refused(codec, message):
    """Truncated messages and paths to missing types are refused."""
    with pytest.raises(SchemaError):
        codec.decode(message, None)


@pytest.mark.parametrize(
    "text",
    ["", "message", "AAAA", "!!!", 'syntax = "proto3"; message {', 'syntax = "proto3"; import "missing.proto";',
     'syntax = "proto3";' + "message A {" * 5000, 'syntax = "proto3"; message M { X x = 1; }',
     'syntax = "proto3"; message M { int32 ' + "x" * 600 + " = 1; }"],
)  # fmt: skip
def test_what_is_no_schema_is_refused(text, capfd):
    """The error for an invalid schema has protoc's message, and nothing is printed on standard error."""
    with pytest.raises(SchemaError):
        ProtobufCodec(of_protobuf(text), {}).decode(b"\x00", None)
    assert "" == capfd.readouterr().err


@pytest.mark.parametrize("path", ["/etc/passwd", "../up.proto", "a/../../b.proto", "", "x" * 300, "a\0b"])
def test_an_import_leads_nowhere_else(path, tmp_path):
    """An import cannot leave its folder, so names from a registry cannot overwrite other files."""
    with pytest.raises(SchemaError, match="is not a valid import path"):
        ProtobufCodec(of_protobuf('syntax = "proto3";'), {path: of_protobuf('syntax = "proto3";')})


def test_messages_within_messages_have_a_bound():
    """The depth of nested messages is limited, as in Protobuf's own readers."""
    text = 'syntax = "proto3"; message M { M m = 1; }'
    deep = b""
    for _ in range(150):
        size = len(deep)
        deep = b"\x0a" + (bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])) + deep
    with pytest.raises(SchemaError):
        ProtobufCodec(of_protobuf(text), {}).decode(b"\x00" + deep, None)


@pytest.mark.parametrize("seed", range(3))
def test_any_bytes_are_a_message_or_refused(codec, seed):
    """A message with random changed bytes is refused or shown as JSON. No other exception is raised."""
    chance = random.Random(seed)
    for _ in range(1000):
        message = bytearray(b"\x00" + MESSAGE)
        for _ in range(chance.randrange(1, 4)):
            message[chance.randrange(len(message))] = chance.randrange(256)
        with contextlib.suppress(SchemaError):
            json.loads(codec.decode(bytes(message), None))


@pytest.mark.parametrize(
    "text",
    ['syntax = "proto3"; enum E { %s = 0; } message M { repeated E e = 1; }',
     'syntax = "proto3"; message M { message N { enum E { %s = 0; } } repeated N.E e = 1; }',
     'syntax = "proto2"; message M { extensions 2 to 9; } extend M { optional int32 %s = 2; }',
     'syntax = "proto2"; message M { extensions 2 to 9; } message %s { extend M { optional int32 e = 2; } }'],
    ids=["value", "value within", "extension", "scope of an extension"],
)  # fmt: skip
def test_names_that_each_element_shows_have_a_bound(text):
    """Names that are shown for each element have a limited length.

    A single byte of a message can be shown as a full name, so a short message could become a very long text.
    """
    ProtobufCodec(of_protobuf(text % ("a" * 500)), {})
    with pytest.raises(SchemaError, match="more than 512 characters"):
        ProtobufCodec(of_protobuf(text % ("a" * 513)), {})


def test_long_names_of_values_count_as_often_as_they_are_shown():
    """A long name within the limit counts once for each value that is shown with the name."""
    text = 'syntax = "proto3"; enum E { %s = 0; } message M { repeated E e = 1; }'
    message = b"\x00\x0a\x80\x80\x20" + b"\x00" * 2**19
    assert 2**19 == len(json.loads(ProtobufCodec(of_protobuf(text % "A"), {}).decode(message, None))["e"])
    with pytest.raises(SchemaError, match="might take"):
        ProtobufCodec(of_protobuf(text % ("A" * 512)), {}).decode(message, None)


def test_a_descriptor_that_needs_very_many_files_is_refused_at_once(monkeypatch):
    """For a serialized descriptor, protoc runs only if an import comes with protoc.

    protoc does not run for any other name. A descriptor with thousands of other names is refused at once.
    """
    monkeypatch.setattr(module, "_by_protoc", lambda *_: pytest.fail("protoc was run"))
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", syntax="proto3")
    file.dependency.extend(f"{number}.proto" for number in range(10_000))
    with pytest.raises(SchemaError, match="not a Protobuf schema"):
        ProtobufCodec(of_protobuf(base64.b64encode(file.SerializeToString()).decode()), {})


def nested_option(levels: int) -> str:
    """Return a schema with an option nested so deeply that protoc crashes."""
    option = "message S { S s = 1; } extend google.protobuf.MessageOptions { S s = 5000; }"
    text = f'syntax = "proto3"; import "google/protobuf/descriptor.proto"; {option}'
    return text + "message M { option (s) = " + "{ s " * levels + "{}" + "}" * levels + "; }"


def test_a_schema_that_ends_protoc_ends_nothing_else():
    """A text of 100 kB in `_schemas` may crash protoc, but does not crash this process."""
    with pytest.raises(SchemaError, match="protoc was ended by signal"):
        ProtobufCodec(of_protobuf(nested_option(20_000)), {})


def test_protoc_has_a_bound_of_time(monkeypatch):
    """protoc has a time limit, because other schemas wait for it."""
    monkeypatch.setattr(module, "PROTOC_SECONDS", 0.0)
    with pytest.raises(SchemaError, match="does not end within"):
        ProtobufCodec(of_protobuf(ORDER_PROTO), {})
