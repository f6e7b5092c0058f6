"""Payloads decoded with schemas: names, lines, sizes, and open files whose schema is registered after open(2)."""

from __future__ import annotations

import errno
import json
import re
import sys
from uuid import UUID

import pytest

from tests.doubles.mount_client import MountClient
from tests.schemas.examples import ORDER, ORDER_PROTO, avro, framed, line, registered
from topicfs.fusefs.errors import FileError

PAYLOAD = framed(7, avro(ORDER, {"id": 1, "note": "eins"}))
WITH_KIND = {
    **ORDER,
    "fields": [
        ORDER["fields"][0],
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "default": "A"},
    ],
}
REFUND = framed(8, b"\x02\x02\x0a\x02no")


@pytest.fixture
async def shop(orders: MountClient) -> MountClient:
    """A mount with the topics `_schemas` (Avro schema 7, Protobuf schema 8) and `orders` (records of all kinds)."""
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
    """Framed keys and payloads are shown as value and schema ID, or as base64 if they cannot be decoded.

    Other keys and payloads are shown as in `log.json`.
    """
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


async def test_an_id_in_another_context_of_the_registry_hides_no_schema(shop: MountClient):
    """A record is decoded with the schema of its subject, even if another context of the registry uses its ID."""
    await shop.append("_schemas/0/log.json", registered(":.staging:users-value", 1, 7, "string"))
    await shop.append("_schemas/0/log.json", registered(":.eu:users-key", 1, 7, "int"))
    await shop.mkdir("users")
    await shop.append("users/0/log.json", line(framed(7, b"\x04ab"), framed(7, b"\x02")))
    first = await shop.cat("orders/0/0-0.avro.json")
    assert [[{"id": 1, "note": "eins"}, 7]] == fields(first, "payload", "payload_schema_id")
    assert [[1, "ab"]] == fields(await shop.cat("users/0/log.avro.json"), "key", "payload")


async def test_the_other_fields_are_those_of_the_plain_line(shop: MountClient):
    """All fields except key and payload are the same as in the `.json` line, in the same order."""
    plain, decoded = await shop.cat("orders/0/1.json"), await shop.cat("orders/0/1.avro.json")
    start = plain.index(b',"key":') if b',"key":' in plain else plain.index(b',"key_base64":')
    assert plain[:start] == decoded[:start]
    assert b',"key":{"id":2,"note":null},"key_schema_id":7,"payload":null}\n' == decoded[start:]


async def test_each_language_has_its_suffix(shop: MountClient):
    """`.proto.json` decodes Protobuf; `.jsonschema.json` shows the JSON on one line, even if its schema is unknown."""
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
    """Each name that selects all records shows the same lines with the same size. None of these names is listed."""
    whole = await shop.cat("orders/0/log.avro.json")
    assert whole == await shop.cat(f"orders/0/{name}.avro.json")
    assert len(whole) == (await shop.stat(f"orders/0/{name}.avro.json")).size
    for chunk in (100, 4096):
        assert whole == await shop.cat(f"orders/0/{name}.avro.json", chunk=chunk)
    assert f"{name}.avro.json" not in shop.list("orders/0")


@pytest.mark.parametrize("path", ["orders/log.avro.json", "orders/@0-.avro.json"])
async def test_files_of_a_whole_topic_show_decoded_records(shop: MountClient, path: str):
    """The files of a whole topic also show decoded records, merged by time."""
    assert await shop.cat("orders/0/log.avro.json") == await shop.cat(path)


async def test_one_record_and_the_links_to_it(shop: MountClient):
    """A decoded record can be read by its offset, by `@TIME` and through the link `earliest`."""
    first = (await shop.cat("orders/0/log.avro.json")).splitlines(keepends=True)[0]
    assert first == await shop.cat("orders/0/0.avro.json")
    assert first == await shop.cat("orders/0/@0.avro.json")
    assert len(first) == (await shop.stat("orders/0/0.avro.json")).size
    assert "0.avro.json" == shop.filesystem.readlink(shop.lookup("orders/0/earliest.avro.json").node_id)


async def test_an_open_file_stays_as_it_is_when_its_schema_comes(shop: MountClient):
    """An open file does not change when a schema is registered; a later open(2) or stat(2) uses the schema."""
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


async def test_open_measures_a_decoded_file_for_a_short_time(shop: MountClient, monkeypatch):
    """open(2) measures a decoded file for at most `stat_seconds`, and a `.json` file for at most `open_seconds`."""
    waited: list[float] = []
    measure = type(shop.context.measuring).measure

    async def noted(queue, view, *, seconds, ended):
        waited.append(seconds)
        return await measure(queue, view, seconds=seconds, ended=ended)

    monkeypatch.setattr(type(shop.context.measuring), "measure", noted)
    monkeypatch.setattr(type(shop.lookup("orders/0/log")), "measured", False)
    settings = shop.context.settings
    for name, seconds in (("log.avro.json", settings.stat_seconds), ("log.json", settings.open_seconds)):
        await shop.close(await shop.open(f"orders/0/{name}"))
        assert seconds == waited[-1]


async def test_a_log_grows_in_place_while_schemas_are_known(shop: MountClient):
    """If all schemas were known, a file grows in place with an append. The name keeps its node."""
    handle = await shop.open("orders/0/3-.avro.json")
    await shop.read_on(handle)
    size = (await shop.stat("orders/0/3-.avro.json")).size
    node = shop.lookup("orders/0/3-.avro.json")
    await shop.append("orders/0/log.json", line(PAYLOAD))
    await shop.close(handle)
    assert (await shop.stat("orders/0/3-.avro.json")).size > size
    assert node is shop.lookup("orders/0/3-.avro.json")


async def test_follow_decodes_with_schemas_registered_before_the_read(shop: MountClient):
    """A reader of `follow` gets a decoded record if the schema is registered before the read."""
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


async def test_a_member_of_a_group_reads_decoded_records(shop: MountClient):
    """`drain.avro.json` of a group returns the decoded records once."""
    await shop.mkdir("@groups/billing")
    assert await shop.cat("orders/0/log.avro.json") == await shop.cat(
        "@groups/billing/orders/drain.avro.json"
    )
    assert b"" == await shop.cat("@groups/billing/orders/drain.avro.json")


async def test_a_line_is_encoded_by_the_newest_schema_of_its_topic(shop: MountClient):
    """Payloads are framed and encoded with the newest schema of their subject; keys without a schema stay text."""
    await shop.append("_schemas/0/log.json", registered("orders-value", 2, 30, WITH_KIND))
    await shop.append("orders/0/log.avro.json", b'{"payload":{"id":5,"kind":"B"},"key":"k","ts":5}\n')
    assert framed(30, b"\x0a\x02") == await shop.cat("orders/0/8")
    assert b'"ts":5,"key":"k","payload":{"id":5,"kind":"B"},"payload_schema_id":30}\n' in await shop.cat(
        "orders/0/8.avro.json"
    )
    await shop.append("_schemas/0/log.json", registered("orders-key", 1, 31, "int"))
    await shop.append(
        "orders/0/log.avro.json", b'{"payload":null,"key":3}\n{"payload":{"id":6},"key":null}\n'
    )
    assert b'"key":3,"key_schema_id":31,"payload":null}\n' in await shop.cat("orders/0/9.avro.json")
    assert framed(30, b"\x0c\x00") == await shop.cat("orders/0/10")


async def test_shown_lines_can_be_appended(shop: MountClient):
    """Shown lines can be appended: schema IDs are ignored, base64 bytes are kept, schema ID headers are dropped."""
    await shop.mkdir("copy")
    await shop.append("_schemas/0/log.json", registered("copy-value", 1, 40, ORDER))
    await shop.append("_schemas/0/log.json", registered("copy-key", 1, 7, ORDER))
    lines = (await shop.cat("orders/0/log.avro.json")).splitlines(keepends=True)
    kept = [one for one in lines if b'"plain"' not in one and b'"key":"' not in one]
    await shop.append("copy/0/log.avro.json", b"".join(kept))
    shown = fields(await shop.cat("copy/0/log.avro.json"), "key", "payload", "payload_schema_id")
    assert [[{"id": 2, "note": None}, None, ""], [None, {"id": 3, "note": None}, 40]] == shown[1:3]
    assert [None, {"id": 1, "note": "eins"}, 40] == shown[0]
    assert b"__value_schema_id" not in await shop.cat("copy/0/2.json")
    assert await shop.cat("orders/0/7") == await shop.cat("copy/0/4")


@pytest.mark.parametrize(
    ("line_", "reason"),
    [
        (b'{"payload":{"id":"x"}}', "line 2: payload: 'x' is not a valid long, at .id"),
        (b'{"payload":{"id":1,"more":1}}', "line 2: payload: record shop.Order has no field 'more'"),
        (b'{"payload":{"id":1},"key":[1]}', "line 2: key: subject orders-key has no schema"),
        (b'{"key":"k"}', "line 2: payload is missing"),
        (b'{"payload":{"id":1},"unknown":1}', "line 2: unknown field 'unknown'"),
        (b"no json", "line 2: not JSON"),
    ],
)
async def test_a_bad_line_refuses_the_write_and_says_why(shop: MountClient, line_: bytes, reason: str):
    """A bad line fails the whole write with EINVAL and a reason, and no line of the write is stored."""
    with pytest.raises(FileError, match=re.escape(reason)) as caught:
        await shop.append("orders/0/log.avro.json", b'{"payload":{"id":1}}\n' + line_ + b"\n")
    assert errno.EINVAL == caught.value.number
    assert any(reason in one for one in shop.context.reports.lines())
    with pytest.raises(FileError):
        shop.lookup("orders/0/8")


async def test_a_topic_without_a_schema_takes_no_lines(shop: MountClient):
    """A value can be appended only if its subject's newest schema is valid and in the suffix's language.

    `payload_base64` requires no schema.
    """
    await shop.mkdir("bare")
    with pytest.raises(FileError, match="subject bare-value has no schema"):
        await shop.append("bare/0/log.avro.json", b'{"payload":1}\n')
    await shop.append("_schemas/0/log.json", registered("bare-value", 1, 8, ORDER_PROTO, "PROTOBUF"))
    with pytest.raises(FileError, match="it is a schema of PROTOBUF"):
        await shop.append("bare/0/log.avro.json", b'{"payload":1}\n')
    await shop.append("bare/0/log.proto.json", b'{"payload":{"id":"7"}}\n')
    assert framed(8, b"\x00\x08\x07") == await shop.cat("bare/0/0")
    await shop.append("_schemas/0/log.json", registered("bare-value", 2, 41, {"type": "nonsense"}))
    with pytest.raises(FileError, match="schema 41"):
        await shop.append("bare/0/log.avro.json", b'{"payload":1}\n')
    await shop.append("bare/0/log.avro.json", b'{"payload_base64":"AAAA"}\n')
    assert b"\x00\x00\x00" == await shop.cat("bare/0/1")


async def test_json_schema_is_checked_when_it_is_written(shop: MountClient):
    """Appending through `.jsonschema.json` validates each payload against its schema."""
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    await shop.append("_schemas/0/log.json", registered("orders-value", 3, 50, json.dumps(schema), "JSON"))
    await shop.append("orders/0/log.jsonschema.json", b'{"payload":{"id":1}}\n')
    assert framed(50, b'{"id":1}') == await shop.cat("orders/0/8")
    with pytest.raises(FileError, match="is not of type"):
        await shop.append("orders/0/log.jsonschema.json", b'{"payload":{"id":"x"}}\n')


async def test_lines_of_a_topic_go_where_their_encoded_key_says(shop: MountClient):
    """Lines that are appended to a whole topic are partitioned by the encoded key, as by Kafka's producers."""
    await shop.mkdir("orders/3")
    await shop.append(
        "orders/log.avro.json", b"".join(b'{"payload":{"id":%d},"key":"k%d"}\n' % (n, n) for n in range(8))
    )
    await shop.append("orders/log.kv", b"".join(b"k%d\tv\n" % n for n in range(8)))
    for number in range(1, 4):
        keys = [one[0] for one in fields(await shop.cat(f"orders/{number}/log.json"), "key")]
        assert keys[: len(keys) // 2] == keys[len(keys) // 2 :]


async def test_a_line_without_its_end_is_encoded_at_the_close(shop: MountClient):
    """A line without a newline is encoded at close(2), which fails if the line is invalid."""
    await shop.append("orders/0/log.avro.json", b'{"payload":{"id":1}}')
    assert framed(7, b"\x02\x00") == await shop.cat("orders/0/8")
    with pytest.raises(FileError, match="is not a valid long"):
        await shop.append("orders/0/log.avro.json", b'{"payload":{"id":"x"}}')


@pytest.mark.parametrize(("suffix", "library", "package"), [("avro", "fastavro", "fastavro"), ("proto", "grpc_tools", "grpcio-tools")])  # fmt: skip
@pytest.mark.parametrize("path", ["orders/0/log", "orders/0/0", "orders/0/follow", "orders/log"])
async def test_a_missing_library_is_an_error_that_says_which(
    shop: MountClient, monkeypatch, suffix: str, library: str, package: str, path: str
):
    """Without the decoding library, a lookup gives EOPNOTSUPP, and the reason names the package; other files work."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        FileError,
        match=rf"{package} is not installed, and decoding needs it: pip install 'topicfs\[schemas\]'",
    ) as caught:
        await shop.cat(f"{path}.{suffix}.json")
    assert errno.EOPNOTSUPP == caught.value.number
    assert await shop.cat("orders/0/log.json")


async def test_unknown_suffixes_do_not_exist(shop: MountClient):
    """Unknown suffixes (`.avro` alone, `.thrift.json`, repeated suffixes) give ENOENT."""
    for name in ("log.avro", "0.proto", "log.thrift.json", ".avro.json", "0.avro.json.avro.json"):
        with pytest.raises(FileError) as caught:
            shop.lookup(f"orders/0/{name}")
        assert errno.ENOENT == caught.value.number
