"""Offsets as JSON, in the form of Spark's Kafka connector, and what a query may say of its ends.

{"orders": {"0": 23, "1": -1}, "payments": {"0": -2}}        -2 earliest, -1 latest; in streams the next offset
{"orders": [0, 1], "payments": [0]}                          partitions, for `assign`
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from pipeline.errors import InvalidOptionError
from storage.model import TopicPartition

EARLIEST = -2
LATEST = -1

StreamOffset: TypeAlias = dict[str, dict[str, int]]
"""What Spark keeps in a checkpoint: topic, partition, next offset."""


class Everywhere(NamedTuple):
    """The same end of every partition: EARLIEST or LATEST."""

    offset: int


class AtOffsets(NamedTuple):
    """An offset a partition, EARLIEST and LATEST among them."""

    offsets: Mapping[TopicPartition, int]


class AtTime(NamedTuple):
    """The first record at or after a time, in milliseconds, of every partition; EARLIEST and LATEST are none."""

    timestamp: int


class AtTimes(NamedTuple):
    """The same with a time a partition."""

    timestamps: Mapping[TopicPartition, int]


Bound: TypeAlias = Everywhere | AtOffsets | AtTime | AtTimes
"""Where a query begins or ends."""


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


def encode_stream_offset(offsets: Mapping[TopicPartition, int]) -> StreamOffset:
    """Give a checkpoint's form of next offsets, topics and partitions ascending."""
    content: StreamOffset = {}
    for topic, partition in sorted(offsets):
        content.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return content


def decode_stream_offset(content: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Read a checkpoint's form."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, numbers in content.items()
        for partition, offset in numbers.items()
    }
