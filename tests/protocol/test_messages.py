"""Tests that the schemas of requests and answers are Kafka's, and that any bytes are read safely."""

from __future__ import annotations

import json
import re
import zipfile
from random import Random
from uuid import UUID

import pytest

from topicfs.protocol.messages import APIS, DESCRIBE_TOPIC_PARTITIONS, FETCH, METADATA, PRODUCE
from topicfs.protocol.notation import parse_fields
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.wire import NEWEST


def kafkas(jar, name):
    """Return the definition of a message, which is JSON with comments."""
    text = jar.read(f"common/message/{name}.json").decode()
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def versions(text):
    """Return the first and the last version of `3+`, `2-5`, `0` or `none`."""
    first, _, last = text.partition("-")
    if text == "none":
        return NEWEST, NEWEST
    return int(first.rstrip("+")), NEWEST if text.endswith("+") else int(last or first)


def with_common_structures(message):
    """Return a message's fields, with the fields of its common structures inserted."""
    common = {one["name"]: one["fields"] for one in message.get("commonStructs", [])}

    def resolved(fields):
        return [
            one | {"fields": resolved(inner)}
            if (inner := one.get("fields") or common.get(one["type"].removeprefix("[]")))
            else one
            for one in fields
        ]

    return resolved(message["fields"])


def kafkas_fields(fields, version):
    """Return a tuple for each field of a version: its name, type, inner type or fields, nullability, and tag."""
    found = []
    for one in fields:
        first, last = versions(one["versions"])
        if first <= version <= last:
            kind = one["type"]
            inner = kafkas_fields(one["fields"], version) if "fields" in one else kind.removeprefix("[]")
            kind = "array" if kind.startswith("[]") else "structure" if "fields" in one else kind
            start, end = versions(one.get("nullableVersions", "none"))
            name = one["name"][0].lower() + one["name"][1:]
            found.append((name, kind, inner, start <= version <= end, one.get("tag")))
    return found


def our_fields(fields, version):
    found = []
    for one in fields:
        if one.in_version(version):
            inner = our_fields(one.of, version) if isinstance(one.of, tuple) else one.of or one.kind
            found.append((one.name, one.kind, inner, one.may_be_null(version), one.tag))
    return found


def without_tagged(fields):
    return [
        (name, kind, without_tagged(inner) if isinstance(inner, list) else inner, nullable)
        for name, kind, inner, nullable, tag in fields
        if tag is None
    ]


def tagged(fields):
    return {name: (tag, kind, inner) for name, kind, inner, _, tag in fields if tag is not None} | {
        key: value
        for _, _, inner, _, _ in fields
        if isinstance(inner, list)
        for key, value in tagged(inner).items()
    }


@pytest.mark.java
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_the_schemas_are_kafkas_own(java, api):
    """Every field of each version of each message equals Kafka's, except for tagged fields that we leave out."""
    (path,) = java.jars.glob("kafka-clients-*.jar")
    with zipfile.ZipFile(path) as jar:
        for kind, schema in (("Request", api.request), ("Response", api.response)):
            theirs = kafkas(jar, api.name + kind)
            assert api.key == theirs["apiKey"]
            first, last = versions(theirs["validVersions"])
            for version in schema.versions:
                assert first <= version <= last
                assert (version >= versions(theirs["flexibleVersions"])[0]) == api.is_flexible(version)
                expected, found = (
                    kafkas_fields(with_common_structures(theirs), version),
                    our_fields(schema.fields, version),
                )
                assert without_tagged(expected) == without_tagged(found)
                assert tagged(found).items() <= tagged(expected).items()


def test_a_notation_says_versions_nulls_and_tags():
    """The notation expresses versions, nullable fields and tags."""
    fields = parse_fields("a int32 3-5, b [int16]?7+, c [d string 2+, e uuid], f {g int8} @4")
    assert [
        ("a", "int32", 3, 5),
        ("b", "array", 0, NEWEST),
        ("c", "array", 0, NEWEST),
        ("f", "structure", 0, NEWEST),
    ] == [(one.name, one.kind, one.since, one.until) for one in fields]
    assert ("int16", True) == (fields[1].of, fields[1].may_be_null(7))
    assert [("d", 2), ("e", 0)] == [(one.name, one.since) for one in fields[2].of]
    assert (4, "g") == (fields[3].tag, fields[3].of[0].name)


def sample(fields, version):
    """Return an answer with a value in every field, tagged ones included, and two items in every array."""
    return {one.name: value_of(one, one.kind, version) for one in fields if one.in_version(version)}


def value_of(field, kind, version):
    if isinstance(kind, tuple):
        return sample(kind, version)
    values = {"bool": True, "string": "text", "bytes": b"bytes", "records": b"records", "uuid": UUID(int=56)}
    if kind == "array":
        return [value_of(field, field.of, version) for _ in range(2)]
    return sample(field.of, version) if kind == "structure" else values.get(kind, 7)


EVERY = [
    pytest.param(api.response, version, id=f"{api.name}-{version}")
    for api in APIS
    for version in {api.response.versions[0], api.response.versions[-1]}
]


@pytest.mark.parametrize(("schema", "version"), EVERY)
def test_an_answer_is_read_as_it_was_written(schema, version):
    """An answer that was written is read back unchanged in the oldest and the newest version."""
    answer = sample(schema.fields, version)
    assert answer == schema.read(schema.write(answer, version), version)


def test_records_are_a_view_of_the_answer():
    """Records are a view of the answer and not a copy, because they may be many megabytes."""
    data = FETCH.response.write(sample(FETCH.response.fields, 16), 16)
    records = FETCH.response.read(data, 16)["responses"][0]["partitions"][0]["records"]
    assert isinstance(records, memoryview)
    assert records.obj is data


def test_what_may_be_null_is_read_as_none():
    """Null fields are read as None: a topic's name in a request by id, and a fetch's aborted transactions."""
    answer = sample(METADATA.response.fields, 12)
    answer["topics"][0]["name"] = None
    assert answer == METADATA.response.read(METADATA.response.write(answer, 12), 12)
    with pytest.raises(ValueError, match="name may not be null in version 11"):
        METADATA.response.write(answer, 11)


def test_a_structure_that_may_be_null_says_so():
    """A nullable structure begins with a byte that says whether it is null, as Kafka writes it."""
    schema = DESCRIBE_TOPIC_PARTITIONS.request
    asked = {"topics": [], "responsePartitionLimit": 5, "cursor": None}
    assert b"\x01\x00\x00\x00\x05\xff\x00" == schema.write(asked, 0)
    assert asked == schema.read(schema.write(asked, 0), 0)
    asked["cursor"] = {"topicName": "t", "partitionIndex": 7}
    assert b"\x01\x00\x00\x00\x05\x01\x02t\x00\x00\x00\x07\x00\x00" == schema.write(asked, 0)
    assert asked == schema.read(schema.write(asked, 0), 0)


def test_the_fields_before_a_field_can_be_read_alone():
    """The fields before a given field, and its position, can be read alone, even if the rest is cut off."""
    broker = {"nodeId": 1, "host": "there", "port": 9092, "rack": None}
    before = {"throttleTimeMs": 5, "brokers": [broker], "clusterId": "id", "controllerId": 2}
    for version in METADATA.asked_versions:
        data = METADATA.response.write({**before, "topics": []}, version)
        found, start = METADATA.response.read_before("topics", data, version)
        assert before == found
        rest = METADATA.response.write({"topics": []}, version)
        assert data[start:] == rest[-len(data[start:]) :]
        for size in range(start):
            with pytest.raises(CorruptBatchError):
                METADATA.response.read_before("topics", data[:size], version)


@pytest.mark.parametrize(("schema", "version"), EVERY)
def test_any_bytes_are_read_or_refused(schema, version):
    """Bytes that are cut, changed or have false lengths are read or refused with one type of error, without hanging."""
    sound = schema.write(sample(schema.fields, version), version)
    for end in range(len(sound)):
        with pytest.raises(CorruptBatchError):
            schema.read(sound[:end], version)
    random, refused = Random(56), 0
    for _ in range(2_000):
        data = bytearray(sound)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(data) or 1)
            flipped = bytes([one ^ 1 << random.randrange(8) for one in data[at : at + 1]])
            lies = (
                b"",
                b"\xff" * 5,
                flipped,
                b"\x80\x80\x80\x80\x08",
                b"\x7f\xff\xff\xff",
                random.randbytes(3),
            )
            data[at : at + random.randint(0, 2)] = random.choice(lies)
        try:
            schema.read(bytes(data), version)
        except CorruptBatchError:
            refused += 1
    assert 100 < refused < 2_000


def test_record_batches_are_not_copied():
    """A request's record batches are a separate piece, not a copy; the joined pieces equal the request in one piece."""
    batches = bytearray(b"batches" * 1000)
    asked = {
        "acks": -1,
        "timeoutMs": 1,
        "topicData": [{"topicId": UUID(int=7), "partitionData": [{"index": 3, "records": batches}]}],
    }
    version = PRODUCE.request.versions[-1]
    pieces = PRODUCE.request.write_in_pieces(asked, version)
    assert any(piece is batches for piece in pieces)
    assert PRODUCE.request.write(asked, version) == b"".join(pieces)
    assert (
        batches
        == PRODUCE.request.read(b"".join(pieces), version)["topicData"][0]["partitionData"][0]["records"]
    )
