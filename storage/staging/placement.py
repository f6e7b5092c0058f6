"""The placement of a write whose batches keep their offsets, as part of the manifest.

    "placement": {"topics": {"orders": {"partitions": 4, "overrides": {…}}},
                  "partitions": {"orders-0": {"end": 0, "start": 17}, "clicks-0": {"end": 12}}}

Batches of other writes get their offsets from the log. These have them: each is beyond the end that its log had
when the write was prepared, gaps between them stay gaps, and an empty log may begin where the first one is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from topicfs.storage.model import Offset, TopicPartition


class NewTopic(NamedTuple):
    """A topic that is made where there is none of that name."""

    partitions: int
    overrides: Mapping[str, str]


class LogPlacement(NamedTuple):
    """The placement of the batches for one partition."""

    end: Offset
    """The log end that is required before the first of them."""
    start: Offset | None = None
    """The log start to set; the log must be empty then. None: it stays as it is."""

    @property
    def first(self) -> Offset:
        """The lowest offset of a batch."""
        return self.end if self.start is None else self.start


@dataclass(frozen=True, slots=True)
class Placement:
    """The offsets at which a write's batches go into the logs. Immutable."""

    topics: Mapping[str, NewTopic]
    partitions: Mapping[TopicPartition, LogPlacement]


def placement_as_json(placement: Placement) -> dict[str, Any]:
    """Return the manifest's part."""
    return {
        "topics": {
            name: {"partitions": new.partitions, "overrides": dict(new.overrides)}
            for name, new in placement.topics.items()
        },
        "partitions": {
            str(one): {"end": place.end, **({} if place.start is None else {"start": place.start})}
            for one, place in placement.partitions.items()
        },
    }


def placement_from_json(content: Mapping[str, Any]) -> Placement:
    """Read the manifest's part (ValueError, KeyError, TypeError, AttributeError)."""
    topics = {
        name: NewTopic(int(one["partitions"]), {str(key): str(to) for key, to in one["overrides"].items()})
        for name, one in content["topics"].items()
    }
    partitions = {}
    for name, one in content["partitions"].items():
        topic, _, number = name.rpartition("-")
        start = Offset(int(one["start"])) if "start" in one else None
        partitions[TopicPartition(topic, int(number))] = LogPlacement(Offset(int(one["end"])), start)
    return Placement(topics, partitions)
