"""Payloads decoded by their schemas: names, lines, sizes, and what an open file shows when schemas come later."""

from __future__ import annotations

import errno
import json
import sys
from uuid import UUID

import pytest

from fusefs.errors import FileError
from tests.doubles.mount_client import MountClient
from tests.schemas.examples import ORDER, ORDER_PROTO, avro, framed, line, registered

PAYLOAD = framed(7, avro(ORDER, {"id": 1, "note": "eins"}))
REFUND = framed(8, b"\x02\x02\x0a\x02no")


@pytest.fixture
async def shop(orders: MountClient) -> MountClient:
    """Topics `orders`, with a record of each kind, and `_schemas`, with schema 7 of Avro and 8 of Protobuf."""
    await orders.mkdir("_schemas")
    await orders.append("_schemas/0/log.json", registered("orders-value", 1, 7, ORDER))
    await orders.append("_schemas/0/log.json", registered("refunds-value", 1, 8, ORDER_PROTO, "PROTOBUF"))
    records = [
        line(PAYLOAD),
        line(None, framed(7, avro(ORDER, {"id": 2})), {"key": b"v", "payload": b"w"}),
        line(REFUND, b"k"),
        line(framed(9, b'{"a":\n[1]}'), b'a "key"'),
        line(avro(ORDER, {"id": 3}), headers={"__value_schema_id": b"\x00\x00\x00\x00\x07"}),
        line(avro(ORDER, {"id": 4}), headers={"__value_schema_id": b"\x01" + UUID(int=7).bytes}),
        line(b"plain"),
        line(framed(7, b"\xff")),
    ]
    await orders.append("orders/0/log.json", b"".join(records))
    return orders


def fields(text: bytes, *names: str) -> list[list[object]]:
    return [[json.loads(one).get(name, "") for name in names] for one in text.splitlines()]


async def test_a_framed_payload_shows_as_its_value_with_the_id_of_its_schema(shop: MountClient):
    """A key as well; what has no frame as in `log.json`, and what cannot be decoded in base64, with its id."""
    shown = fields(await shop.cat("orders/0/log.avro.json"), "key", "payload", "payload_schema_id")
    assert [
        [None, {"id": 1, "note": "eins"}, 7],
        [{"id": 2, "note": None}, None, ""],
        ["k", "", 8],
        ['a "key"', "", 9],
        [None, {"id": 3, "note": None}, 7],
        [None, "", str(UUID(int=7))],
        [None, "plain", ""],
        [None, "", 7],
    ] == shown
    undecoded = fields(await shop.cat("orders/0/7.avro.json"), "payload_base64", "payload_schema_id")
    assert [["AAAAAAf/", 7]] == undecoded


async def test_the_other_fields_are_those_of_the_plain_line(shop: MountClient):
    """In the same order."""
    plain, decoded = await shop.cat("orders/0/1.json"), await shop.cat("orders/0/1.avro.json")
    start = plain.index(b',"key":') if b',"key":' in plain else plain.index(b',"key_base64":')
    assert plain[:start] == decoded[:start]
    assert b',"key":{"id":2,"note":null},"key_schema_id":7,"payload":null}\n' == decoded[start:]


async def test_each_language_has_its_suffix(shop: MountClient):
    """JSON is shown as it stands, on one line, whether its schema is known or not."""
    assert [[{"reason": "no"}, 8]] == fields(
        await shop.cat("orders/0/2.proto.json"), "payload", "payload_schema_id"
    )
    assert (await shop.cat("orders/0/3.jsonschema.json")).endswith(
        b'"payload":{"a": [1]},"payload_schema_id":9}\n'
    )


@pytest.mark.parametrize(
    "name",
    ["log", "0-7", "0-", "-8", "@0-", "@1970-01-01-@2100-01-01"],
)
async def test_every_name_of_several_records_has_the_lines_and_their_size(shop: MountClient, name: str):
    """By any size of read; and none of them is listed."""
    whole = await shop.cat("orders/0/log.avro.json")
    assert whole == await shop.cat(f"orders/0/{name}.avro.json")
    assert len(whole) == (await shop.stat(f"orders/0/{name}.avro.json")).size
    for chunk in (100, 4096):
        assert whole == await shop.cat(f"orders/0/{name}.avro.json", chunk=chunk)
    assert f"{name}.avro.json" not in shop.list("orders/0")


@pytest.mark.parametrize("path", ["orders/log.avro.json", "orders/@0-.avro.json"])
async def test_a_topic_as_a_whole_has_them(shop: MountClient, path: str):
    """Merged by time."""
    assert await shop.cat("orders/0/log.avro.json") == await shop.cat(path)


async def test_one_record_and_the_links_to_it(shop: MountClient):
    """`0`, `earliest`, `latest`, `@TIME`."""
    first = (await shop.cat("orders/0/log.avro.json")).splitlines(keepends=True)[0]
    assert first == await shop.cat("orders/0/0.avro.json")
    assert first == await shop.cat("orders/0/@0.avro.json")
    assert len(first) == (await shop.stat("orders/0/0.avro.json")).size
    assert "0.avro.json" == shop.filesystem.readlink(shop.lookup("orders/0/earliest.avro.json").node_id)


async def test_an_open_file_stays_as_it_is_when_its_schema_comes(shop: MountClient):
    """Size and content; opened again it shows what is known now, and so does stat."""
    await shop.append("orders/0/log.json", line(framed(20, b"\x06")))
    before = await shop.cat("orders/0/log.avro.json")
    record = await shop.cat("orders/0/8.avro.json")
    handle = await shop.open("orders/0/log.avro.json")
    assert before[:100] == await shop.filesystem.read(handle, 0, 100)
    await shop.append("_schemas/0/log.json", registered("later-value", 1, 20, "int"))
    assert before[100:] == await shop.read_on(handle, 100)
    assert before == await shop.read_on(handle, 0)
    await shop.close(handle)
    after = await shop.cat("orders/0/log.avro.json")
    assert record in before
    assert record not in after
    assert after.endswith(b'"payload":3,"payload_schema_id":20}\n')
    assert after.endswith(await shop.cat("orders/0/8.avro.json"))
    assert len(after) == (await shop.stat("orders/0/log.avro.json")).size
    assert after == await shop.cat("orders/0/0-8.avro.json") == await shop.cat("orders/log.avro.json")


async def test_a_log_goes_on_growing_in_place_while_schemas_are_known(shop: MountClient):
    """Nothing is measured afresh for schemas that nobody missed."""
    handle = await shop.open("orders/0/3-.avro.json")
    await shop.read_on(handle)
    size = (await shop.stat("orders/0/3-.avro.json")).size
    node = shop.lookup("orders/0/3-.avro.json")
    await shop.append("orders/0/log.json", line(PAYLOAD))
    await shop.close(handle)
    assert (await shop.stat("orders/0/3-.avro.json")).size > size
    assert node is shop.lookup("orders/0/3-.avro.json")


async def test_who_follows_is_shown_what_is_known_by_then(shop: MountClient):
    """An open file that was given an undecoded record decodes the next one once its schema is there."""
    await shop.append("orders/0/log.json", line(framed(20, b"\x06")))
    assert (await shop.cat("orders/0/log.avro.json")).endswith(b'"payload_schema_id":20}\n')
    handle = await shop.open("orders/0/follow.avro.json")
    await shop.append("orders/0/log.json", line(framed(20, b"\x06")))
    first = await shop.filesystem.read(handle, 0, 4096)
    assert first.endswith(b'"payload_base64":"AAAAABQG","payload_schema_id":20}\n')
    await shop.append("_schemas/0/log.json", registered("later-value", 1, 20, "int"))
    await shop.append("orders/0/log.json", line(framed(20, b"\x06")))
    second = await shop.filesystem.read(handle, len(first), 4096)
    assert second.endswith(b'"payload":3,"payload_schema_id":20}\n')
    await shop.close(handle)


async def test_a_member_of_a_group_reads_them(shop: MountClient):
    """`drain.avro.json`, once."""
    await shop.mkdir("@groups/billing")
    assert await shop.cat("orders/0/log.avro.json") == await shop.cat(
        "@groups/billing/orders/drain.avro.json"
    )
    assert b"" == await shop.cat("@groups/billing/orders/drain.avro.json")


async def test_nothing_is_written_through_them(shop: MountClient):
    """They are shown, and no more."""
    with pytest.raises(FileError) as caught:
        await shop.append("orders/0/log.avro.json", b'{"payload":{"id":1}}\n')
    assert errno.EPERM == caught.value.number


@pytest.mark.parametrize(("suffix", "library", "package"), [("avro", "fastavro", "fastavro"), ("proto", "grpc_tools", "grpcio-tools")])  # fmt: skip
@pytest.mark.parametrize("path", ["orders/0/log", "orders/0/0", "orders/0/follow", "orders/log"])
async def test_a_missing_library_is_an_error_that_says_which(
    shop: MountClient, monkeypatch, suffix: str, library: str, package: str, path: str
):
    """At the lookup; everything else works without it."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        FileError, match=rf"{package} is not installed: pip install 'topicfs\[schemas\]'"
    ) as caught:
        await shop.cat(f"{path}.{suffix}.json")
    assert errno.EOPNOTSUPP == caught.value.number
    assert await shop.cat("orders/0/log.json")


async def test_names_that_no_form_has_are_not_there(shop: MountClient):
    """A suffix alone, and languages that nobody speaks."""
    for name in ("log.avro", "0.proto", "log.thrift.json", ".avro.json", "0.avro.json.avro.json"):
        with pytest.raises(FileError) as caught:
            shop.lookup(f"orders/0/{name}")
        assert errno.ENOENT == caught.value.number
