"""Offsets as JSON, in the form of Spark's Kafka connector, and the bounds of a query.

{"orders": {"0": 23, "1": -1}, "payments": {"0": -2}}        -2 earliest, -1 latest; in streams the next offset
{"orders": [0, 1], "payments": [0]}                          partitions, for `assign`

A stream's checkpoint has the topics' ids as well, under names that no topic can have and without a partition:

{"orders": {"0": 23}, "orders@1EvPSKI_SvihSIy3lMKMvg": {}}

The connector reads such a name as a topic of which it knows no partition, so that a checkpoint moves between the two
formats; what it writes itself, and what was written before there were ids, is read as a state without them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from topicfs.pipeline.errors import InvalidOptionError
from topicfs.storage.model import TopicPartition

EARLIEST = -2
LATEST = -1

StreamOffset: TypeAlias = dict[str, dict[str, int]]
"""A checkpoint's form: topic, partition, next offset; and the topics' ids."""

Offsets: TypeAlias = dict[TopicPartition, int]
"""The next offset a partition."""

_BEFORE_ID = "@"
"""A character that no topic's name has."""


class StreamState(NamedTuple):
    offsets: Offsets
    topic_ids: dict[str, str]
    """The topics' ids, as far as they are known."""


class Everywhere(NamedTuple):
    """The same end of every partition: EARLIEST or LATEST."""

    offset: int


class AtOffsets(NamedTuple):
    """An offset a partition, EARLIEST and LATEST among them."""

    offsets: Mapping[TopicPartition, int]


class AtTimestamp(NamedTuple):
    """The first record at or after a time, in milliseconds, of every partition; EARLIEST and LATEST are none."""

    timestamp: int


class AtTimestamps(NamedTuple):
    """The same with a time a partition."""

    timestamps: Mapping[TopicPartition, int]


Bound: TypeAlias = Everywhere | AtOffsets | AtTimestamp | AtTimestamps
"""The beginning or the end of a query."""


def parse_partition_numbers(text: str, *, option: str) -> dict[TopicPartition, int]:
    """Read `{"topic": {"0": 23}}` (InvalidOptionError)."""
    example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    content = _object(text, option=option, example=example)
    found = {}
    for topic, numbers in content.items():
        if not isinstance(numbers, dict):
            raise _unexpected(text, option, example)
        for partition, number in numbers.items():
            if not partition.isdecimal() or isinstance(number, bool) or not isinstance(number, int):
                raise _unexpected(text, option, example)
            found[TopicPartition(topic, int(partition))] = number
    return found


def parse_assignment(text: str) -> frozenset[TopicPartition]:
    """Read `{"topic": [0, 1]}` (InvalidOptionError)."""
    example = '{"topicA":[0,1],"topicB":[2,4]}'
    found = set()
    for topic, numbers in _object(text, option="assign", example=example).items():
        if not isinstance(numbers, list):
            raise _unexpected(text, "assign", example)
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int):
                raise _unexpected(text, "assign", example)
            found.add(TopicPartition(topic, number))
    return frozenset(found)


def _object(text: str, *, option: str, example: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError:
        raise _unexpected(text, option, example) from None
    if not isinstance(content, dict):
        raise _unexpected(text, option, example)
    return content


def _unexpected(text: str, option: str, example: str) -> InvalidOptionError:
    return InvalidOptionError(f"{option}: expected e.g. {example}, got {text}")


def encode_stream_offset(state: StreamState) -> StreamOffset:
    content: StreamOffset = {}
    for topic, partition in sorted(state.offsets):
        content.setdefault(topic, {})[str(partition)] = state.offsets[TopicPartition(topic, partition)]
    return content | {f"{topic}{_BEFORE_ID}{one}": {} for topic, one in sorted(state.topic_ids.items())}


def decode_stream_offset(content: Mapping[str, Mapping[str, int]]) -> StreamState:
    offsets = {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, numbers in content.items()
        for partition, offset in numbers.items()
    }
    named = (name.partition(_BEFORE_ID) for name in content)
    return StreamState(offsets, {topic: one for topic, found, one in named if found})
