"""Tests that tasks compress the records they stage, and that the owner appends these bytes unchanged."""

from __future__ import annotations

import pickle
from contextlib import closing

import pytest

from topicfs.pipeline.sink.commit_request import CommitRequest, staging_area
from topicfs.pipeline.sink.layout import read_layout
from topicfs.replication import open_engine
from topicfs.storage.codec.batch import read_header, scan
from topicfs.storage.codec.binary.fields import CODEC_MASK, HEADER_SIZE
from topicfs.storage.codec.headers import Codec
from topicfs.storage.disk.names import WriteId
from topicfs.storage.model import Offset
from topicfs.storage.staging.staged_file import read_frames

pytestmark = pytest.mark.spark

WRITE = WriteId("0d9ec173")


@pytest.mark.parametrize(
    ("settings", "codec"),
    [
        ({}, Codec.NONE),
        ({"compression.type": "uncompressed"}, Codec.NONE),
        ({"compression.type": "gzip", "compression.gzip.level": "9"}, Codec.GZIP),
        ({"compression.type": "snappy"}, Codec.SNAPPY),
        ({"compression.type": "lz4"}, Codec.LZ4),
        ({"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"}, Codec.ZSTD),
        ({"compression.type": "zstd", "cleanup.policy": "compact"}, Codec.ZSTD),
    ],
    ids=str,
)
def test_the_records_in_the_log_are_the_bytes_that_the_task_compressed(tmp_path, settings, codec):
    """The owner compresses no batch a second time, whatever the topic's codec, level and other settings are."""
    import pyarrow as pa

    from topicfs.pipeline.sink.rows import RowEncoder

    data = tmp_path / "data"
    with closing(open_engine(data)) as engine:
        engine.create_topic("orders", overrides=settings)
    area = staging_area([data])
    layout = pickle.loads(pickle.dumps(read_layout([data])))
    rows = pa.record_batch({"key": [b"k"] * 500, "value": [b"value %d" % one for one in range(500)]})
    writer = area.stage(WRITE, 0)
    for partition, batch in RowEncoder(layout, "orders", now_ms=lambda: 1_700_000_000_000).encode(rows):
        writer.append(partition, batch)
    staged = writer.finish()
    (frame,) = read_frames(data / staged.name, area.files)
    assert codec == read_header(frame.batch).attributes & CODEC_MASK
    CommitRequest([data], WRITE, [staged]).commit(250)
    with closing(open_engine(data, read_only=True)) as engine:
        batches = bytes(engine.partition("orders", 0).read(Offset(0), max_bytes=1 << 20).data)
    (header,) = scan(batches)
    assert codec == header.attributes & CODEC_MASK
    assert bytes(frame.batch[HEADER_SIZE:]) == batches[HEADER_SIZE:]
