"""The arithmetic of SCRAM (RFC 5802 and 7677), which a client and a server share.

A client proves that it knows the client key without sending it, and a server proves that it knows the server key. A
server keeps neither the password nor the client key, but the client key's hash.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

HASHES: Mapping[str, str] = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})
"""The hash function of each mechanism, by its name in `hashlib`."""

FEWEST_ITERATIONS = 4096
MAX_SCRAM_ITERATIONS = 1_000_000
"""Maximum number of iterations. More iterations would keep a client or a server busy for seconds."""

NO_BINDING = b"n,,"
"""The start of a client's first message: no channel binding, and no authorization ID."""


class ScramKeys(NamedTuple):
    """The keys that are derived from a password."""

    client: bytes
    stored: bytes
    """The hash of the client key."""
    server: bytes


def scram_keys(hash_name: str, password: bytes, salt: bytes, iterations: int) -> ScramKeys:
    """Return the keys of a password. Takes milliseconds for thousands of iterations."""
    salted = hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)
    client = hmac.digest(salted, b"Client Key", hash_name)
    return ScramKeys(client, hashed(hash_name, client), hmac.digest(salted, b"Server Key", hash_name))


def hashed(hash_name: str, client_key: bytes) -> bytes:
    """Return the stored key of a client key."""
    return hashlib.new(hash_name, client_key).digest()


def masked(hash_name: str, key: bytes, stored_key: bytes, signed: bytes) -> bytes:
    """Mask `key` by XOR with the signature of the messages `signed`, and return the result.

    If `key` is the client key, the result is the client's proof. If `key` is the proof, the result is the client key.
    """
    signature = hmac.digest(stored_key, signed, hash_name)
    return bytes(one ^ other for one, other in zip(key, signature, strict=True))


def scram_attributes(text: str) -> dict[str, str]:
    """Parse a message, which has the form `name=value,name=value`."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()
