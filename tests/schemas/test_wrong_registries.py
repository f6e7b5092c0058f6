"""Tests that a writer gets one sentence about a faulty registry: its URL, the fault, and the remedy."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.doubles.certificates import Certificates
from tests.doubles.servers import Serve, Start, nobody_listens, servers
from topicfs.schemas.sources.registry import RegistrySource, RegistryUnavailableError

PATH = "/subjects/orders-value/versions/latest"
ELSEWHERE = "; give the URL of the schema registry itself"


@pytest.fixture
def served() -> Iterator[Start]:
    with servers() as start:
        yield start


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def answering(head: bytes, body: bytes = b"{}") -> Serve:
    def serve(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body))

    return serve


def sending(data: bytes) -> Serve:
    def serve(connection: socket.socket) -> None:
        connection.recv(4096)
        while data:
            connection.sendall(data)

    return serve


def repeating(connection: socket.socket) -> None:
    """Answer with the text of the request, including its password."""
    connection.sendall(b"HTTP/1.1 401 " + connection.recv(4096).replace(b"\r\n", b" ") + b"\r\n\r\n")


def told(url: str) -> str:
    """Return the error that a writer gets from the faulty registry at `url`."""
    with pytest.raises(RegistryUnavailableError) as caught:
        RegistrySource(url, "alice:hunter2").newest("orders-value")
    message = str(caught.value)
    assert message.startswith(f"{url}{PATH}: ")
    assert (False, False) == ("hunter2" in message, "YWxpY2U6aHVudGVyMg" in message), message
    assert message.isprintable()
    assert len(message) < 400
    return message.removeprefix(f"{url}{PATH}: ")


PEERS: Mapping[str, tuple[Serve, str]] = {
    "401": (answering(b"401 No"), "status 401; check its user and password: --schema-registry-auth FILE"),
    "403": (answering(b"403 No"), "status 403; check its user and password: --schema-registry-auth FILE"),
    "404 of another server": (answering(b"404 No", b"<html>"), f"status 404{ELSEWHERE}"),
    "429": (answering(b"429 Later"), "status 429; it is queried again after 30 s"),
    "500": (answering(b"500 Bad"), "status 500; it is queried again after 30 s"),
    "a redirection": (answering(b"302 Found\r\nLocation: http://127.0.0.1:9/"), f"status 302{ELSEWHERE}"),
    "a repeated password": (repeating, "status 401; check its user and password: --schema-registry-auth FILE"),
    "a page": (answering(b"200 OK\r\nContent-Type: text/html", b"<html>"), f"the answer is not a JSON object{ELSEWHERE}"),
    "no end": (sending(b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 65536), f"the answer is not a JSON object{ELSEWHERE}"),
    "no HTTP": (answering(b"\x1b[2J"), r"BadStatusLine: HTTP/1.1 \x1b[2J"),
    "many headers": (answering(b"200 OK" + b"\r\nA: b" * 200), f"HTTPException: got more than 100 headers{ELSEWHERE}"),
}  # fmt: skip


@pytest.mark.parametrize("peer", PEERS)
def test_the_error_of_a_wrong_registry(served: Start, peer: str) -> None:
    """The error has the URL, the cause and the remedy in one line, and does not have the password."""
    serve, said = PEERS[peer]
    assert told(f"http://{served(serve)}").startswith(said)


def test_a_registry_that_has_no_schema(served: Start) -> None:
    """A registry that itself answers "not found" has no such schema, which is not a failure of the registry."""
    missing = answering(b"404 No", b'{"error_code":40401,"message":"Subject not found"}')
    assert RegistrySource(f"http://{served(missing)}").newest("orders-value") is None


def test_nobody_listens() -> None:
    """If nobody listens at the URL, the error has the message of the operating system."""
    with nobody_listens() as server:
        assert "Connection refused" == told(f"http://{server}")


def encrypting(pair: object) -> Serve:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(str(pair))

    def serve(connection: socket.socket) -> None:
        with tls.wrap_socket(connection, server_side=True) as encrypted:
            answering(b"500 Bad")(encrypted)

    return serve


Pair = Callable[[Certificates], object]
PAIRS: Mapping[str, tuple[Pair, str]] = {
    "right": (lambda made: made.pair("right"), "status 500"),
    "another host": (lambda made: made.pair("host", host="other"), "its certificate is not accepted: Hostname mismatch"),
    "expired": (lambda made: made.pair("old", expired=True), "its certificate is not accepted: certificate has expired; it must"),
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_certificates(
    served: Start, certificates: Certificates, pair: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSL_CERT_FILE names a certificate authority. The host name and the dates of a certificate are checked."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    made, said = PAIRS[pair]
    assert told(f"https://localhost:{served(encrypting(made(certificates))).port}").startswith(said)


def test_an_authority_that_is_not_known(served: Start, certificates: Certificates) -> None:
    """The error for an unknown authority names the variable that sets the file of authorities."""
    message = told(f"https://localhost:{served(encrypting(certificates.pair('unknown'))).port}")
    assert "signed by an authority of the system or of the file that SSL_CERT_FILE names" in message


def test_a_registry_without_tls(served: Start) -> None:
    """The error for a registry without TLS says to use a URL with http."""
    message = told(f"https://localhost:{served(answering(b'200 OK')).port}")
    assert message.endswith("; if it does not use TLS, give a URL with http://")
