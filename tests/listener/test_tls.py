"""TLS on a listener: large answers, waiting requests, the end of the listener, and renewed certificates."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.certificates import Certificates
from tests.doubles.producing import batch
from tests.doubles.waiting import wait_until
from tests.listener.serving import Served, fetching
from tests.listener.test_answers_from_files import LARGE, content, fill, log_of, rest
from tests.listener.test_hostile_frames import SOFTWARE
from topicfs.listener.address import Endpoint
from topicfs.listener.broker import Broker
from topicfs.listener.connection import ClientConnection
from topicfs.listener.errors import ListenerError
from topicfs.listener.limits import ListenerLimits
from topicfs.listener.listener import Listener, ListenerOptions
from topicfs.listener.security.files import SecurityFiles
from topicfs.listener.security.users import entry
from topicfs.protocol.messages import API_VERSIONS, FETCH
from topicfs.storage.config.broker import EngineConfig


@pytest.fixture
def encrypted(start: Callable[..., Served], certificates: Certificates) -> Served:
    """A served directory that requires TLS."""
    return start(security=SecurityFiles(certificate=certificates.pair("listener")))


@pytest.fixture
def context(certificates: Certificates) -> ssl.SSLContext:
    """The context of a client that trusts the authority."""
    return ssl.create_default_context(cafile=certificates.authority)


def test_large_answers(encrypted: Served, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch of many megabytes returns the bytes of the segments, encrypted, without sendfile."""
    monkeypatch.setattr(socket.socket, "sendfile", None)
    log = log_of(encrypted)
    fill(log, 60, 100_000)
    client = encrypted.client(context)
    found = client.fetch("t", maxBytes=LARGE, partitionMaxBytes=LARGE)
    assert content(log) == bytes(found["records"])


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_versions_of_tls(encrypted: Served, context: ssl.SSLContext, version: str) -> None:
    """TLS 1.2 and 1.3 are accepted."""
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    assert 0 == encrypted.client(context).ask(API_VERSIONS, SOFTWARE)["errorCode"]


def test_old_versions_of_tls(encrypted: Served, context: ssl.SSLContext) -> None:
    """TLS 1.1 is refused."""
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(OSError, match="SSL|reset"):
        encrypted.client(context)


def test_a_waiting_fetch(encrypted: Served, context: ssl.SSLContext) -> None:
    """A waiting fetch is answered when records arrive. The listener notices when a client ends its TLS session."""
    log = log_of(encrypted)
    client = encrypted.client(context)
    client.send(FETCH, fetching("t", maxWaitMs=60_000), 12)
    log.append(batch(b"a"))
    [topic] = FETCH.response.read(client.receive(FETCH, 12), 12)["responses"]
    assert topic["partitions"][0]["records"]
    client.send(FETCH, fetching("t", 1, maxWaitMs=60_000), 12)
    [connection] = encrypted.listener._connections
    assert connection.is_connected()
    assert isinstance(client.socket, ssl.SSLSocket)
    goodbye(client.socket)
    wait_until(lambda: not connection.is_connected(), "the listener notices that the client has left")


def goodbye(connection: ssl.SSLSocket) -> None:
    """Send a TLS close_notify, and close the connection."""
    connection.setblocking(False)
    with pytest.raises(ssl.SSLWantReadError):
        connection.unwrap()
    connection.close()


def test_an_answer_while_the_listener_closes_is_encrypted(encrypted: Served, context: ssl.SSLContext) -> None:
    """An answer that is being sent when the listener closes arrives whole, and all of it is encrypted."""
    log = log_of(encrypted)
    fill(log, 80, 100_000)
    client = encrypted.client(context)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    client.send(FETCH, fetching("t", maxBytes=LARGE, partitionMaxBytes=LARGE), 12)
    begun = client.socket.recv(1 << 10)
    [connection] = encrypted.listener._connections
    closing = threading.Thread(target=encrypted.listener.close)
    closing.start()
    wait_until(lambda: connection._ended, "the listener closes")
    assert content(log)[:LARGE] == rest(client, begun)[:LARGE]
    closing.join()


def test_a_connection_that_ends_before_its_handshake(
    served: Served, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that connects while the listener closes causes no warning."""
    security = SecurityFiles(certificate=certificates.pair("listener")).read()
    with ExitStack() as stack:
        broker = Broker(served.engine, Endpoint("127.0.0.1", 9092), EngineConfig(), ListenerLimits())
        stack.callback(broker.close)
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(socket.create_connection(server.getsockname()))
        connection = ClientConnection(broker, server.accept()[0], "127.0.0.1", security)
        connection.end()
        connection.serve()
    assert [] == [record.getMessage() for record in caplog.records]


def test_renewed_files(
    start: Callable[..., Served], certificates: Certificates, users: Path, tmp_path: Path
) -> None:
    """After a reload, new connections get the new certificate and the new users.

    If one of the new files is unusable, the old certificate and users stay in use.
    """
    certificate = tmp_path / "certificate"
    certificate.touch(mode=0o600)
    certificate.write_bytes(certificates.pair("first").read_bytes())
    served = start(security=SecurityFiles(certificate=certificate, users=users))

    def name() -> str:
        connection = served.client(ssl.create_default_context(cafile=certificates.authority)).socket
        assert isinstance(connection, ssl.SSLSocket)
        certificate: Any = connection.getpeercert()
        return str(dict(one[0] for one in certificate["subject"])["commonName"])

    assert "first" == name()
    certificate.write_bytes(certificates.pair("second").read_bytes())
    users.write_text("broken")
    served.listener.reconfigure(EngineConfig())
    assert "first" == name()
    users.write_text(entry("bob", "b"))
    served.listener.reconfigure(EngineConfig())
    assert "second" == name()
    assert served.listener._security.users is not None
    assert served.listener._security.users.has_password("bob", b"b")
    assert not served.listener._security.users.has_password("alice", b"alice-secret")


def test_addresses_that_others_reach(certificates: Certificates, users: Path) -> None:
    """A listener that other machines reach needs TLS, and either users or an authority for client certificates."""
    pair = certificates.pair("listener")
    everywhere = Endpoint("0.0.0.0", 0)
    for files in (SecurityFiles(certificate=pair), SecurityFiles(users=users)):
        with pytest.raises(ListenerError, match="--listen-any"):
            Listener(ListenerOptions(endpoint=everywhere, security=files))
    for files in (
        SecurityFiles(certificate=pair, users=users),
        SecurityFiles(certificate=pair, client_authority=certificates.authority),
    ):
        Listener(ListenerOptions(endpoint=everywhere, security=files)).close()
