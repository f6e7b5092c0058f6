"""Offsets as JSON, in the form of Spark's Kafka connector, and the bounds of a query.

    {"orders": {"0": 23, "1": -1}, "payments": {"0": -2}}        -2 earliest, -1 latest; in streams the next offset
    {"orders": [0, 1], "payments": [0]}                          partitions, for `assign`

A stream's checkpoint also contains the topics' IDs, in names that no topic can have and without partitions:

    {"orders": {"0": 23}, "orders@1EvPSKI_SvihSIy3lMKMvg": {}}

The connector reads such a name as a topic without known partitions, so that a job can change the format and keep its
checkpoint. Checkpoints of the connector, and old checkpoints, contain no IDs and can also be read.
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
"""The form of a checkpoint: topic, partition, next offset; and the topics' IDs."""

Offsets: TypeAlias = dict[TopicPartition, int]
"""The next offset of each partition."""

_BEFORE_ID = "@"
"""Separates a topic's name from its ID, because names of topics cannot contain it."""


class StreamState(NamedTuple):
    offsets: Offsets
    topic_ids: dict[str, str]
    """The known IDs of topics, by name."""


class Everywhere(NamedTuple):
    """The same bound for every partition: EARLIEST or LATEST."""

    offset: int


class AtOffsets(NamedTuple):
    """An offset for each partition, which may be EARLIEST or LATEST."""

    offsets: Mapping[TopicPartition, int]


class AtTimestamp(NamedTuple):
    """The first record at or after a time (ms), for every partition; EARLIEST and LATEST keep their meaning."""

    timestamp: int


class AtTimestamps(NamedTuple):
    """Like `AtTimestamp`, with a time for each partition."""

    timestamps: Mapping[TopicPartition, int]


Bound: TypeAlias = Everywhere | AtOffsets | AtTimestamp | AtTimestamps
"""Where a query begins or ends."""


def parse_partition_numbers(text: str, *, option: str) -> dict[TopicPartition, int]:
    """Parse `{"topic": {"0": 23}}`. Raises InvalidOptionError."""
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
    """Parse `{"topic": [0, 1]}`. Raises InvalidOptionError."""
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
