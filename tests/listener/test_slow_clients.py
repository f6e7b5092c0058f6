"""Clients that are slow with TLS or with their authentication delay nobody, and are disconnected."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.certificates import Certificates
from tests.doubles.waiting import wait_until
from tests.listener.serving import RawClient, Served
from tests.listener.test_authentication import authenticate, handshake, log_in
from tests.listener.test_hostile_frames import SOFTWARE
from topicfs.listener.limits import ListenerLimits
from topicfs.listener.security.files import SecurityFiles
from topicfs.protocol.messages import API_VERSIONS, SASL_AUTHENTICATE

SLOW = ListenerLimits(authentication_seconds=0.5, idle_seconds=3600.0, stall_seconds=3600.0)


def begin_tls(client: RawClient, context: ssl.SSLContext) -> bytes:
    """Return the first message of a TLS handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("sent", ["nothing", "half", "all"])
def test_a_slow_handshake(start: Callable[..., Served], certificates: Certificates, sent: str) -> None:
    """Clients that stop during the TLS handshake do not delay connected clients or new clients."""
    limits = ListenerLimits(authentication_seconds=3600.0)
    served = start(security=SecurityFiles(certificate=certificates.pair("listener")), limits=limits)
    context = ssl.create_default_context(cafile=certificates.authority)
    before = served.client(context)
    for _ in range(20):
        client = served.client()
        hello = begin_tls(client, context)
        client.socket.sendall({"nothing": b"", "half": hello[: len(hello) // 2], "all": hello}[sent])
    assert 0 == before.ask(API_VERSIONS, SOFTWARE)["errorCode"]
    assert 0 == served.client(context).ask(API_VERSIONS, SOFTWARE)["errorCode"]


def test_a_handshake_that_takes_too_long(start: Callable[..., Served], certificates: Certificates) -> None:
    """A client that sends its handshake byte by byte is disconnected before the handshake ends."""
    served = start(security=SecurityFiles(certificate=certificates.pair("listener")), limits=SLOW)
    client = served.client()
    hello = begin_tls(client, ssl.create_default_context())
    client.socket.settimeout(0.05)
    closed = False
    for byte in hello * 100:
        try:
            client.socket.sendall(bytes([byte]))
            closed = not client.socket.recv(1)  # Returns when the connection ends or the next byte is due.
        except TimeoutError:
            continue
        except ConnectionError:
            closed = True
        if closed:
            break
    assert closed
    wait_until(lambda: not served.listener._connections, "the connection has ended")


def test_a_slow_authentication(start: Callable[..., Served], users: Path) -> None:
    """A client must authenticate within a time limit, whatever it sends. An authenticated client may be idle longer."""
    served = start(security=SecurityFiles(users=users), limits=SLOW)
    known = served.client()
    log_in(known, "PLAIN")
    silent, begun, halfway = (served.client() for _ in range(3))
    handshake(begun, "SCRAM-SHA-256")
    authenticate(begun, b"n,,n=alice,r=abc")
    halfway.socket.sendall(b"\0\0")
    for client in (silent, begun, halfway):
        assert client.is_closed()
    assert 0 == known.topic("t")["errorCode"]


def test_guesses_take_no_turn(start: Callable[..., Served], users: Path) -> None:
    """While passwords are checked, requests of authenticated clients are answered."""
    served = start(security=SecurityFiles(users=users), limits=ListenerLimits(max_handled=1))
    known = served.client()
    log_in(known, "PLAIN")
    known_users = served.listener._security.users
    assert known_users is not None
    with known_users._checking:
        guesses = [served.client() for _ in range(5)]
        for client in guesses:
            handshake(client, "PLAIN")
            client.send(SASL_AUTHENTICATE, {"authBytes": b"\0alice\0guess"}, 2)
        assert 0 == known.topic("t")["errorCode"]
    for client in guesses:
        answer = SASL_AUTHENTICATE.response.read(client.receive(SASL_AUTHENTICATE, 2), 2)
        assert 58 == answer["errorCode"]
