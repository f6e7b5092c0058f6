"""Decoded payloads on a real mount, while a registry does not answer, and while schemas are registered."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.waiting import TIMEOUT_SECONDS
from tests.fusefs.mounted.conftest import Mount
from tests.schemas.examples import ORDER, avro, framed, line, registered

pytestmark = pytest.mark.fuse

RECORDS = 2000
SCHEMAS = 20


def fill(mount: Mount, topic: str) -> Path:
    """Create a topic whose records use twenty schemas in turn, and return the directory of its partition."""
    (mount.path / topic).mkdir()
    payloads = (framed(7 + n % SCHEMAS, avro(ORDER, {"id": n, "note": "x" * 50})) for n in range(RECORDS))
    with (mount.path / topic / "0/log.json").open("ab") as log:
        log.write(b"".join(map(line, payloads)))
    return mount.path / topic / "0"


@pytest.fixture
def registry() -> Iterator[socket.socket]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIMEOUT_SECONDS)
        yield server


def test_a_registry_that_hangs_delays_nobody_else(unmounted: Mount, registry: socket.socket):
    """While a registry hangs, only programs that need its schemas wait; other files can be read and written."""
    mount = unmounted.start(
        schemas={"registry": f"http://127.0.0.1:{registry.getsockname()[1]}"}, answer_seconds=600
    )
    slow = fill(mount, "slow")
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append((slow / "log.avro.json").read_bytes()))
    reader.start()
    asking, _ = registry.accept()
    with asking:
        for _ in range(20):
            assert (slow / "0").read_bytes().startswith(b"\0\0\0\0")
            with (slow / "log").open("ab") as log:
                log.write(b"more\n")
        assert not found
    reader.join()
    assert b'"payload_schema_id":7}\n' in found[0]
    assert b'"payload":{' not in found[0]


def test_readers_see_whole_lines_of_exact_size_while_schemas_come(mount: Mount):
    """While schemas are registered, an open file shows the same rendering from its first to its last byte."""
    orders = fill(mount, "orders")
    (mount.path / "_schemas").mkdir()
    failures: list[object] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            with (orders / "log.avro.json").open("rb") as log:
                text = log.read()
                log.seek(0)
                again = log.read()
            try:
                assert again == text
                assert [*range(RECORDS)] == [json.loads(one)["offset"] for one in text.splitlines()]
            except (AssertionError, ValueError) as error:
                failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(7, 7 + SCHEMAS):
        with (mount.path / "_schemas/0/log.json").open("ab") as log:
            log.write(registered(f"s{number}-value", 1, number, ORDER))
    ended.set()
    for reader in readers:
        reader.join()
    assert [] == failures
    text = (orders / "log.avro.json").read_bytes()
    assert RECORDS == text.count(b'"payload":{"id":')
    assert len(text) == (orders / "log.avro.json").stat().st_size
