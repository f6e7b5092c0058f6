"""SASL tests that send single frames: requests that are answered before authentication, and logins that fail."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.doubles.waiting import wait_until
from tests.listener.serving import RawClient, Served
from tests.listener.test_hostile_frames import SOFTWARE, head, sample, serves
from topicfs.cluster.protocol.sasl import PASSWORD_MECHANISMS
from topicfs.listener.requests.table import REQUESTS
from topicfs.protocol.messages import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from topicfs.protocol.scram import encode

WRONG = "Authentication failed: Invalid username or password"
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
TOKENS = "Invalid SASL/PLAIN response: expected 3 tokens, got "


@pytest.fixture
def client(guarded: Served) -> RawClient:
    """A connection that is not authenticated."""
    return guarded.client()


def handshake(client: RawClient, mechanism: str, version: int = 1) -> dict[str, Any]:
    return client.ask(SASL_HANDSHAKE, {"mechanism": mechanism}, version)


def authenticate(client: RawClient, message: bytes, version: int = 2) -> dict[str, Any]:
    return client.ask(SASL_AUTHENTICATE, {"authBytes": message}, version)


def log_in(client: RawClient, mechanism: str, password: str = "alice-secret", *, version: int = 2) -> None:
    """Authenticate as alice. Raises AssertionError if the server refuses."""
    handshake(client, mechanism)
    exchange = PASSWORD_MECHANISMS[mechanism]("alice", password)
    message = next(exchange)
    try:
        while True:
            answer = authenticate(client, message, version)
            assert 0 == answer["errorCode"], answer["errorMessage"]
            message = exchange.send(bytes(answer["authBytes"]))
    except StopIteration:
        pass


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_an_authenticated_client_is_served(client: RawClient, mechanism: str, version: int) -> None:
    """After SaslAuthenticate in each version every request is answered, and a second login is refused."""
    assert 0 == client.ask(API_VERSIONS, SOFTWARE)["errorCode"]
    log_in(client, mechanism, version=version)
    assert 0 == client.topic("t")["errorCode"]
    assert 0 == client.ask(API_VERSIONS, SOFTWARE)["errorCode"]
    assert 34 == handshake(client, mechanism)["errorCode"]
    assert 34 == authenticate(client, b"")["errorCode"]


def test_unauthenticated_clients_are_counted_together(guarded: Served) -> None:
    """Clients are counted by their client ids only after authentication; before, they are counted together."""
    client, stranger = guarded.client(), guarded.client()
    stranger.ask(API_VERSIONS, SOFTWARE)
    client.ask(API_VERSIONS, SOFTWARE)
    log_in(client, "PLAIN")
    counts = guarded.listener.counts
    assert counts is not None
    assert ["@unauthenticated"] == [name.client for name in counts.clients()]
    client.topic("t")
    assert [("@unauthenticated", 1), ("test", 1)] == [
        (name.client, one.connections) for name, one in counts.clients().items()
    ]


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_messages_without_a_header(guarded: Served, mechanism: str) -> None:
    """After SaslHandshake in version 0 the messages of the mechanism have no header. A failed login gets no answer."""
    for password, known in (("alice-secret", True), ("wrong", False)):
        client = guarded.client()
        assert 0 == handshake(client, mechanism, 0)["errorCode"]
        exchange = PASSWORD_MECHANISMS[mechanism]("alice", password)
        message = next(exchange)
        try:
            while True:
                client.frame(message)
                message = exchange.send(client.receive_frame())
        except StopIteration:
            assert known
            assert 0 == client.topic("t")["errorCode"]
        except (EOFError, ConnectionResetError):
            assert not known


def test_requests_before_authentication(guarded: Served) -> None:
    """Before SaslHandshake each request except ApiVersions ends the connection unanswered and without any effect."""
    for api, _ in REQUESTS.values():
        if api.key in (API_VERSIONS.key, SASL_HANDSHAKE.key):
            continue
        for version in {api.request.versions[0], api.request.versions[-1]}:
            client = guarded.client()
            client.frame(head(api, version) + api.request.write(sample(api.request.fields, version), version))
            assert client.is_closed(), api.name
            client.close()
    assert {} == dict(guarded.engine.topics())


def test_requests_between_handshake_and_authentication(guarded: Served) -> None:
    """After SaslHandshake, any other request ends the connection.

    If the answer to this request has a field for an error code, the request is first answered with
    ILLEGAL_SASL_STATE.
    """
    for api, _ in REQUESTS.values():
        if api.key == SASL_AUTHENTICATE.key:
            continue
        client = guarded.client()
        handshake(client, "PLAIN")
        version = api.request.versions[-1]
        values = sample(api.request.fields, version)
        if any(field.name == "errorCode" for field in api.response.fields if field.in_version(version)):
            assert 34 == client.ask(api, values, version)["errorCode"], api.name
        else:
            client.send(api, values, version)
        assert client.is_closed(), api.name
        client.close()
    assert {} == dict(guarded.engine.topics())


def test_api_versions_once(client: RawClient) -> None:
    """A failed ApiVersions may be repeated; after a successful one, another ApiVersions ends the connection."""
    client.frame(head(API_VERSIONS, 99) + b"whatever")
    assert 35 == API_VERSIONS.response.read(client.receive_frame()[4:], 0)["errorCode"]
    assert 42 == client.ask(API_VERSIONS, {**SOFTWARE, "clientSoftwareName": "-"})["errorCode"]
    assert 0 == client.ask(API_VERSIONS, SOFTWARE)["errorCode"]
    client.send(API_VERSIONS, SOFTWARE, 3)
    assert client.is_closed()


def test_an_unknown_mechanism(client: RawClient) -> None:
    """A request for an unknown mechanism gets the names of the known mechanisms. Then the connection ends."""
    answer = handshake(client, "GSSAPI")
    assert (33, list(PASSWORD_MECHANISMS)) == (answer["errorCode"], answer["mechanisms"])
    assert client.is_closed()


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_an_unknown_user_is_like_a_wrong_password(guarded: Served, mechanism: str) -> None:
    """In each step the answer for an unknown user has the same form as the answer for a wrong password."""
    found = []
    for user in ("alice", "nobody"):
        client = guarded.client()
        handshake(client, mechanism)
        exchange = PASSWORD_MECHANISMS[mechanism](user, "wrong")
        answers = [authenticate(client, next(exchange))]
        if mechanism != "PLAIN":
            answers.append(authenticate(client, exchange.send(bytes(answers[0]["authBytes"]))))
        assert client.is_closed()
        found.append([(len(one.pop("authBytes")), one) for one in answers])
    assert found[0] == found[1]
    [_, last] = found[0][-1]
    assert (58, 0) == (last["errorCode"], last["sessionLifetimeMs"])
    assert (WRONG if mechanism == "PLAIN" else INVALID + mechanism) == last["errorMessage"]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"", TOKENS + "1"), (b"\0alice", TOKENS + "2"), (b"\0alice\0alice-secret\0", TOKENS + "4"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\0alice-secret", "Authentication failed: username not specified"),
        (b"\0\xff\0alice-secret", INVALID + "PLAIN"), (b"\0alice\0\xff", WRONG),
        (b"\0alice\0alice-secret ", WRONG), (b"\0Alice\0alice-secret", WRONG),
        (b"bob\0alice\0alice-secret",
         "Authentication failed: Client requested an authorization id that is different from username"),
    ],
)  # fmt: skip
def test_messages_of_plain(client: RawClient, message: bytes, said: str) -> None:
    """A malformed message of PLAIN is refused, and so is a message that asks for another user's rights."""
    handshake(client, "PLAIN")
    answer = authenticate(client, message)
    assert (58, said) == (answer["errorCode"], answer["errorMessage"])
    assert client.is_closed()


@pytest.mark.parametrize(
    "message",
    [
        b"", b"n=alice,r=abc", b"p=tls-unique,,n=alice,r=abc", b"y,,n=alice,r=abc", b"n,,n=,r=abc", b"n,,n=alice,r=",
        b"n,,r=abc,n=alice", b"n,,m=x,n=alice,r=abc", b"n,,n=al=2xice,r=abc", b"n,,n=alice=,r=abc", b"n,,n=\xff,r=abc",
        b"n,,n=alice,r=a\0c",
    ],
)  # fmt: skip
def test_first_messages_of_scram(client: RawClient, message: bytes) -> None:
    """A malformed first message of SCRAM is refused. A first message that asks for channel binding is refused, too."""
    handshake(client, "SCRAM-SHA-256")
    answer = authenticate(client, message)
    assert (58, INVALID + "SCRAM-SHA-256") == (answer["errorCode"], answer["errorMessage"])
    assert client.is_closed()


LAST_MESSAGES: tuple[Callable[[str, str], bytes], ...] = (
    lambda nonce, _: b"",
    lambda nonce, _: f"c=biws,r={nonce}".encode(),
    lambda nonce, _: f"c=biws,r={nonce},p=".encode(),
    lambda nonce, _: f"c=biws,r={nonce},p=?".encode(),
    lambda nonce, _: f"c=biws,r={nonce},p={encode(bytes(31))}".encode(),
    lambda nonce, _: f"c=biws,r={nonce},p={encode(bytes(64))}".encode(),
    lambda nonce, _: f"c=biws,r={nonce},p={encode(bytes(32))}".encode(),
    lambda nonce, right: f"c=biws,r={nonce[:-1]},p={right}".encode(),
    lambda nonce, right: f"c=biws,r=abc,p={right}".encode(),
    lambda nonce, right: f"c=eSws,r={nonce},p={right}".encode(),
    lambda nonce, right: f"r={nonce},p={right}".encode(),
    lambda nonce, right: f"c=biws,r={nonce},p={right},p={right}".encode(),
    lambda nonce, right: f"c=biws,r={nonce},x=y,p={right}".encode(),
)
"""Functions that make a last message of SCRAM; their arguments are the server's nonce and the valid proof."""


@pytest.mark.parametrize("make", LAST_MESSAGES)
def test_last_messages_of_scram(client: RawClient, make: Callable[[str, str], bytes]) -> None:
    """A last message is refused if it lacks the right nonce, the right binding, or a proof of exactly this message."""
    handshake(client, "SCRAM-SHA-256")
    exchange = PASSWORD_MECHANISMS["SCRAM-SHA-256"]("alice", "alice-secret")
    challenge = bytes(authenticate(client, next(exchange))["authBytes"])
    right = exchange.send(challenge).decode()
    nonce = right.split(",")[1].removeprefix("r=")
    answer = authenticate(client, make(nonce, right.partition(",p=")[2]))
    assert (58, b"") == (answer["errorCode"], bytes(answer["authBytes"]))
    assert client.is_closed()


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_the_log_names_the_user(guarded: Served, mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log names the user of a failed authentication, escaped and shortened, but never the password."""
    for user, named in (("alice", "'alice'"), ("eve\n" + "x" * 80, r"'eve\n" + "x" * 60 + "'")):
        caplog.clear()
        client = guarded.client()
        handshake(client, mechanism)
        exchange = PASSWORD_MECHANISMS[mechanism](user, "wrong-secret")
        answer = authenticate(client, next(exchange))
        if mechanism != "PLAIN":
            answer = authenticate(client, exchange.send(bytes(answer["authBytes"])))
        assert 58 == answer["errorCode"]
        assert client.is_closed()
        wait_until(lambda: caplog.records, "the failure is logged")
        [line] = [record.getMessage() for record in caplog.records]
        assert f"SASL {mechanism} as {named}: " in line
        assert "wrong-secret" not in line


def test_a_proof_is_not_accepted_twice(guarded: Served) -> None:
    """The messages of a successful login are refused on a second connection."""
    exchange = PASSWORD_MECHANISMS["SCRAM-SHA-512"]("alice", "alice-secret")
    first = next(exchange)
    clients = guarded.client(), guarded.client()
    for client in clients:
        handshake(client, "SCRAM-SHA-512")
    challenges = [bytes(authenticate(client, first)["authBytes"]) for client in clients]
    assert challenges[0] != challenges[1]
    proof = exchange.send(challenges[0])
    assert 0 == authenticate(clients[0], proof)["errorCode"]
    assert 58 == authenticate(clients[1], proof)["errorCode"]


def test_large_requests_before_authentication(client: RawClient, guarded: Served) -> None:
    """A request of more than 64 KiB is accepted only after authentication."""
    client.socket.sendall(struct.pack(">i", (64 << 10) + 1))
    assert client.is_closed()
    known = guarded.client()
    log_in(known, "PLAIN")
    topics = [{"name": f"{number:0200}"} for number in range(1000)]
    asked = {"topics": topics, "allowAutoTopicCreation": False}
    assert 1000 == len(known.ask(METADATA, asked, 9)["topics"])


def test_listeners_without_users_refuse_logins(served: Served) -> None:
    """Without users, SaslHandshake and SaslAuthenticate get ILLEGAL_SASL_STATE, as on a broker's PLAINTEXT listener."""
    client = served.client()
    for version in (0, 1):
        assert {"errorCode": 34, "mechanisms": []} == handshake(client, "PLAIN", version)
    for version in (0, 1, 2):
        assert 34 == authenticate(client, b"\0a\0b", version)["errorCode"]
    assert serves(served)
