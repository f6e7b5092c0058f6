"""Tests of a schema registry over HTTP: a small server with the registry's endpoints, and servers that misbehave."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import UUID

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.doubles.waiting import wait_until
from tests.schemas.examples import ORDER, ORDER_PROTO
from topicfs.schemas.schema import Kind, PayloadSchema, SchemaError, SchemaReference
from topicfs.schemas.sources import registry
from topicfs.schemas.sources.registry import RegistrySource, RegistryUnavailableError
from topicfs.storage.errors import InvalidConfigError

ANSWERS = {
    "/schemas/ids/7": {"schema": json.dumps(ORDER)},
    "/schemas/ids/7?subject=orders-value": {"schema": json.dumps(ORDER)},
    "/schemas/ids/7?subject=%3A.staging%3Ausers%2F1-value": {"schema": '"int"'},
    "/schemas/ids/8": {"schema": ORDER_PROTO, "schemaType": "PROTOBUF", "references": []},
    f"/schemas/guids/{UUID(int=7)}": {"schema": json.dumps(ORDER), "guid": str(UUID(int=7))},
    "/subjects/a%2Fb-value/versions/2": {"subject": "a/b-value", "version": 2, "id": 9, "schema": '"int"'},
    "/subjects/a%2Fb-value/versions/latest": {
        "subject": "a/b-value",
        "version": 3,
        "id": 10,
        "schema": '"int"',
    },
}


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[tuple[str, list[str]]]:
    """Answer GET requests with `answer`; yield the URL, and the list of paths that were requested."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server,
        pytest.MonkeyPatch.context() as patience,
    ):
        # This process has to answer the request, which may take long on a busy machine.
        patience.setattr(registry, "REGISTRY_TIMEOUT_SECONDS", 60.0)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def say(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def as_registry(handler: BaseHTTPRequestHandler) -> None:
    found = ANSWERS.get(handler.path)
    if found is None:
        say(handler, 404, b'{"error_code":40403,"message":"Schema not found"}')
    else:
        say(handler, 200, json.dumps(found).encode())


def test_schemas_are_asked_for_by_id_guid_and_version():
    """Schemas are requested by id, GUID and version. A missing schema is requested only once in a while."""
    clock = ManualClock()
    with serving(as_registry) as (url, asked):
        source = RegistrySource(url + "/", clock=clock)
        assert PayloadSchema(Kind.AVRO, json.dumps(ORDER), (), 7) == source.by_id(7)
        assert PayloadSchema(Kind.PROTOBUF, ORDER_PROTO, (), 8) == source.by_id(8)
        assert json.dumps(ORDER) == source.by_id(UUID(int=7)).text
        assert 9 == source.referenced(SchemaReference("x", "a/b-value", 2)).number
        assert '"int"' == source.by_id(7, ":.staging:users/1-value").text
        assert 10 == source.newest("a/b-value").number
        assert source.newest("none") is None
        asked.clear()
        assert [None, None] == [source.by_id(99), source.by_id(99)]
        assert ["/schemas/ids/99"] == asked
        before = source.stamp()
        clock.now += registry.REST_SECONDS
        assert before != source.stamp()
        assert source.by_id(99) is None
        assert 2 == len(asked)


def test_requests_have_authentication():
    """Requests have basic authentication. Redirects are not followed, so that no other server gets the password."""
    seen = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers["Authorization"])
        say(handler, 302, b"", Location="http://127.0.0.1:9/elsewhere")

    with serving(answer) as (url, _asked):
        assert RegistrySource(url, "user:secret").by_id(7) is None
    assert ["Basic dXNlcjpzZWNyZXQ="] == seen


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"garbage"), (200, b"[]"), (200, b"[" * 100_000), (200, b"\xff"), (500, b"{}"), (401, b"{}"), (200, b" " * (5 << 20))],
    ids=["no json", "no object", "nested", "no text", "error", "refused", "huge"],
)  # fmt: skip
def test_a_registry_that_answers_garbage_is_left_alone_for_a_while(status, body):
    """If a registry returns garbage, the registry is not queried for a while.

    During this time its schemas are unknown, and a writer gets an error with the reason.
    """
    clock = ManualClock()
    with serving(lambda handler: say(handler, status, body)) as (url, asked):
        source = RegistrySource(url, clock=clock)
        assert source.by_id(7) is None
        assert source.by_id(8) is None
        with pytest.raises(RegistryUnavailableError, match="failed recently"):
            source.newest("orders-value")
        assert 1 == len(asked)
        clock.now += registry.REST_SECONDS + 1
        with pytest.raises(RegistryUnavailableError, match="latest"):
            source.newest("orders-value")
        assert 2 == len(asked)


@pytest.mark.parametrize("body", [b"{}", b'{"schema":1}', b'{"schema":"x","schemaType":"XML"}', b'{"schema":"x","references":1}', b'{"schema":"x","references":[1]}'])  # fmt: skip
def test_an_answer_that_is_no_schema_is_a_bad_schema(body):
    """If the registry answers without a valid schema, the requested schema is bad; other schemas are still requested."""
    with serving(lambda handler: say(handler, 200, body)) as (url, _asked), pytest.raises(SchemaError):
        RegistrySource(url).by_id(7)


@pytest.fixture
def hurried(monkeypatch):
    """Shorten the time limit for a whole answer, but not the time limit for a single read."""
    in_time = RegistrySource._in_time
    monkeypatch.setattr(RegistrySource, "_in_time", lambda source, call, _: in_time(source, call, 0.2))


def drip(ended: threading.Event, handler: BaseHTTPRequestHandler) -> None:
    """Send a byte now and then until `ended`."""
    while not ended.wait(0.02):
        try:
            handler.wfile.write(b"X")
        except OSError:
            return


NOT_OF_HTTP = ["", "localhost:8081", "ftp://host", "file:///etc/passwd"]
NO_PLACE = ["http://", "http://host?a=b", "http://[bad", "http://host:port"]


@pytest.mark.parametrize("url", NOT_OF_HTTP + NO_PLACE)
def test_what_is_no_url_is_refused(url):
    """Only HTTP and HTTPS URLs are accepted."""
    with pytest.raises(InvalidConfigError, match="not the URL of a schema registry"):
        RegistrySource(url)


def test_a_password_does_not_stand_in_the_url():
    """A password in the URL is refused, because every user of the machine could see it."""
    with pytest.raises(InvalidConfigError, match="visible in process lists"):
        RegistrySource("http://user:secret@host:8081")


@pytest.mark.usefixtures("hurried")
def test_a_registry_that_hangs_is_waited_for_a_bounded_time():
    """The wait for an answer is limited, even if the registry sends a byte now and then.

    An answer that never ends occupies one thread, however often the registry is queried again.
    """
    clock, ended, before = ManualClock(), threading.Event(), set(threading.enumerate())

    with serving(partial(drip, ended)) as (url, asked):
        source = RegistrySource(url, clock=clock)
        for number in range(3):
            assert source.by_id(number) is None
            clock.now += registry.REST_SECONDS + 1
        wait_until(lambda: asked, "it is asked")
        assert 1 == len(asked)
        begun = set(threading.enumerate()) - before
        assert 1 == sum(thread.name == "schema registry" for thread in begun)
        ended.set()
