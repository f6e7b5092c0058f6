"""The kinds of values that settings have, and how each kind is parsed, checked and printed, as by Kafka's ConfigDef.

Blanks around values are dropped. Numbers have Java's decimal form. Upper and lower case are the same only in booleans.
"""

import math
import re
from typing import Any, NamedTuple, Protocol

from topicfs.storage.errors import InvalidConfigError
from topicfs.storage.model import TimestampType

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?"
_THROTTLED_REPLICA = r"[0-9]+:[0-9]+"


class ValueKind(Protocol):
    """Parses, checks and prints the values of one kind of setting."""

    @property
    def valid(self) -> str:
        """The valid values, as text for the end of an error message: `a whole number from 0 to 10`."""

    def parse(self, text: str) -> Any:
        """Parse `text`. Raises ValueError if it is not valid."""

    def print(self, value: Any) -> str:
        """Return Kafka's spelling of `value`, which `parse` accepts."""


class WholeNumber(NamedTuple):
    """A Java int or long between two inclusive bounds."""

    minimum: int
    maximum: int

    @property
    def valid(self) -> str:
        return f"a whole number from {self.minimum} to {self.maximum}"

    def parse(self, text: str) -> int:
        stripped = text.strip()
        if not _INTEGER.fullmatch(stripped):
            raise ValueError(text)
        value = int(stripped)
        if not self.minimum <= value <= self.maximum:
            raise ValueError(text)
        return value

    def print(self, value: int) -> str:
        return str(value)


def int_of_at_least(minimum: int) -> WholeNumber:
    return WholeNumber(minimum, INT_MAX)


def long_of_at_least(minimum: int) -> WholeNumber:
    return WholeNumber(minimum, LONG_MAX)


class WholeNumberOr(NamedTuple):
    """A whole number in a range, or one other number with a special meaning."""

    number: WholeNumber
    other: int

    @property
    def valid(self) -> str:
        return f"{self.number.valid}, or {self.other}"

    def parse(self, text: str) -> int:
        value = WholeNumber(LONG_MIN, LONG_MAX).parse(text)
        return value if value == self.other else self.number.parse(text)

    def print(self, value: int) -> str:
        return self.number.print(value)


class OptionalWholeNumber(NamedTuple):
    """A whole number or None. None is printed as empty text, and empty text is parsed as None."""

    number: WholeNumber

    @property
    def valid(self) -> str:
        return f"{self.number.valid}, or nothing"

    def parse(self, text: str) -> int | None:
        return self.number.parse(text) if text.strip() else None

    def print(self, value: int | None) -> str:
        return "" if value is None else self.number.print(value)


class Ratio(NamedTuple):
    """A floating point number between two inclusive bounds."""

    minimum: float = 0.0
    maximum: float = 1.0

    @property
    def valid(self) -> str:
        return f"a number from {self.minimum:g} to {self.maximum:g}"

    def parse(self, text: str) -> float:
        stripped = text.strip()
        if not re.fullmatch(_DECIMAL, stripped):
            raise ValueError(text)
        value = float(stripped)
        if not math.isfinite(value) or not self.minimum <= value <= self.maximum:
            raise ValueError(text)
        return value

    def print(self, value: float) -> str:
        return repr(value)


class Boolean:
    @property
    def valid(self) -> str:
        return "true or false"

    def parse(self, text: str) -> bool:
        word = text.strip().lower()
        if word not in ("true", "false"):
            raise ValueError(text)
        return word == "true"

    def print(self, value: bool) -> str:
        return "true" if value else "false"


class OneOf(NamedTuple):
    words: tuple[str, ...]

    @property
    def valid(self) -> str:
        return "one of " + ", ".join(self.words)

    def parse(self, text: str) -> str:
        word = text.strip()
        if word not in self.words:
            raise ValueError(text)
        return word

    def print(self, value: str) -> str:
        return value


class TimestampTypeChoice:
    @property
    def valid(self) -> str:
        return "one of " + ", ".join(choice.label for choice in TimestampType)

    def parse(self, text: str) -> TimestampType:
        word = text.strip()
        for choice in TimestampType:
            if choice.label == word:
                return choice
        raise ValueError(text)

    def print(self, value: TimestampType) -> str:
        return value.label


class WordList(NamedTuple):
    """A comma-separated list of words from a fixed set, each at most once; the list may be empty."""

    words: tuple[str, ...]

    @property
    def valid(self) -> str:
        return "a comma-separated list of " + ", ".join(self.words) + ", each at most once, or nothing"

    def parse(self, text: str) -> tuple[str, ...]:
        items = split_list(text)
        if len(set(items)) != len(items) or any(item not in self.words for item in items):
            raise ValueError(text)
        return items

    def print(self, value: tuple[str, ...]) -> str:
        return ",".join(value)


class ThrottledReplicas:
    """`*`, empty text, or comma-separated `partition:broker` pairs."""

    @property
    def valid(self) -> str:
        return "nothing, *, or a comma-separated list of partition:broker"

    def parse(self, text: str) -> tuple[str, ...]:
        items = split_list(text)
        if items != ("*",) and not all(re.fullmatch(_THROTTLED_REPLICA, item) for item in items):
            raise ValueError(text)
        return items

    def print(self, value: tuple[str, ...]) -> str:
        return ",".join(value)


class Text:
    @property
    def valid(self) -> str:
        return "any text"

    def parse(self, text: str) -> str:
        return text.strip()

    def print(self, value: str) -> str:
        return value


def read_value(name: str, text: str, kind: ValueKind) -> Any:
    """Parse a setting's value. The error InvalidConfigError has `name`, the value, and the valid values."""
    try:
        return kind.parse(text)
    except ValueError:
        raise InvalidConfigError(f"{name}={text}: must be {kind.valid}") from None


def split_list(text: str) -> tuple[str, ...]:
    """Return the items of a comma-separated list, without blanks around them; blank text has no items."""
    stripped = text.strip()
    return tuple(item.strip() for item in stripped.split(",")) if stripped else ()
