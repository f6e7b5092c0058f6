"""The server's side of the SASL mechanisms: PLAIN (RFC 4616) and SCRAM (RFC 5802 and 7677).

Each mechanism is a generator: it receives the client's messages, yields the answers, and returns the user with the last
answer. It raises RefusedLoginError, or ValueError for a malformed message.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
from collections.abc import Callable, Generator, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from topicfs.listener.security.users import Users
from topicfs.protocol.scram import HASHES, encode, hashed, masked, scram_attributes

_CLIENT_FIRST = re.compile(
    r"(?P<header>n,(?:a=(?P<acts_as>[^,]*))?,)(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?)",
    re.DOTALL,
)
_PLAIN_PARTS = 3


class RefusedLoginError(Exception):
    """The client did not prove its identity; the client gets this error's message, if there is one."""

    def __init__(self, message: str = "", user: str = "") -> None:
        super().__init__(message)
        self.user = user
        """The user name that the client sent; empty if it is not known."""


class LoggedIn(NamedTuple):
    """The result of a successful exchange."""

    user: str
    answer: bytes


Exchange: TypeAlias = Generator[bytes, bytes, LoggedIn]


def plain(users: Users) -> Exchange:
    """Check the password that a client sends."""
    parts = (yield b"").split(b"\0", _PLAIN_PARTS)
    if len(parts) != _PLAIN_PARTS:
        raise RefusedLoginError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    for name, part in (("username", parts[1]), ("password", parts[2])):
        if not part:
            raise RefusedLoginError(f"Authentication failed: {name} not specified")
    acts_as, user = parts[0].decode(), parts[1].decode()
    if not users.has_password(user, parts[2]):
        raise RefusedLoginError("Authentication failed: Invalid username or password", user)
    _check_name(acts_as, user)
    return LoggedIn(user, b"")


def scram(mechanism: str, users: Users) -> Exchange:
    """Check the client's proof that it knows the password, and prove that the server knows the server key."""
    hash_name = HASHES[mechanism]
    first = _CLIENT_FIRST.fullmatch((yield b"").decode())
    if first is None or re.search("=(?!2C|3D)", first["user"]):
        raise ValueError("not the first message of a SCRAM client")
    user = first["user"].replace("=2C", ",").replace("=3D", "=")
    known = users.credential(user, mechanism)
    nonce = first["nonce"] + encode(os.urandom(18))
    challenge = f"r={nonce},s={encode(known.salt)},i={known.iterations}"
    last, _, proof = (yield challenge.encode()).decode().rpartition(",p=")
    said = scram_attributes(last)
    # Older versions of librdkafka, such as 2.0, send their own nonce once more before this nonce. Accept it,
    # as brokers do.
    if said.get("c") != encode(first["header"].encode()) or not said.get("r", "").endswith(nonce):
        raise ValueError("the last message of a SCRAM client does not repeat the nonce")
    signed = f"{first['bare']},{challenge},{last}".encode()
    client_key = masked(hash_name, base64.b64decode(proof, validate=True), known.stored_key, signed)
    if not hmac.compare_digest(hashed(hash_name, client_key), known.stored_key):
        raise RefusedLoginError(user=user)
    _check_name(first["acts_as"] or "", user)
    return LoggedIn(user, f"v={encode(hmac.digest(known.server_key, signed, hash_name))}".encode())


MECHANISMS: Mapping[str, Callable[[Users], Exchange]] = MappingProxyType(
    {"PLAIN": plain, **{mechanism: partial(scram, mechanism) for mechanism in HASHES}}
)
"""The mechanisms that are offered to clients."""


def _check_name(acts_as: str, user: str) -> None:
    if acts_as not in {"", user}:
        raise RefusedLoginError(
            "Authentication failed: Client requested an authorization id that is different from username",
            user,
        )
