"""Metrics over HTTP: the answers, and how the server handles slow, many or hostile scrapers."""

from __future__ import annotations

import gzip
import socket
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException

import pytest

from testing.ports import reserve_ports
from tests.doubles.memory_engine import MemoryEngine
from tests.doubles.waiting import wait_until
from topicfs.fusefs.metrics import server as server_module
from topicfs.fusefs.metrics.collector import MetricsCollector
from topicfs.fusefs.metrics.server import MAX_CONCURRENT_SCRAPES, MetricsServer
from topicfs.listener.address import Endpoint
from topicfs.storage.errors import StorageError

ANY = Endpoint("127.0.0.1", 0)


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    found = MetricsServer(ANY)
    found.serve(MetricsCollector(MemoryEngine()))
    yield found
    found.close()


def asked(server: MetricsServer, path: str = "/metrics", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = HTTPConnection(*server.address, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.headers)
    finally:
        connection.close()


def test_a_scrape_is_answered_in_the_text_format(server: MetricsServer):
    """A scrape is answered in the text format of Prometheus, compressed if the client accepts gzip."""
    status, body, headers = asked(server)
    assert (200, True) == (status, b"\ntopicfs_topics 0.0\n" in body)
    assert headers["Content-Type"].startswith("text/plain; version=")
    assert body == gzip.decompress(asked(server, **{"Accept-Encoding": "gzip"})[1])


def test_the_headers_of_an_answer_come_in_one_piece(server: MetricsServer):
    """All headers are sent in one piece: a scraper that first gets a part without a length sees no metrics."""
    with socket.create_connection(server.address) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        head = client.recv(1 << 20).partition(b"\r\n\r\n")
        assert b"\r\nContent-Length: " in head[0]
        assert b"\r\n\r\n" == head[1]
        while client.recv(1 << 20):
            pass


def test_some_metrics_may_be_asked_for_by_name(server: MetricsServer):
    """`name[]` limits a scrape to the metrics with the given names, as in other exporters."""
    body = asked(server, "/metrics?name[]=topicfs_topics&name[]=no_such")[1]
    assert [b"topicfs_topics 0.0"] == [line for line in body.splitlines() if not line.startswith(b"#")]


def test_several_scrapes_at_once_are_each_whole(server: MetricsServer):
    """MAX_CONCURRENT_SCRAPES simultaneous scrapes are all answered completely."""
    with ThreadPoolExecutor(MAX_CONCURRENT_SCRAPES) as threads:
        answers = list(threads.map(lambda _: asked(server)[:2], range(MAX_CONCURRENT_SCRAPES)))
    assert [200] * MAX_CONCURRENT_SCRAPES == [status for status, _ in answers]
    assert 1 == len({body for _, body in answers})


def test_scrapers_that_say_nothing_hold_up_no_more_than_their_places(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
):
    """While MAX_CONCURRENT_SCRAPES silent clients are connected, another scraper gets 503.

    A client that sends nothing for CLIENT_TIMEOUT_SECONDS is disconnected.
    """
    idle = [socket.create_connection(server.address) for _ in range(MAX_CONCURRENT_SCRAPES)]
    wait_until(lambda: asked_status(server) == 503, "silent scrapers take all places")
    monkeypatch.setattr(server_module, "CLIENT_TIMEOUT_SECONDS", 0.0)
    wait_until(lambda: asked_status(server) == 200, "a silent scraper is closed")
    for one in idle:
        one.close()


def asked_status(server: MetricsServer) -> int:
    try:
        return asked(server)[0]
    except (OSError, HTTPException):
        return 503  # The server closed the connection before the whole request was sent.


@pytest.mark.parametrize(
    "request_line",
    [
        b"\x00\xff\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nAccept: text/plain;version=x\r\n\r\n",
        b"",
    ],
)
def test_after_any_request_the_next_scrape_is_answered(server: MetricsServer, request_line: bytes, capfd):
    """After any invalid request the next scrape is answered, and nothing is printed."""
    with socket.create_connection(server.address) as client:
        client.sendall(request_line)
        client.shutdown(socket.SHUT_WR)
        while client.recv(65_536):
            pass
    assert 200 == asked(server)[0]
    assert ("", "") == capfd.readouterr()


def test_a_port_in_use_is_one_line_with_the_remedy(server: MetricsServer):
    """For a port in use, an address of another machine or an unknown name, the error is one line with the reason."""
    cases = {
        server.address: "in use; another program uses this port: choose another one",
        Endpoint("192.0.2.1", 9464): "this machine has no such address",
        Endpoint("no such host", 9464): "not known",
    }
    for address, reason in cases.items():
        with pytest.raises(StorageError) as raised:
            MetricsServer(address)
        assert str(raised.value).startswith(f"--metrics {address}: ")
        assert reason in str(raised.value)
        assert "\n" not in str(raised.value)


def test_after_the_end_the_port_is_free():
    """After `close` the port is free immediately and no thread is left; a second `close` has no effect."""
    server = MetricsServer(Endpoint("127.0.0.1", reserve_ports(1)[0]))
    server.serve(MetricsCollector(MemoryEngine()))
    asked(server)
    server.close()
    server.close()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://{server.address}/metrics", timeout=5)
    again = MetricsServer(server.address)
    again.close()
    assert "metrics" not in {thread.name for thread in threading.enumerate()}
