"""A group's settings: the one table of their names, defaults and meanings. In Kafka, consumers have these settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, NamedTuple

from topicfs.storage.config.kinds import OneOf, OptionalWholeNumber, int_of_at_least
from topicfs.storage.config.setting import Setting, read_overrides, read_table, row
from topicfs.storage.errors import InvalidConfigError

_DURATION = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:\.(\d{1,9}))?S)?)?",
    re.IGNORECASE,
)
"""ISO 8601 durations as Java's Duration parses them, except negative ones, which Kafka refuses for this setting."""

EARLIEST, LATEST, NONE, BY_DURATION = "earliest", "latest", "none", "by_duration"
ASK, MANUAL = "ask", "manual"
"""Values of `commit`."""


class OffsetReset(NamedTuple):
    """Where a group begins in a partition if it has no position there, or a position outside the log."""

    kind: str
    text: str = ""
    """The duration as the user wrote it, if `kind` is BY_DURATION."""
    milliseconds: int = 0
    """The greatest age of the first record that the group reads, if `kind` is BY_DURATION."""


FROM_THE_EARLIEST = OffsetReset(EARLIEST)


class OffsetResetChoice(NamedTuple):
    words: tuple[str, ...] = (EARLIEST, LATEST, NONE)

    @property
    def valid(self) -> str:
        words = ", ".join(self.words)
        return f"{words}, or by_duration: and a duration, as in by_duration:P1D or by_duration:PT6H"

    def parse(self, text: str) -> OffsetReset:
        word, _, duration = text.strip().partition(":")
        if word in self.words and not _:
            return OffsetReset(word)
        found = _DURATION.fullmatch(duration)
        if word != BY_DURATION or found is None or not any(found.groups()):
            raise ValueError(text)
        days, hours, minutes, seconds, fraction = (group or "0" for group in found.groups())
        whole = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
        return OffsetReset(BY_DURATION, duration, whole * 1000 + int(fraction.ljust(3, "0")[:3]))

    def print(self, value: OffsetReset) -> str:
        return f"{value.kind}:{value.text}" if value.kind == BY_DURATION else value.kind


class GroupConfig(NamedTuple):
    """The settings of a group. Immutable: a change makes a new value."""

    # fmt: off
    assignor: Annotated[str, row("How partitions are assigned to members. With cooperative-sticky, members keep "
        "reading partitions that do not move; with the others, all members give up all partitions first. It "
        "can be changed while the group has no members.",
        OneOf(("cooperative-sticky", "range", "roundrobin", "sticky")), "")] = "cooperative-sticky"
    auto_offset_reset: Annotated[OffsetReset, row("Where the group begins in a partition in which it has no "
        "position, or one out of range: at the earliest record (Kafka's consumer: at the latest), at the "
        "latest, at the first record of a given age, or with none: an error.",
        OffsetResetChoice(), "")] = FROM_THE_EARLIEST
    commit: Annotated[str, row("What moves the positions: with ask, a reader's request for more records, which means "
        "that it has processed the earlier ones; with manual, the reader's own commits.",
        OneOf((ASK, MANUAL)), "")] = ASK
    max_poll_interval_ms: Annotated[int | None, row("How long a reader may keep partitions that others wait for; "
        "empty, the default: without limit (Kafka's consumer: five minutes).",
        OptionalWholeNumber(int_of_at_least(1)), "ms")] = None
    # fmt: on

    @classmethod
    def from_overrides(cls, overrides: Mapping[str, str]) -> GroupConfig:
        """Return the defaults with `overrides` applied. Raises InvalidConfigError for an unknown name or bad value."""
        return cls(**read_overrides(GROUP_SETTINGS, overrides, what="group setting"))


def merge_group_overrides(present: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Apply `changes` to overrides; None removes an override. Raises InvalidConfigError for a bad name or value."""
    merged = dict(present)
    for name, value in changes.items():
        if value is not None:
            merged[name] = value
        elif name in GROUP_SETTINGS:
            merged.pop(name, None)
        else:
            raise InvalidConfigError(f"{name}: no such group setting")
    GroupConfig.from_overrides({name: value for name, value in changes.items() if value is not None})
    return merged


GROUP_SETTINGS: Mapping[str, Setting] = read_table(GroupConfig())
"""Every group setting by its name, in the table's order."""
