"""Which addresses a listener accepts."""

from __future__ import annotations

import socket

import pytest

from topicfs.listener.address import Endpoint, parse_endpoint
from topicfs.listener.errors import ListenerError
from topicfs.listener.listener import Listener, ListenerOptions


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("localhost:0", "localhost", 0),
        ("[::1]:65535", "::1", 65535),
        ("PLAINTEXT://broker:9092", "broker", 9092),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    """An address is `HOST:PORT`, or has the form of a broker's advertised.listeners."""
    assert Endpoint(host, port) == parse_endpoint(text)


@pytest.mark.parametrize(
    "text", ["", "9092", ":9092", "host", "host:", "host:65536", "host:-1", "a:1,b:2", "::1:9"]
)
def test_what_is_no_address(text: str) -> None:
    """The error for a malformed address shows the expected form."""
    with pytest.raises(ListenerError, match="not an address"):
        parse_endpoint(text)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_that_others_reach_is_refused(host: str) -> None:
    """An address that other machines reach is refused without `any_address`."""
    with pytest.raises(ListenerError, match="--listen-any"):
        Listener(ListenerOptions(endpoint=Endpoint(host, 0)))


def test_any_address_binds_an_address_that_others_reach() -> None:
    """With `any_address` a listener binds an address that other machines reach."""
    listener = Listener(ListenerOptions(endpoint=Endpoint("0.0.0.0", 0), any_address=True))
    assert 0 < listener.endpoint.port
    listener.close()


def test_an_address_in_use() -> None:
    """If the address is in use, the error names the address."""
    first = Listener(ListenerOptions(endpoint=Endpoint("127.0.0.1", 0)))
    with pytest.raises(ListenerError, match=f"{first.endpoint}: cannot listen there"):
        Listener(ListenerOptions(endpoint=first.endpoint))
    first.close()


def test_a_name_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host name is resolved once, since a second lookup could return an address that was not checked."""
    found = socket.getaddrinfo("127.0.0.1", 0, type=socket.SOCK_STREAM)
    answers = [found]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers.pop())
    Listener(ListenerOptions(endpoint=Endpoint("name", 0))).close()
    assert [] == answers
