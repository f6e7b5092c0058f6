"""Tests of `topicfs cat` and `topicfs append` with schemas, and of the options that say where to find schemas."""

from __future__ import annotations

import json

import pytest

from tests.schemas.examples import ORDER, ORDER_PROTO, avro, framed, line, registered
from tests.schemas.test_registry import as_registry, say, serving
from tests.topicfs.conftest import assert_refused
from topicfs.schemas.sources import registry

PAYLOAD = framed(7, avro(ORDER, {"id": 1, "note": "hi"}))
SHOWN = b'"key":null,"payload":{"id":1,"note":"hi"},"payload_schema_id":7}\n'
UNKNOWN = b'"key":null,"payload_base64":"AAAAAAcCAgRoaQ==","payload_schema_id":7}\n'


@pytest.fixture
def shop(topicfs):
    """A topic `orders` that has one payload, and no schemas."""
    topicfs("topics", "create", "orders")
    assert 0 == topicfs("append", "orders/0/log.json", stdin=line(PAYLOAD)).status
    return topicfs


def register(topicfs, *lines: bytes) -> None:
    topicfs("topics", "create", "_schemas")
    assert 0 == topicfs("append", "_schemas/0/log.json", stdin=b"".join(lines)).status


@pytest.mark.parametrize("name", ["log", "0", "-1", "latest", "@0-"])
def test_the_schemas_of_the_same_directory_decode_it(shop, name):
    """Payloads are decoded with the schemas in `_schemas` of the same data directory, and otherwise shown in base64."""
    assert shop("cat", f"orders/0/{name}.avro.json").output.endswith(UNKNOWN)
    register(shop, registered("orders-value", 1, 7, ORDER))
    assert shop("cat", f"orders/0/{name}.avro.json").output.endswith(SHOWN)


def test_schemas_may_be_files(shop, tmp_path):
    """Schemas may be files in --schema-dir."""
    (tmp_path / "7.avsc").write_text(json.dumps(ORDER))
    assert shop("cat", "--schema-dir", str(tmp_path), "orders/0/0.avro.json").output.endswith(SHOWN)


def test_a_registry_is_asked_with_its_password_from_a_file_or_a_variable(shop, tmp_path, monkeypatch):
    """The password of a registry is read from a file or a variable, never from the command line."""
    seen = []

    def answer(handler):
        seen.append(handler.headers["Authorization"])
        as_registry(handler)

    (tmp_path / "auth").write_text("user:secret\n")
    with serving(answer) as (url, _asked):
        asked = ("cat", "--schema-registry", url, "orders/0/0.avro.json")
        assert shop(*asked).output.endswith(SHOWN)
        assert shop(*asked, "--schema-registry-auth", str(tmp_path / "auth")).output.endswith(SHOWN)
        monkeypatch.setenv("TOPICFS_SCHEMA_REGISTRY_AUTH", "user:secret")
        assert shop(*asked).output.endswith(SHOWN)
    assert [None, "Basic dXNlcjpzZWNyZXQ=", "Basic dXNlcjpzZWNyZXQ="] == seen


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--schema-registry", "http://u:p@host"), b"process lists"),
        (("--schema-registry-auth", "auth"), b"needs a registry"),
        (("--schema-registry", "http://host", "--schema-registry-auth", "bad"), b"no line USER:PASSWORD"),
    ],
)
def test_invalid_options_of_a_registry_are_refused(shop, options, reason, tmp_path):
    """Invalid options of a registry are refused with one line, which does not contain the password."""
    (tmp_path / "auth").write_text("user:secret")
    (tmp_path / "bad").write_text("secret")
    ran = shop("cat", *options, "orders/0/0.avro.json")
    assert 0 != ran.status
    assert reason in ran.errors
    assert b"secret" not in ran.errors


def test_a_registry_that_answers_garbage_costs_no_line(shop):
    """If the answer of a registry is invalid, payloads are shown in base64, and no line is lost."""
    with serving(lambda handler: say(handler, 200, b"<html>")) as (url, _asked):
        ran = shop("cat", "--schema-registry", url, "orders/0/log.avro.json")
    assert 0 == ran.status
    assert ran.output.endswith(UNKNOWN)
    assert registry.REST_SECONDS


def test_lines_are_encoded_by_the_newest_schema(shop):
    """Lines are encoded with the newest schema. If one line does not fit the schema, no line is appended."""
    register(
        shop,
        registered("orders-value", 1, 7, ORDER),
        registered("refunds-value", 1, 8, ORDER_PROTO, "PROTOBUF"),
    )
    shop("topics", "create", "refunds")
    assert 0 == shop("append", "orders/0/log.avro.json", stdin=b'{"payload":{"id":1,"note":"hi"}}\n').status
    assert PAYLOAD == shop("cat", "orders/0/1").output
    assert 0 == shop("append", "refunds/log.proto.json", stdin=b'{"payload":{"id":"7"}}\n').status
    assert framed(8, b"\x00\x08\x07") == shop("cat", "refunds/0/0").output
    ran = shop("append", "orders/0/log.avro.json", stdin=b'{"payload":{"id":2}}\n{"payload":{"id":"x"}}\n')
    assert_refused(ran, "line 2: payload: 'x' is not a valid long, at .id")
    assert b"offsets 0 to 1 exist" in shop("cat", "orders/0/2").errors


def test_lines_are_encoded_by_a_registry(shop):
    """Lines are encoded with a schema of a registry. If the registry fails or has no schema, the lines are refused."""
    given = b'{"payload":{"id":1}}\n'
    with serving(as_registry) as (url, _asked):
        ran = shop("append", "--schema-registry", url, "orders/0/log.avro.json", stdin=given)
        assert b"subject orders-value has no schema" in ran.errors
    with serving(lambda handler: say(handler, 500, b"")) as (url, _asked):
        ran = shop("append", "--schema-registry", url, "orders/0/log.avro.json", stdin=given)
        assert b"status 500" in ran.errors
