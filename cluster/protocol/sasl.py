"""SASL authentication: the client's messages, and its checks of the broker's messages.

PLAIN is RFC 4616, SCRAM RFC 5802 and 7677, OAUTHBEARER RFC 7628 and KIP-255. Each mechanism is a generator: it yields
the messages, receives the broker's answers, and ends on success. It raises ValueError for a wrong answer.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

Exchange: TypeAlias = Generator[bytes, bytes, None]

FEWEST_ITERATIONS = 4096
MAX_SCRAM_ITERATIONS = 1_000_000
"""Maximum number of iterations that a broker may demand. More iterations would keep the client busy for seconds."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A SASL mechanism with the client's credentials."""

    mechanism: str
    user: str
    exchange: Callable[[], Exchange] = field(repr=False)
    """Starts an exchange."""

    def secrets_in(self, said: bytes) -> list[str]:
        """Return the password or token that a sent message contains, because a broker may repeat it in an error."""
        parts = re.split("[\0\1]|auth=Bearer ", said.decode())
        return [one for one in parts if one not in {"", self.user, "n,,"}]


def plain(user: str, password: str) -> Exchange:
    """Send user and password."""
    yield f"\0{user}\0{password}".encode()


def oauthbearer(token: Callable[[], str], extensions: Mapping[str, str]) -> Exchange:
    """Send a token, with the extensions that the cluster requires."""
    said = "".join(f"{name}={value}\1" for name, value in extensions.items())
    refusal = yield f"n,,\1auth=Bearer {token()}\1{said}\1".encode()
    if refusal:
        yield b"\1"  # In reply, the broker sends its refusal as an error.


def scram(hash_name: str, user: str, password: str, nonce: str | None = None) -> Exchange:
    """Prove knowledge of the password without sending it, and verify the broker's proof."""
    nonce = nonce or base64.b64encode(os.urandom(18)).decode()
    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    answer = (yield f"n,,{first}".encode()).decode()
    said = _attributes(answer)
    iterations = int(said.get("i", "0"))
    if not said.get("r", "").startswith(nonce) or not FEWEST_ITERATIONS <= iterations <= MAX_SCRAM_ITERATIONS:
        raise ValueError(f"its SCRAM challenge is not valid for this client ({iterations} iterations)")
    salted = hashlib.pbkdf2_hmac(
        hash_name, password.encode(), base64.b64decode(said["s"], validate=True), iterations
    )
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    last = f"c=biws,r={said['r']}"
    signed = f"{first},{answer},{last}".encode()
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), signed, hash_name)
    proof = bytes(ours ^ theirs for ours, theirs in zip(client_key, signature, strict=True))
    final = _attributes((yield f"{last},p={base64.b64encode(proof).decode()}".encode()).decode())
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    expected = hmac.digest(server_key, signed, hash_name)
    if not hmac.compare_digest(base64.b64decode(final.get("v", "")), expected):
        raise ValueError("it does not know the password itself; is it the right cluster?")


PASSWORD_MECHANISMS: Mapping[str, Callable[[str, str], Exchange]] = MappingProxyType(
    {
        "PLAIN": plain,
        "SCRAM-SHA-256": lambda user, password: scram("sha256", user, password),
        "SCRAM-SHA-512": lambda user, password: scram("sha512", user, password),
    }
)


def _attributes(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)
