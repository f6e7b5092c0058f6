"""Peers that fail to authenticate give an error of one short sentence, with the user and without a secret."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from tests.cluster.protocol.test_connection import agreeing, answered, frame
from tests.doubles.servers import Serve, Start
from topicfs.cluster.errors import AuthenticationError, MalformedAnswerError, UnreachableError
from topicfs.cluster.protocol.connection import Connection
from topicfs.cluster.protocol.sasl import Credentials, oauthbearer, plain, scram
from topicfs.cluster.protocol.security import Security
from topicfs.protocol.messages import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from topicfs.storage.errors import ClusterError

SECRET = "hunter2"
KEYS = [
    (one.key, 0, one.request.versions[-1])
    for one in (METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS)
]
CREDENTIALS = {
    "PLAIN": partial(plain, "alice", SECRET),
    "SCRAM-SHA-256": partial(scram, "sha256", "alice", SECRET),
    "OAUTHBEARER": partial(oauthbearer, lambda: SECRET, {}),
}

Answer = Callable[[bytes], Mapping[str, Any]]
"""Returns the fields of the answer to a client's SASL bytes."""


def authenticating(answer: Answer, **handshake: Any) -> Serve:
    """A broker that accepts any mechanism unless `handshake` says otherwise, and sends `answer` to SASL bytes."""

    def then(connection: socket.socket, key: int, version: int, correlation: int, rest: bytes) -> None:
        if key == SASL_HANDSHAKE.key:
            said = {"mechanisms": list(CREDENTIALS), **handshake}
            connection.sendall(answered(SASL_HANDSHAKE, version, correlation, said))
        else:
            connection.sendall(answered(SASL_AUTHENTICATE, version, correlation, answer(rest)))

    return agreeing(then, KEYS)


def refusing(message: str) -> Answer:
    return lambda _: {"errorCode": 58, "errorMessage": message}


def challenging(**fields: Any) -> Answer:
    """Answer with a SCRAM challenge that has the client's nonce."""

    def answer(rest: bytes) -> Mapping[str, Any]:
        nonce = rest.partition(b"r=")[2].partition(b",")[0].split(b"\0")[0]
        return {"authBytes": b"r=" + nonce + b"x,s=c2FsdA==,i=4096", **fields}

    return answer


def closing(connection: socket.socket, key: int, version: int, correlation: int, _: bytes) -> None:
    if key != SASL_HANDSHAKE.key:
        raise OSError("the connection ends")
    connection.sendall(answered(SASL_HANDSHAKE, version, correlation, {"mechanisms": ["PLAIN"]}))


def talking(data: bytes) -> Serve:
    """A broker that answers every request with `data`."""
    return agreeing(lambda connection, *_: connection.sendall(data), KEYS)


REFUSED = "{who}: the cluster answers SASL_AUTHENTICATION_FAILED"
OFFERED = "{who}: the cluster answers UNSUPPORTED_SASL_MECHANISM: it offers "
PEERS: Mapping[str, tuple[str, Serve, type[ClusterError], str]] = {
    "a wrong password": ("PLAIN", authenticating(refusing("no")), AuthenticationError, REFUSED + ": no; check user and password, or the token"),
    "no reason": ("PLAIN", authenticating(lambda _: {"errorCode": 58, "errorMessage": None}), AuthenticationError, REFUSED + "; check"),
    "a long reason": ("PLAIN", authenticating(refusing("x" * 5_000_000)), AuthenticationError, REFUSED + ": xxx"),
    "the password as the reason": ("PLAIN", authenticating(refusing(f"not {SECRET}")), AuthenticationError, REFUSED + ": not …; check"),
    "the token as the reason": ("OAUTHBEARER", authenticating(refusing(f"not {SECRET}")), AuthenticationError, REFUSED + ": not …; check"),
    "another mechanism": ("PLAIN", authenticating(refusing(""), errorCode=33, mechanisms=["GSSAPI"]), AuthenticationError, OFFERED + "GSSAPI; set sasl.mechanism to one that it offers"),
    "many mechanisms": ("PLAIN", authenticating(refusing(""), errorCode=33, mechanisms=["M"] * 100_000), AuthenticationError, OFFERED + "M, M"),
    "a challenge of no text": ("SCRAM-SHA-256", authenticating(lambda _: {"authBytes": b"\xff" * 9}), AuthenticationError, "{who}: the broker's answer is wrong: "),
    "a long challenge": ("SCRAM-SHA-256", authenticating(lambda _: {"authBytes": b"r=,i=" + b"9" * 4000}), AuthenticationError, "{who}: the broker's answer is wrong: "),
    "no proof of the password": ("SCRAM-SHA-256", authenticating(challenging()), AuthenticationError, "is it the right cluster?"),
    "a session that ended before it began": ("SCRAM-SHA-256", authenticating(challenging(sessionLifetimeMs=-1)), AuthenticationError, "is it the right cluster?"),
    "an end": ("PLAIN", agreeing(closing, KEYS), UnreachableError, "SaslAuthenticate: the broker closed the connection"),
    "garbage": ("PLAIN", talking(b"garbage" * 9), MalformedAnswerError, "an answer to SaslHandshake of 1,734,439,522 bytes, above the limit of 67,108,864"),
    "another answer": ("PLAIN", talking(frame(b"garbage")), MalformedAnswerError, "it is not the answer to this request"),
}  # fmt: skip


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_that_authenticates_nobody(served: Start, peer: str) -> None:
    """The one-line error has the server, the user, the cause and a part of the peer's text, but never a secret."""
    mechanism, serve, kind, said = PEERS[peer]
    server = served(serve)
    with pytest.raises(kind) as caught:
        Connection(server, Security(credentials=Credentials(mechanism, "alice", CREDENTIALS[mechanism])))
    message = str(caught.value)
    assert (True, True) == (message.startswith(f"{server}: "), len(message) < 500), message
    assert said.replace("{who}", f"{mechanism} as alice") in message
    assert SECRET not in message


def test_a_very_short_session_is_renewed_for_each_request(served: Start) -> None:
    """If a session is very short, the client renews the session once before each request.

    The requests of the renewal itself cause no further renewal.
    """
    words: list[int] = []

    def then(connection: socket.socket, key: int, version: int, correlation: int, _: bytes) -> None:
        words.append(key)
        values = {
            SASL_HANDSHAKE.key: (SASL_HANDSHAKE, {"mechanisms": ["PLAIN"]}),
            SASL_AUTHENTICATE.key: (SASL_AUTHENTICATE, {"errorMessage": None, "sessionLifetimeMs": 1}),
            METADATA.key: (METADATA, {"brokers": [], "topics": []}),
        }
        api, answer = values[key]
        connection.sendall(answered(api, version, correlation, answer))

    known = Security(credentials=Credentials("PLAIN", "alice", CREDENTIALS["PLAIN"]))
    connection = Connection(served(agreeing(then, KEYS)), known)
    connection._session_ends = 0.0
    connection.call(METADATA, {"topics": None, "allowAutoTopicCreation": False})
    connection.close()
    beginning = [SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key]
    assert [*beginning, *beginning, METADATA.key] == words
