"""Kafka's IDs: 128 random bits, written as base64url without padding (22 characters)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import TypeAlias
from uuid import UUID, uuid4

IdSource: TypeAlias = Callable[[], UUID]

_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")
_RESERVED_BELOW = 100
"""Kafka gives directory IDs 0 to 99 special meanings, and reserves topic IDs 0 and 1."""
LAST_RESERVED_TOPIC_ID = 1
"""Topic ID 0 means no topic, 1 is the ID of Kafka's metadata topic."""


def new_id(source: IdSource = uuid4) -> str:
    """Return a new ID. Like Kafka's, it does not begin with a dash, which command lines take for an option."""
    while True:
        unique = source()
        text = encode_id(unique)
        if not text.startswith("-") and unique.int >= _RESERVED_BELOW:
            return text


def encode_id(unique: UUID) -> str:
    return base64.urlsafe_b64encode(unique.bytes).rstrip(b"=").decode()


def decode_id(text: str) -> UUID:
    """Parse an ID. Raises ValueError unless `text` is 22 characters of base64url."""
    if not _TEXT.fullmatch(text):
        raise ValueError(f"{text!r} is not an ID (22 base64url characters)")
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except binascii.Error as error:  # pragma: no cover - the pattern lets nothing through that raises
        raise ValueError(f"{text!r} is not an ID: {error}") from None
