"""Three codecs of Kafka's record batches with the same methods: topicfs, kafka-python and aiokafka (compiled).

All of them write batches of format v2 without keys, headers or compression, and verify each checksum before they read
a batch.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from benchmarks import lines
from benchmarks.frame.question import OURS
from benchmarks.partitions import START_TIME
from topicfs.fusefs.forms.values import VALUES
from topicfs.pipeline.source.arrow import record_batch
from topicfs.pipeline.source.arrow_buffers import ColumnRange
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.model import TopicPartition

SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
PARTITION = TopicPartition("bench", 0)
EVERYTHING = 2**62
"""An offset above that of every record."""
MAX_BATCH_BYTES = 2**20


class MeasuredCodec(Protocol):
    """The measured methods of a codec. A text consists of whole lines, each of which becomes a record."""

    name: str

    def encode(self, texts: Sequence[bytes]) -> bytes:
        """Return a batch for each text."""

    def to_text(self, batches: bytes) -> bytes:
        """Return the lines of all batches."""

    def to_columns(self, batches: bytes) -> Any:
        """Return a pyarrow table with each record's offset and value."""


class Topicfs:
    """The codec of topicfs."""

    name = OURS

    def encode(self, texts: Sequence[bytes]) -> bytes:
        return b"".join(
            batch
            for text in texts
            for batch in encode_lines(text, timestamp=START_TIME, max_batch_bytes=MAX_BATCH_BYTES)
        )

    def to_text(self, batches: bytes) -> bytes:
        return b"".join(
            VALUES.render(columns, TopicPartition("bench", 0), 0, EVERYTHING) for columns in decode(batches)
        )

    def to_columns(self, batches: bytes) -> Any:
        parts = [ColumnRange(columns, 0, len(columns)) for columns in decode(batches)]
        return pa.Table.from_batches([record_batch(parts, partition=PARTITION, schema=SCHEMA)])


class ObjectCodec:
    """The codec of kafka-python or of aiokafka, which have the same methods. Both make an object for each record."""

    def __init__(self, name: str, package: str) -> None:
        self.name = name
        records = importlib.import_module(f"{package}.record.default_records")
        self._builder: Any = records.DefaultRecordBatchBuilder
        self._memory: Any = importlib.import_module(f"{package}.record.memory_records").MemoryRecords

    def encode(self, texts: Sequence[bytes]) -> bytes:
        batches = []
        for text in texts:
            builder = self._builder(
                magic=2,
                compression_type=0,
                is_transactional=0,
                producer_id=-1,
                producer_epoch=-1,
                base_sequence=-1,
                batch_size=MAX_BATCH_BYTES,
            )
            for offset, value in enumerate(text[:-1].split(b"\n")):
                builder.append(offset, START_TIME, None, value, [])
            batches.append(bytes(builder.build()))
        return b"".join(batches)

    def _records(self, data: bytes) -> Any:
        batches = self._memory(data)
        while batch := batches.next_batch():
            if not batch.validate_crc():
                raise ValueError("a batch's checksum is wrong")
            yield from batch

    def to_text(self, batches: bytes) -> bytes:
        return b"\n".join([record.value for record in self._records(batches)]) + b"\n"

    def to_columns(self, batches: bytes) -> Any:
        found = [(record.offset, record.value) for record in self._records(batches)]
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*found, strict=True), SCHEMA, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)


KAFKA_PYTHON, AIOKAFKA = "kafka-python", "aiokafka"


def codecs() -> tuple[MeasuredCodec, ...]:
    """Return the three codecs. Raises ImportError if a library is missing."""
    return Topicfs(), ObjectCodec(KAFKA_PYTHON, "kafka"), ObjectCodec(AIOKAFKA, "aiokafka")


def texts(count: int, text_bytes: int) -> list[bytes]:
    """Return texts of whole lines; each text is for one batch."""
    size = text_bytes // lines.LINE_BYTES * lines.LINE_BYTES
    return [lines.text(size, number * size) for number in range(count)]
