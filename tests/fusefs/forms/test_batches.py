"""The form BATCH: which batches a reader gets, and how written batches are converted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.records import batch, marker
from topicfs.fusefs.forms import BATCH, decoder_of
from topicfs.storage.codec.batch import read_header, scan, set_append_time
from topicfs.storage.codec.binary.fields import HIDDEN_MASK
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.headers import BatchStamp, Codec
from topicfs.storage.codec.records import encode
from topicfs.storage.errors import CorruptBatchError, InvalidRecordError, RecordTooLargeError
from topicfs.storage.model import (
    AbortedTransaction,
    Header,
    Offset,
    ProducerId,
    Record,
    Timestamp,
    TopicPartition,
)

LIMIT = 1_000_000
PRODUCER = BatchStamp(producer_id=ProducerId(7), producer_epoch=1, base_sequence=5)
IN_TRANSACTION = BatchStamp(
    producer_id=ProducerId(7), producer_epoch=1, base_sequence=5, transactional=True, codec=Codec.LZ4
)
MARKER = marker(epoch=1)
OLD_LOGS = Path(__file__).parents[2] / "vectors" / "kafka" / "log-dirs"


def found(data, **options):
    (columns,) = decoder_of(BATCH)(data, **options)
    return columns


def render(data, start_offset, end_offset, **options):
    columns = found(data, **options)
    where = {"partition": TopicPartition("t", 0), "start_offset": start_offset, "end_offset": end_offset}
    rendered = BATCH.render(columns, **where)
    assert len(rendered) == sum(BATCH.measure(columns, **where))
    return rendered


def sent(data):
    """Return the batch to which the form converts one written batch."""
    (made,) = BATCH.parse(bytes(data), timestamp=1, max_batch_bytes=LIMIT)
    assert scan(made, check_crc=True).problem is None
    return made


def records(data):
    return [tuple(record)[1:] for columns in decode(data) for record in columns]


@pytest.mark.parametrize(
    ("start", "end", "shown"),
    [(0, 7, (0, 3)), (1, 7, (1, 3)), (0, 6, (0, 2)), (1, 4, (1, 2)), (3, 5, (0, 0))],
)
def test_only_whole_batches_show(start, end, shown):
    """Only batches that lie completely inside the requested offsets are shown."""
    batches = [batch(b"a", b"b"), batch(b"c", b"d", offset=2), batch(b"e", b"f", b"g", offset=4)]
    assert render(b"".join(batches), start, end) == b"".join(batches[slice(*shown)])


def test_markers_and_emptied_batches_do_not_show():
    """Control batches and batches without records are not shown, because no producer could send them."""
    empty = encode([], PRODUCER, base_offset=1, last_offset=3)
    data = b"".join([batch(b"a"), empty, MARKER, batch(b"b", offset=4)])
    assert render(data, 0, 5) == batch(b"a") + batch(b"b", offset=4)


def test_batches_of_aborted_transactions_do_not_show():
    """If the reader gets the list of aborts (read_committed), batches of aborted transactions are not shown."""
    aborted, plain = batch(b"x", stamp=IN_TRANSACTION), batch(b"y", offset=1)
    told = (AbortedTransaction(ProducerId(7), Offset(0)),)
    assert render(aborted + plain, 0, 2, aborted=told) == plain
    assert render(aborted + plain, 0, 2) == aborted + plain
    assert found(aborted, aborted=told).batches[0].attributes & HIDDEN_MASK


def test_a_wrong_checksum_is_reported():
    """Reading a batch with a wrong checksum raises CorruptBatchError with its position."""
    data = batch(b"aaaa") + batch(b"bbbb", offset=1)
    data[-2] ^= 1
    with pytest.raises(CorruptBatchError) as caught:
        found(data)
    assert caught.value.position == len(data) // 2


@pytest.mark.parametrize("codec", Codec)
def test_a_plain_batch_stays_as_it_is(codec):
    """A plain batch is stored unchanged, with its producer, codec and timestamps."""
    data = batch(b"a", None, timestamp=[5, 3], key=b"k", stamp=PRODUCER)
    assert sent(data) == data
    packed = encode([Record(Offset(0), Timestamp(5), b"k", b"v" * 500, ())], BatchStamp(codec=codec))
    assert sent(packed) == packed


def test_a_batch_of_a_transaction_becomes_a_plain_one():
    """A transactional batch becomes a plain batch, because without a marker its transaction would stay open."""
    header = read_header(made := sent(batch(b"a", b"b", timestamp=4, stamp=IN_TRANSACTION)))
    assert not header.is_transactional
    assert (-1, -1, -1) == (header.producer_id, header.producer_epoch, header.base_sequence)
    assert (header.codec, records(made)) == (Codec.LZ4, [(4, None, b"a", ()), (4, None, b"b", ())])


def test_a_thinned_batch_becomes_a_dense_one_without_producer():
    """A compacted batch gets consecutive offsets and no producer, because sequence numbers cannot have gaps."""
    kept = [
        Record(Offset(offset), Timestamp(offset), b"k", None, (Header(b"h", b"1"),)) for offset in (3, 4, 8)
    ]
    made = sent(encode(kept, PRODUCER, base_offset=2, last_offset=9))
    header = read_header(made)
    assert (0, 2, -1) == (header.base_offset, header.last_offset, header.producer_id)
    assert records(made) == [tuple(record)[1:] for record in kept]


def test_records_of_a_batch_with_log_append_time_keep_this_time():
    """The records of a LogAppendTime batch keep that time, and the batch's timestamp type becomes CreateTime."""
    data = batch(b"a", b"b", timestamp=[1, 2], stamp=PRODUCER)
    set_append_time(data, 0, 99)
    header = read_header(made := sent(data))
    assert ("CreateTime", 7, 5) == (header.timestamp_type.label, header.producer_id, header.base_sequence)
    assert [99, 99] == [time for time, *_ in records(made)]


def test_a_delete_horizon_is_left_behind():
    """A delete horizon is removed, because it belongs to the cleaning of the old log; the timestamps stay."""
    data = batch(None, timestamp=5, key=b"k", stamp=BatchStamp(delete_horizon_ms=Timestamp(77)))
    header = read_header(made := sent(data))
    assert header.delete_horizon_ms is None
    assert [(5, b"k", None, ())] == records(made)


def test_an_invalid_batch_refuses_the_whole_write():
    """A write is refused as a whole if it has a control batch, a damaged or too large batch, or other bytes."""
    damaged = batch(b"aaaa")
    damaged[-2] ^= 1
    for data, reason in ((MARKER, "marker"), (damaged, "checksum"), (b"x" * 100, "not a record batch")):
        with pytest.raises(InvalidRecordError, match=reason):
            BATCH.parse(bytes(batch(b"good") + data), timestamp=1, max_batch_bytes=LIMIT)
    with pytest.raises(RecordTooLargeError, match="68 bytes; the limit is 60"):
        BATCH.parse(bytes(batch(b"")), timestamp=1, max_batch_bytes=60)
