"""Hostile clients can neither end the process, nor use much memory, nor keep other clients from being served."""

from __future__ import annotations

import resource
import socket
import struct
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.doubles.producing import batch
from tests.doubles.waiting import wait_until
from tests.listener.serving import RawClient, Served, fetching
from topicfs.listener.limits import ListenerLimits
from topicfs.listener.requests.table import REQUESTS
from topicfs.protocol.group_messages import FIND_COORDINATOR
from topicfs.protocol.messages import API_VERSIONS, FETCH, METADATA, PRODUCE
from topicfs.protocol.notation import Api
from topicfs.storage.config.broker import EngineConfig

SOFTWARE = {"clientSoftwareName": "test", "clientSoftwareVersion": "1"}


def serves(served: Served) -> bool:
    """Return whether the server still answers a new client."""
    client = served.client()
    try:
        return 0 == client.ask(API_VERSIONS, SOFTWARE)["errorCode"]
    except (EOFError, ConnectionError):
        return False
    finally:
        client.close()


def head(api: Api, version: int) -> bytes:
    return struct.pack(">hhih", api.key, version, 7, -1) + (b"\0" if api.is_flexible(version) else b"")


@pytest.mark.parametrize("size", [0, -1, -(2**31), 2**31 - 1, (100 << 20) + 1, 0x16030102, 0x47455420])
def test_sizes_that_no_frame_has(client: RawClient, served: Served, size: int) -> None:
    """A frame size ends the connection if it is 0, negative, above the limit, or the first bytes of TLS or HTTP."""
    client.socket.sendall(struct.pack(">i", size) + b"rest")
    assert client.is_closed()
    assert serves(served)


@pytest.mark.parametrize(
    "content",
    [
        b"\0", b"\0\3\0\0", head(METADATA, 99), struct.pack(">hhih", 999, 0, 1, -1), struct.pack(">hhih", 3, 0, 1, -5),
        struct.pack(">hhih", 3, 0, 1, 32767), struct.pack(">hhih", 3, 12, 1, -1) + b"\xff\xff\xff\xff\x0f",
        struct.pack(">hhih", 3, 12, 1, -1) + b"\x01\x00\xff\xff\xff\xff\x0f", struct.pack(">hhih", 3, 12, 1, -1),
        head(METADATA, 1) + b"\x7f\xff\xff\xff", head(METADATA, 12) + b"\xff\xff\xff\xff\x07",
        head(FETCH, 12) + b"\0" * 10, head(PRODUCE, 9) + b"\0\xff\xff\0\0\0\0\xff\xff\xff\xff\x0f",
    ],
)  # fmt: skip
def test_frames_that_are_no_requests(client: RawClient, served: Served, content: bytes) -> None:
    """A frame that is cut off, is of an unknown kind, or has false lengths or counts ends only its own connection."""
    client.frame(content)
    assert client.is_closed()
    assert serves(served)


def test_more_structures_than_a_request_may_have(served: Served) -> None:
    """A request with too many structures is refused: a structure has 3 bytes in the frame but hundreds in memory."""
    count = 1 << 20
    client = served.client()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    client.frame(head(METADATA, 9) + b"\x81\x80\x40" + b"\x01\x00" * count + b"\0\0\0")
    assert client.is_closed()
    assert 200_000 > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert serves(served)


def test_more_texts_than_a_request_may_have(client: RawClient, served: Served) -> None:
    """A request with too many texts is refused before they are read: a text has 1 byte in the frame, 8 in memory."""
    client.frame(head(FIND_COORDINATOR, 4) + b"\0\x82\x80\x20" + b"\x01" * ((8 << 16) + 1) + b"\0")
    assert client.is_closed()
    assert serves(served)


def test_any_bytes_are_answered_or_refused(client: RawClient, served: Served) -> None:
    """Randomly changed requests are answered or end their connection; other connections are not affected."""
    client.topic("t")
    client.produce("t", batch(b"a"))
    random = Random(57)
    sound = [
        head(api, version) + api.request.write(sample(api.request.fields, version), version)
        for api, _ in REQUESTS.values()
        for version in {api.request.versions[0], api.request.versions[-1]}
    ]
    for number in range(1500):
        data = bytearray(random.choice(sound))
        for _ in range(random.randint(1, 4)):
            at = random.randrange(min(10, len(data) - 1), len(data))
            lie = random.choice((b"", b"\xff" * 5, b"\x80\0\0\0", b"\x7f\xff\xff\xff", random.randbytes(3)))
            data[at : at + random.randint(0, 2)] = lie
        if number % 50 == 0:
            client.close()
            client = served.client()
        try:
            client.frame(bytes(data))
            client.receive_frame()
        except (EOFError, ConnectionError):
            client.close()
            client = served.client()
    assert serves(served)
    assert not any(line for line in served.engine.warnings if "unexpected" in line)


def sample(fields: Any, version: int) -> dict[str, Any]:
    """Return a request that has one item in each array and that the server answers without waiting."""
    return {one.name: item(one, one.kind, version) for one in fields if one.in_version(version)}


def item(field: Any, kind: Any, version: int) -> Any:
    if isinstance(kind, tuple):
        return sample(kind, version)
    if kind == "array":
        return [item(field, field.of, version)]
    if kind == "structure":
        return sample(field.of, version)
    values = {
        "bool": False,
        "string": "t",
        "bytes": b"",
        "records": bytes(batch(b"a")),
        "uuid": field.default_value(),
    }
    return values.get(
        kind, 0 if field.name in ("maxWaitMs", "minBytes", "partition", "index", "partitionIndex") else 1
    )


def test_a_request_that_does_not_come_whole(start: Any) -> None:
    """A client that stalls within a request is disconnected, and its memory is freed."""
    served = start(limits=ListenerLimits(stall_seconds=0.2, max_memory_bytes=1 << 20))
    clients = [served.client() for _ in range(3)]
    for client in clients:
        client.socket.sendall(struct.pack(">i", 900_000) + b"x" * 100)
    for client in clients:
        assert client.is_closed()
    assert serves(served)


def test_a_connection_without_requests(start: Any) -> None:
    """An idle connection is closed."""
    assert start(limits=ListenerLimits(idle_seconds=0.2)).client().is_closed()


def test_more_connections_than_there_may_be(start: Any) -> None:
    """Connections above the limit are closed immediately; existing ones stay open."""
    served = start(limits=ListenerLimits(max_connections=2))
    first, second = served.client(), served.client()
    for client in (first, second):
        assert 0 == client.ask(API_VERSIONS, SOFTWARE)["errorCode"]
    assert served.client().is_closed()
    first.close()
    wait_until(partial(serves, served), "a new connection is accepted")
    assert 0 == second.ask(API_VERSIONS, SOFTWARE)["errorCode"]


def test_more_connections_than_an_address_may_have(start: Any) -> None:
    """Connections above the limit of an address are closed immediately; other addresses are served."""
    served = start(max_connections_per_ip=1)
    first = served.client()
    assert 0 == first.ask(API_VERSIONS, SOFTWARE)["errorCode"]
    assert served.client().is_closed()
    port = served.listener.endpoint.port
    with socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0)) as other:
        request = head(API_VERSIONS, 0)
        other.sendall(struct.pack(">i", len(request)) + request)
        assert other.recv(1)
    first.close()
    wait_until(partial(serves, served), "the place of the first is free")


def test_limits_of_the_settings(start: Any, tmp_path: Path) -> None:
    """Kafka's settings limit requests, memory, connections and idle time."""
    served = start(tmp_path / "one", max_request_bytes=1000, max_connections=1, max_idle_ms=300)
    client = served.client()
    client.socket.sendall(struct.pack(">i", 1001))
    assert client.is_closed()
    wait_until(lambda: not served.listener._connections, "the connection has ended")
    idle = served.client()
    assert served.client().is_closed()
    assert idle.is_closed()
    large = start(tmp_path / "two", max_queued_bytes=-1, max_idle_ms=-1)
    assert serves(large)
    limits = ListenerLimits.of(EngineConfig(max_queued_bytes=7, max_idle_ms=2**63 - 1))
    assert (7, 1e8) == (limits.max_memory_bytes, limits.idle_seconds)


def test_a_waiting_fetch_delays_nobody(start: Any) -> None:
    """A fetch that waits for records holds neither a slot nor memory, and does not delay `close`."""
    served = start(limits=ListenerLimits(max_handled=1))
    clients: list[RawClient] = [served.client() for _ in range(8)]
    clients[0].topic("t")
    for client in clients:
        client.send(FETCH, fetching("t", maxWaitMs=60_000), 12)
    assert serves(served)
    served.listener.close()
    assert all(client.is_closed() for client in clients)


def test_versions_that_a_newer_client_asks_in(client: RawClient) -> None:
    """ApiVersions in an unknown version is answered in version 0 with an error and the supported versions."""
    client.frame(head(API_VERSIONS, 99) + b"whatever")
    answer = client.receive_frame()
    assert struct.pack(">i", 7) == answer[:4]
    found = API_VERSIONS.response.read(answer[4:], 0)
    assert 35 == found["errorCode"]
    assert {one.api.key for one in REQUESTS.values()} == {one["apiKey"] for one in found["apiKeys"]}
    assert 0 == client.ask(API_VERSIONS, SOFTWARE)["errorCode"]


def test_more_bytes_wanted_than_an_answer_may_have(start: Any) -> None:
    """If an answer is full although it has less than minBytes, it is sent immediately."""
    served = start(limits=ListenerLimits(max_wait_seconds=3600.0))
    client = served.client()
    client.topic("t")
    client.produce("t", batch(b"a"))
    found = client.fetch("t", maxWaitMs=3_600_000, minBytes=2**31 - 1, maxBytes=1)
    assert 0 == found["errorCode"]
    assert found["records"]


def test_a_request_that_comes_byte_by_byte(start: Any) -> None:
    """A client that sends a request byte by byte is disconnected before the request is complete."""
    served = start(limits=ListenerLimits(stall_seconds=0.3))
    client = served.client()
    client.socket.sendall(struct.pack(">i", 1 << 16))
    client.socket.settimeout(0.05)
    sent = 0
    with suppress(ConnectionError):
        while sent < 1 << 16:
            client.socket.sendall(b"\0")
            sent += 1
            with suppress(TimeoutError):
                if not client.socket.recv(1):  # Returns when the connection ends or the next byte is due.
                    break
    assert 1 << 16 > sent
    assert serves(served)
