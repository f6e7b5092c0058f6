"""Tests of tokens from an HTTP endpoint, and of the errors if the endpoint returns no token."""

from __future__ import annotations

import ssl
import threading
import time

import pytest

from tests.doubles.servers import nobody_listens
from tests.doubles.token_endpoint import token_endpoint
from topicfs.cluster.errors import AuthenticationError, UnreachableError
from topicfs.cluster.protocol import tokens as tokens_module
from topicfs.cluster.protocol.tokens import TokenEndpoint


@pytest.fixture
def endpoint():
    with token_endpoint() as endpoint:
        yield endpoint


def test_one_token_serves_until_it_grows_old(endpoint, monkeypatch):
    """The next token is fetched after four fifths of the current one's lifetime."""
    tokens = TokenEndpoint(endpoint.url, "alice", "s:1", scope="kafka read")
    first = tokens.token()
    assert endpoint.token("alice").split(b".")[0] == first.encode().split(b".")[0]
    assert first == tokens.token()
    fields = {"grant_type": ["client_credentials"], "scope": ["kafka read"]}
    assert [("/token?tenant=1", "alice:s:1", fields)] == endpoint.asked
    old_at = tokens._old_at
    monkeypatch.setattr("time.monotonic", lambda: old_at)
    tokens.token()
    assert 2 == len(endpoint.asked)
    assert "s:1" not in repr(tokens)
    assert first not in repr(tokens)


@pytest.mark.parametrize(
    "lifetime", [b"", b', "expires_in": "soon"', b', "expires_in": null', b', "expires_in": NaN']
)
def test_without_a_lifetime_each_connection_asks(endpoint, lifetime):
    """A token without a lifetime is used for one connection only."""
    endpoint.answer = 200, b'{"access_token": "t"' + lifetime + b"}"
    tokens = TokenEndpoint(endpoint.url, "alice", "s")
    assert ["t", "t"] == [tokens.token(), tokens.token()]
    assert 2 == len(endpoint.asked)


@pytest.mark.parametrize("lifetime", [b"1e300", b"Infinity"])
def test_no_token_is_used_for_longer_than_a_day(endpoint, monkeypatch, lifetime):
    """A token is used for at most a day, so that a wrong lifetime cannot keep an expired token in use forever."""
    endpoint.answer = 200, b'{"access_token": "t", "expires_in": ' + lifetime + b"}"
    tokens = TokenEndpoint(endpoint.url, "alice", "s")
    assert ["t", "t"] == [tokens.token(), tokens.token()]
    later = time.monotonic() + 86_400
    monkeypatch.setattr("time.monotonic", lambda: later)
    tokens.token()
    assert 2 == len(endpoint.asked)


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (
            (401, b'{"error": "invalid_client", "error_description": "no such secret"}'),
            AuthenticationError,
            "no token for alice: HTTP 401 invalid_client no such secret; check clientId and clientSecret",
        ),
        ((404, b"<html>"), AuthenticationError, "HTTP 404; check clientId and clientSecret"),
        ((400, b"[]"), AuthenticationError, "HTTP 400; check"),
        ((503, b""), UnreachableError, "no token for alice: HTTP 503"),
        ((429, b""), UnreachableError, "no token for alice: HTTP 429"),
        (
            (302, b""),
            AuthenticationError,
            "without an access_token; check sasl.oauthbearer.token.endpoint.url",
        ),
        ((200, b"<html>"), AuthenticationError, "HTTP 200 without an access_token"),
        ((200, b'{"id_token": "t"}'), AuthenticationError, "HTTP 200 without an access_token"),
        ((200, b"[" * 100_000), AuthenticationError, "HTTP 200 without an access_token"),
        ((200, b"[" * (2 << 20)), AuthenticationError, "HTTP 200 without an access_token"),
        (
            (401, b'{"error": "no hunter2, no YWxpY2U6aHVudGVyMg=="}'),
            AuthenticationError,
            "no token for alice: HTTP 401 no …, no …; check",
        ),
        ((401, b'{"error": "' + b"x" * 9999 + b'"}'), AuthenticationError, "HTTP 401 xxx"),
    ],
)
def test_answers_without_a_token(endpoint, answer, error, said):
    """If an answer has no token, the error names the endpoint and what to check, and does not show the secret."""
    endpoint.answer = answer
    with pytest.raises(error) as caught:
        TokenEndpoint(endpoint.url, "alice", "hunter2").token()
    assert f"{endpoint.url}: " in str(caught.value)
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX", b"H"])
def test_an_endpoint_that_sends_a_byte_now_and_then(served, monkeypatch, head):
    """If an endpoint sends single bytes slowly, the time limit ends the wait, and a partial answer is no token."""
    ended = threading.Event()

    def drip(connection):
        connection.recv(4096)
        connection.sendall(head)
        while not ended.wait(0.02):
            connection.sendall(b" ")

    monkeypatch.setattr(tokens_module, "ENDPOINT_SECONDS", 0.3)
    server = served(drip)
    with pytest.raises(UnreachableError, match=f"http://{server}/: no token: no answer within 0.3 s"):
        TokenEndpoint(f"http://{server}/", "alice", "s").token()
    ended.set()


def test_nothing_listens_or_what_listens_is_not_http(served):
    """An endpoint that is down, or does not speak HTTP, gives a retriable error."""
    with nobody_listens() as server, pytest.raises(UnreachableError, match="no token: Connection refused"):
        TokenEndpoint(f"http://{server}", "alice", "s").token()
    rubbish = served(lambda connection: connection.sendall(b"rubbish\r\n\r\n"))
    with pytest.raises(UnreachableError, match="no token: "):
        TokenEndpoint(f"http://{rubbish}/", "alice", "s").token()


def test_an_endpoint_whose_certificate_is_not_taken(certificates):
    """If the endpoint's certificate is rejected, the error names the setting in sasl.jaas.config, as in Java."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates.pair("endpoint"))
    with token_endpoint(tls) as endpoint, pytest.raises(AuthenticationError) as caught:
        TokenEndpoint(endpoint.url, "alice", "s", tls=ssl.create_default_context()).token()
    assert "set ssl.truststore.location to a file with the CA that signed it (in sasl.jaas.config)" in str(
        caught.value
    )
    assert not endpoint.asked
