"""The kinds of values settings have: how each is read from text, checked and printed, as Kafka's ConfigDef does.

Blanks around values are dropped, numbers are Java's decimal form, and only truth values ignore case.
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
    """Reads, checks and prints the values of one sort of setting."""

    @property
    def valid(self) -> str:
        """The valid values, as the tail of an error: `a whole number from 0 to 10`."""

    def parse(self, text: str) -> Any:
        """Raise ValueError for text that is no valid value."""

    def print(self, value: Any) -> str:
        """Return Kafka's spelling of `value`; `parse` reads it back."""


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
    """A whole number, or one that stands apart from its range and has a meaning of its own."""

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
    """A whole number that need not be set: None prints as nothing, and nothing reads as None."""

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
    __slots__ = ()

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
    __slots__ = ()

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
    """Any of a few words, comma-separated, each at most once; nothing at all is allowed too."""

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
    """`*`, nothing, or `partition:broker` pairs, comma-separated."""

    __slots__ = ()

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
    __slots__ = ()

    @property
    def valid(self) -> str:
        return "any text"

    def parse(self, text: str) -> str:
        return text.strip()

    def print(self, value: str) -> str:
        return value


def read_value(name: str, text: str, kind: ValueKind) -> Any:
    """Read a setting's value. Raises InvalidConfigError with its `name`, the value and what is valid."""
    try:
        return kind.parse(text)
    except ValueError:
        raise InvalidConfigError(f"{name}={text}: must be {kind.valid}") from None


def split_list(text: str) -> tuple[str, ...]:
    """Return the items of a comma-separated list, blanks around them dropped; blank text has none."""
    stripped = text.strip()
    return tuple(item.strip() for item in stripped.split(",")) if stripped else ()
