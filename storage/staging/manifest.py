"""The manifest of a write: its staged files and, once appending began, what is needed to continue.

    {"version": 1, "files": [{"name": …, "size": …, "checksum": …}], "content": "50:9f86d081884c7d65",
     "begun": {"producer_id": …, "epoch": …, "end_offsets": {"orders-0": 12}, "topic_ids": {"orders": …}}}

The files are listed in append order. `begun` is on disk before the first record is appended. A process that continues
the write finds the appended records by their producer, at or above the stored log ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Offset, ProducerId, TopicPartition
from topicfs.storage.staging.staged_file import StagedFile


class NewTopic(NamedTuple):
    """A topic that is made if there is no topic of that name."""

    partitions: int
    overrides: Mapping[str, str]


class LogPlacement(NamedTuple):
    """The placement of one partition's batches."""

    end: Offset
    """The log end that is required before the first batch is appended."""
    start: Offset | None = None
    """The log start to set, for which the log must be empty. None: the log start does not change."""

    @property
    def first(self) -> Offset:
        """The lowest offset that a batch may have."""
        return self.end if self.start is None else self.start


class Placement(NamedTuple):
    """The offsets at which a write's batches go into the logs. Immutable.

        "placement": {"topics": {"orders": {"partitions": 4, "overrides": {…}}},
                      "partitions": {"orders-0": {"end": 0, "start": 17}, "clicks-0": {"end": 12}}}

    Batches of other writes get their offsets from the log; these batches keep their own. Each batch is at or above
    the end that its log had when the write was prepared. Gaps between batches stay gaps. An empty log may begin at
    the offset of the first batch.
    """

    topics: Mapping[str, NewTopic]
    partitions: Mapping[TopicPartition, LogPlacement]


def placement_as_json(placement: Placement) -> dict[str, Any]:
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
    """Parse the placement in a manifest. Raises ValueError, KeyError, TypeError, AttributeError."""
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


VERSION = 1
PLACED_VERSION = 2
"""The version of a manifest with a placement; an owner that does not support placements refuses this version."""


class Content(NamedTuple):
    """The number of a write's records, and the sum of their digests, which depends neither on order nor on tasks."""

    records: int = 0
    digest: int = 0
    """The sum of the digests, modulo 2^64."""

    def plus(self, other: Content) -> Content:
        return Content(self.records + other.records, (self.digest + other.digest) % 2**64)

    def __str__(self) -> str:
        return f"{self.records}:{self.digest:016x}"

    @classmethod
    def of(cls, text: str) -> Content:
        """Parse the text that `str` returns for a Content. Raises ValueError."""
        records, digest = text.split(":")
        return cls(int(records), int(digest, 16))


class BegunAppend(NamedTuple):
    """The producer and the log ends of a write that has begun to be appended."""

    producer_id: ProducerId
    epoch: int
    end_offsets: Mapping[TopicPartition, Offset]
    """The log ends before the write's first record; they are flushed to disk."""
    topic_ids: Mapping[str, str] = MappingProxyType({})
    """The topic IDs by name. A topic of the same name with another ID is another topic."""


class Manifest(NamedTuple):
    files: tuple[StagedFile, ...]
    begun: BegunAppend | None = None
    placement: Placement | None = None
    """None if the batches are appended at the log ends."""
    content: Content | None = None
    """A digest of the rows. None if it was not computed, because the write has no name."""


def encode_manifest(manifest: Manifest) -> bytes:
    content: dict[str, Any] = {"version": VERSION, "files": [file._asdict() for file in manifest.files]}
    if manifest.placement is not None:
        content |= {"version": PLACED_VERSION, "placement": placement_as_json(manifest.placement)}
    if manifest.content is not None:
        content["content"] = str(manifest.content)
    if manifest.begun is not None:
        content["begun"] = {
            "producer_id": manifest.begun.producer_id,
            "epoch": manifest.begun.epoch,
            "end_offsets": {str(one): end for one, end in manifest.begun.end_offsets.items()},
            "topic_ids": dict(manifest.begun.topic_ids),
        }
    return json.dumps(content, indent=1).encode() + b"\n"


def decode_manifest(data: bytes, *, file: Path) -> Manifest:
    """Parse the file's bytes; raises CorruptionError."""
    try:
        content = json.loads(data)
        expected = PLACED_VERSION if "placement" in content else VERSION
        if content["version"] != expected:
            raise CorruptionError(file, 0, f"version {content['version']}, expected {expected}")
        placement = placement_from_json(content["placement"]) if "placement" in content else None
        staged = tuple(
            StagedFile(_plain_name(one["name"]), int(one["size"]), int(one["checksum"]))
            for one in content["files"]
        )
        return Manifest(
            staged,
            _begun(content["begun"]) if "begun" in content else None,
            placement,
            Content.of(content["content"]) if "content" in content else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(file, 0, f"not the manifest of a write: {error!r}") from None


def _plain_name(name: str) -> str:
    """Return `name`. Raises ValueError if it names a file outside the directory."""
    if Path(name).name != name:
        raise ValueError(f"{name!r} is not the name of a file in the data directory")
    return name


def _begun(content: Mapping[str, Any]) -> BegunAppend:
    ends = {}
    for name, end in content["end_offsets"].items():
        topic, _, number = name.rpartition("-")
        ends[TopicPartition(topic, int(number))] = Offset(int(end))
    ids = {str(topic): str(one) for topic, one in content.get("topic_ids", {}).items()}
    return BegunAppend(ProducerId(int(content["producer_id"])), int(content["epoch"]), ends, ids)
