"""Makes a topic quickly, with the codec that all writers use. The records have keys, and their times span some days."""

from __future__ import annotations

from array import array
from contextlib import closing
from pathlib import Path

from topicfs.replication import open_engine
from topicfs.storage.codec.batch_writer import encode_columns
from topicfs.storage.codec.columns import Columns
from topicfs.storage.codec.headers import Batches

TOPIC = "orders"
PARTITIONS = 4
KEY_BYTES, VALUE_BYTES = 16, 100
BLOCK_RECORDS = 50_000
"""Number of records per append to a partition; all blocks have the same keys and values."""
BATCH_BYTES = 16 * 2**10
START_TIME = 1_700_000_000_000
DAYS = 3
DAY_MS = 24 * 3600 * 1000
SETTINGS = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Without these settings a broker would delete the records, because they are old."""


def make_topic(directory: Path, records: int) -> int:
    """Write a data directory with about `records` records, in whole blocks per partition; return their exact number."""
    rounds = -(-records // (BLOCK_RECORDS * PARTITIONS))
    step_ms = max(1, DAYS * DAY_MS // (rounds * BLOCK_RECORDS))
    directory.mkdir(parents=True)
    with closing(open_engine(directory)) as engine:
        partitions = engine.create_topic(TOPIC, partitions=PARTITIONS, overrides=SETTINGS).partitions()
        data = _data()
        for number in range(rounds):
            columns = _block(data, START_TIME + number * BLOCK_RECORDS * step_ms, step_ms)
            batches = b"".join(encode_columns(columns, max_batch_bytes=BATCH_BYTES))
            for partition in partitions.values():
                partition.append(bytearray(batches), encoded_here=True)
    return rounds * BLOCK_RECORDS * PARTITIONS


def _data() -> bytes:
    """Return key and value of each record of a block, one after the other."""
    padding = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" * 2
    return b"".join(
        b"key-%012d" % (number % 997) + (b"%010d " % number + padding)[:VALUE_BYTES]
        for number in range(BLOCK_RECORDS)
    )


def _block(data: bytes, start_time: int, step_ms: int) -> Columns:
    """Return the records of a block, with timestamps `step_ms` apart."""
    count, size = BLOCK_RECORDS, KEY_BYTES + VALUE_BYTES
    columns = (
        range(count),
        range(start_time, start_time + count * step_ms, step_ms),
        range(0, count * size, size),
        [KEY_BYTES] * count,
        range(KEY_BYTES, KEY_BYTES + count * size, size),
        [VALUE_BYTES] * count,
        [0] * count,
        [0] * count,
    )
    block = array("q")
    for column in columns:
        block.extend(column)
    return Columns(memoryview(data), memoryview(block), count, Batches(memoryview(array("q")), 0))
