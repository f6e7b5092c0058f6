"""Makes partitions full of `lines` quickly, through the engine and its codec."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lines import BLOCK, LINE_BYTES
from topicfs.coordination.engine import Engine
from topicfs.replication import open_engine
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.engine import Partition
from topicfs.storage.model import Timestamp

APPEND_BYTES = 4 * 2**20
"""Approximate size of the text of one append, less than a segment."""

START_TIME = Timestamp(1_700_000_000_000)
"""Timestamp of the first batch."""
BATCH_MS = 1000
"""Milliseconds from one batch to the next."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a partition's batches."""

    name: str
    lines_in_batch: int

    @property
    def batch_text_bytes(self) -> int:
        return self.lines_in_batch * LINE_BYTES


SIXTEEN_KIB = Shape("16 KiB batches", 160)
ONE_RECORD = Shape("one-record batches", 1)
"""Batches like those of `echo line >> log`."""


def batches(text_bytes: int, shape: Shape) -> Iterator[bytearray]:
    """Encode `text_bytes` of lines, rounded up to whole batches. Yield one buffer for each append."""
    piece = shape.batch_text_bytes
    timestamp, position = START_TIME, 0
    source = memoryview(BLOCK * 2)
    assert piece <= len(BLOCK)
    while position < text_bytes:
        append = bytearray()
        end = min(position + APPEND_BYTES, text_bytes)
        while position < end:
            place = position % len(BLOCK)
            (batch,) = encode_lines(source[place : place + piece], timestamp=timestamp)
            append += batch
            position += piece
            timestamp = Timestamp(timestamp + BATCH_MS)
        yield append


def filled(engine: Engine, topic: str, text_bytes: int, shape: Shape) -> Partition:
    """Create a topic with one partition, and fill it with `text_bytes`, rounded up to whole batches."""
    partition = engine.create_topic(topic, partitions=1).partitions()[0]
    for append in batches(text_bytes, shape):
        partition.append(append, encoded_here=True)
    return partition


def data_directory(directory: Path, topics: dict[str, tuple[int, Shape]]) -> Path:
    """Make a data directory with these topics, and close it cleanly; `topics` has text size and batch shape by name."""
    directory.mkdir(parents=True, exist_ok=True)
    with closing(open_engine(directory)) as engine:
        for topic, (text_bytes, shape) in topics.items():
            filled(engine, topic, text_bytes, shape)
    return directory


def whole_batches(text_bytes: int, shape: Shape) -> int:
    """Return `text_bytes` rounded up to whole batches, as `filled` writes them."""
    return -(-text_bytes // shape.batch_text_bytes) * shape.batch_text_bytes
