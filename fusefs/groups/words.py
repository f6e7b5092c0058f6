"""Commands that programs write to an open file of a group or a queue, about the records that they have read."""

from __future__ import annotations

import re
from typing import NamedTuple

from topicfs.coordination.share_groups import Acknowledgement, RecordName, parse_record_name
from topicfs.storage.errors import InvalidConfigError, InvalidNameError
from topicfs.storage.model import Offset, TopicPartition

MAX_COMMAND_LINE_BYTES = 1024
"""Largest size of a line."""

_COMMIT = re.compile(r"commit(?:\s+(?:(?P<topic>\S+)-(?P<partition>\d{1,9})\s+)?(?P<offset>\d{1,18}))?")


class CommitWord(NamedTuple):
    """A `commit` line."""

    partition: TopicPartition | None = None
    """The partition to commit; None: the partition read last."""
    offset: Offset | None = None
    """Offset of the next record to read; None: all delivered records of all partitions are done."""


def whole_lines(begun: bytes, data: bytes) -> tuple[list[bytes], bytes]:
    """Split `begun` (an incomplete line) and `data` into whole lines and a remainder. Raises InvalidConfigError."""
    *lines, rest = (begun + data).split(b"\n")
    if len(rest) > MAX_COMMAND_LINE_BYTES:
        raise InvalidConfigError(f"a line of more than {MAX_COMMAND_LINE_BYTES} bytes is not a command")
    return [line for line in lines if line.strip()], rest


def parse_commit(line: bytes) -> CommitWord:
    """Parse a line. Raises InvalidConfigError."""
    text = line.decode("utf-8", "backslashreplace").strip()
    found = _COMMIT.fullmatch(text)
    if found is None:
        raise InvalidConfigError(
            f"{text}: not a command; write `commit`, `commit OFFSET` or `commit TOPIC-PARTITION OFFSET`"
        )
    offset = None if found["offset"] is None else Offset(int(found["offset"]))
    if found["topic"] is None:
        return CommitWord(None, offset)
    return CommitWord(TopicPartition(found["topic"], int(found["partition"])), offset)


class QueueWord(NamedTuple):
    """A command line for a queue."""

    acknowledgement: Acknowledgement
    record_name: RecordName | None = None
    """The record's name in `in-flight`; None: the record read last."""


def parse_word(line: bytes) -> QueueWord:
    """Parse `accept`, or `accept orders-0-42`. Raises InvalidConfigError."""
    word, _, name = line.decode("utf-8", "backslashreplace").strip().partition(" ")
    try:
        record_name = parse_record_name(name.strip()) if name.strip() else None
        return QueueWord(Acknowledgement[word.upper()], record_name)
    except (KeyError, InvalidNameError):
        raise InvalidConfigError(
            f"{word} {name}".strip()
            + ": not a command; write accept, release, reject or renew, and a record's name if needed"
        ) from None
