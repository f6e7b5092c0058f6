"""SASL authentication: the client's messages, and its checks of the broker's messages.

PLAIN is RFC 4616, SCRAM RFC 5802 and 7677, OAUTHBEARER RFC 7628 and KIP-255. Each mechanism is a generator: it yields
the messages, receives the broker's answers, and ends on success. It raises ValueError for a wrong answer.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from topicfs.protocol.scram import (
    FEWEST_ITERATIONS,
    HASHES,
    MAX_SCRAM_ITERATIONS,
    NO_BINDING,
    encode,
    masked,
    scram_attributes,
    scram_keys,
)

Exchange: TypeAlias = Generator[bytes, bytes, None]


@dataclass(frozen=True, slots=True)
class Credentials:
    """A SASL mechanism with the client's credentials."""

    mechanism: str
    user: str
    exchange: Callable[[], Exchange] = field(repr=False)
    """Starts an exchange."""

    def secrets_in(self, said: bytes) -> list[str]:
        """Return the password or token in the sent message `said`: a broker may repeat it in an error."""
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
    nonce = nonce or encode(os.urandom(18))
    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    answer = (yield NO_BINDING + first.encode()).decode()
    said = scram_attributes(answer)
    iterations = int(said.get("i", "0"))
    if not said.get("r", "").startswith(nonce) or not FEWEST_ITERATIONS <= iterations <= MAX_SCRAM_ITERATIONS:
        raise ValueError(f"its SCRAM challenge is not valid for this client ({iterations} iterations)")
    salt = base64.b64decode(said["s"], validate=True)
    keys = scram_keys(hash_name, password.encode(), salt, iterations)
    last = f"c={encode(NO_BINDING)},r={said['r']}"
    signed = f"{first},{answer},{last}".encode()
    proof = masked(hash_name, keys.client, keys.stored, signed)
    final = scram_attributes((yield f"{last},p={encode(proof)}".encode()).decode())
    expected = hmac.digest(keys.server, signed, hash_name)
    if not hmac.compare_digest(base64.b64decode(final.get("v", "")), expected):
        raise ValueError("the broker cannot prove that it knows the password; is it the right cluster?")


PASSWORD_MECHANISMS: Mapping[str, Callable[[str, str], Exchange]] = MappingProxyType(
    {"PLAIN": plain, **{mechanism: partial(scram, hash_name) for mechanism, hash_name in HASHES.items()}}
)
