"""Writes the segments and indexes with which well-known articles explain how Kafka finds a record.

    python examples/article_segments.py DIRECTORY

DIRECTORY becomes a data directory like one after a clean shutdown. docs/walkthrough.md looks up records in it:

    topicfs explain --data DIRECTORY offset-140/0/140

Each topic has one partition. The sizes of its records make every batch begin where the article says. The partition
__consumer_offsets-31 has the three states of a group that articles show as a dump. To create data directories for
real use, run `topicfs mount` or `topicfs topics create`; this program uses modules that may change.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from topicfs.coordination.records.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, write_versioned
from topicfs.coordination.records.group_records import write_group
from topicfs.storage.codec.batch import assign_offsets
from topicfs.storage.codec.records import encode
from topicfs.storage.model import Offset, Record, Timestamp

CREATED = Timestamp(1_700_000_000_000)
GROUP = "test-consumer-group"
GROUP_PARTITION = "__consumer_offsets-31"
MEMBER = f"consumer-{GROUP}-1-9f58b7a6-0b3d-4c51-a2a4-5d1f0e7c9b33"


class Filled(NamedTuple):
    """A batch of the example, by its first and last offset and by the position in the segment where it ends.

    The batch has a record for each offset from the first to the last, unless it is `compacted`.
    """

    first_offset: int
    last_offset: int
    end_position: int
    compacted: bool = False
    """True if only the first and the last offset have a record."""


class Segment(NamedTuple):
    """The batches of a segment, and its offset index entries: relative offset and position."""

    batches: Sequence[Filled]
    index_entries: Sequence[tuple[int, int]] = ()


TOPICS: Mapping[str, Mapping[int, Segment]] = {
    "offset-140": {
        0: Segment([Filled(0, 128, 4146), Filled(129, 129, 4300), Filled(130, 145, 4800)], [(129, 4146)]),
        100_000: Segment([Filled(100_000, 100_001, 300)]),
    },
    "offset-368": {
        0: Segment([Filled(0, 299, 5000)]),
        300: Segment(
            [Filled(300, 367, 299, compacted=True), Filled(368, 368, 400), Filled(369, 599, 6000)],
            [(68, 299)],
        ),
        600: Segment([Filled(600, 700, 3000)]),
    },
    "offset-368776": {
        368_769: Segment(
            [Filled(368_769, 368_774, 1407), Filled(368_775, 368_775, 1508), Filled(368_776, 368_776, 1700)],
            [(6, 1407)],
        )
    },
    "offset-7": {
        0: Segment(
            [Filled(0, 3, 4597), Filled(4, 5, 9807), Filled(6, 6, 10_100), Filled(7, 9, 10_400)],
            [(3, 0), (5, 4597), (6, 9807)],
        )
    },
}


def main(directory: str) -> None:
    """Write everything. An existing directory is refused."""
    data = Path(directory)
    data.mkdir()
    ends = {f"{topic}-0": write_topic(data / f"{topic}-0", segments) for topic, segments in TOPICS.items()}
    ends[GROUP_PARTITION] = write_group_states(data / GROUP_PARTITION)
    write_marks(data, ends)


def write_topic(partition: Path, segments: Mapping[int, Segment]) -> int:
    """Write the segments of a partition, and return its end offset."""
    end = 0
    for base_offset, segment in segments.items():
        log = bytearray()
        for filled in segment.batches:
            log += batch_of_size(filled, filled.end_position - len(log))
            end = filled.last_offset + 1
        write_segment(partition, base_offset, bytes(log), segment)
    return end


def batch_of_size(filled: Filled, size: int) -> bytearray:
    """Return a batch of exactly `size` bytes, with a last value of the length that is needed for this size."""
    shortest = len(_batch(filled, 0))
    # The length fields of a longer value can take up to eight more bytes.
    for length in range(max(0, size - shortest - 8), size - shortest + 1):
        batch = _batch(filled, length)
        if len(batch) == size:
            return batch
    raise ValueError(f"{filled} cannot have {size} bytes")


def _batch(filled: Filled, length: int) -> bytearray:
    first, last = filled.first_offset, filled.last_offset
    values = dict.fromkeys((first, last) if filled.compacted else range(first, last + 1), b"v")
    values[last] = b"v" * length
    return encoded([Record(Offset(offset), CREATED, None, value) for offset, value in values.items()])


def encoded(records: Sequence[Record]) -> bytearray:
    """Return one batch of records with given offsets, as a leader with epoch 0 would append it."""
    batch = encode(records)
    assign_offsets(batch, 0, base_offset=records[0].offset, leader_epoch=0)
    return batch


def write_segment(partition: Path, base_offset: int, log: bytes, segment: Segment) -> None:
    """Write the log, both indexes, and the two small files of a partition."""
    partition.mkdir(exist_ok=True)
    name = f"{base_offset:020}"
    largest_time = _number(CREATED, 8) + _number(segment.batches[0].last_offset - base_offset, 4)
    (partition / f"{name}.log").write_bytes(log)
    (partition / f"{name}.index").write_bytes(
        b"".join(_number(n, 4) for entry in segment.index_entries for n in entry)
    )
    (partition / f"{name}.timeindex").write_bytes(largest_time)
    first = min(int(path.stem) for path in partition.glob("*.log"))
    (partition / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {first}\n")
    (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(partition.name)}")


def _number(number: int, size: int) -> bytes:
    return number.to_bytes(size, "big")


def topic_id(partition: str) -> str:
    """Return an ID of 22 base64url characters, different for each topic."""
    return base64.urlsafe_b64encode(hashlib.blake2b(partition.encode(), digest_size=16).digest())[
        :22
    ].decode()


def write_group_states(partition: Path) -> int:
    """Write three states of a group: with one member, with this member in the next generation, and without members."""
    log = bytearray()
    for offset, state in enumerate(group_states()):
        log += encoded([Record(Offset(offset), CREATED, *write_group(GROUP, state))])
    write_segment(partition, 0, bytes(log), Segment([Filled(0, 0, 375)]))
    return offset + 1


def group_states() -> Iterator[dict[str, object]]:
    """Yield the values that the coordinator writes at each change of the group."""
    member = {
        "memberId": MEMBER,
        "clientId": f"consumer-{GROUP}-1",
        "clientHost": "/172.17.0.1",
        "rebalanceTimeout": 300_000,
        "sessionTimeout": 10_000,
        "subscription": write_versioned(SUBSCRIPTION, {"topics": ["hello"], "ownedPartitions": []}, 1),
        "assignment": write_versioned(
            ASSIGNMENT, {"assignedPartitions": [{"topic": "hello", "partitions": [0]}]}, 1
        ),
    }
    group = {"protocolType": "consumer", "currentStateTimestamp": CREATED}
    for generation in (1, 2):
        yield group | {"generation": generation, "protocol": "range", "leader": MEMBER, "members": [member]}
    yield group | {"generation": 3, "protocol": None, "leader": None, "members": []}


def write_marks(data: Path, ends: Mapping[str, int]) -> None:
    """Write the files of a clean shutdown, so that indexes are trusted and no log is recovered."""
    (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    (data / "meta.properties").write_text("version=1\ncluster.id=_uqHDrtZRiWyQpGqbURDug\nnode.id=1\n")
    lines = [f"{name.rpartition('-')[0]} {name.rpartition('-')[2]} {end}" for name, end in ends.items()]
    checkpoint = "".join(f"{line}\n" for line in ("0", len(lines), *lines))
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data / name).write_text(checkpoint)


if __name__ == "__main__":
    main(*sys.argv[1:])
