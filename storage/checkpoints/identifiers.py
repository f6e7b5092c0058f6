"""Kafka's ids: 128 random bits, written as base64url without padding (22 characters)."""

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
"""Directory ids 0 to 99 have meanings of their own in Kafka; 0 and 1 are reserved for topics."""
LAST_RESERVED_TOPIC_ID = 1
"""0 stands for no topic, 1 for the topic of Kafka's own metadata."""


def new_id(source: IdSource = uuid4) -> str:
    """Make an id that does not begin with a dash (command lines take that for an option), as Kafka does."""
    while True:
        unique = source()
        text = encode_id(unique)
        if not text.startswith("-") and unique.int >= _RESERVED_BELOW:
            return text


def encode_id(unique: UUID) -> str:
    return base64.urlsafe_b64encode(unique.bytes).rstrip(b"=").decode()


def decode_id(text: str) -> UUID:
    """Raise ValueError for anything but 22 characters of base64url."""
    if not _TEXT.fullmatch(text):
        raise ValueError(f"{text!r} is no id: 22 characters of base64url")
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except binascii.Error as error:  # pragma: no cover - the pattern lets nothing through that raises
        raise ValueError(f"{text!r} is no id: {error}") from None
