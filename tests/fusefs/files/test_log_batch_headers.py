"""Batches with a flipped header bit are written to `log.batch`: each is accepted, or refused with a reason."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doubles.mount_client import MountClient, mounted, refused
from tests.doubles.records import batch
from topicfs.fusefs.errors import FileError
from topicfs.replication import open_engine
from topicfs.storage.codec.batch import seal
from topicfs.storage.codec.headers import BatchStamp, Codec
from topicfs.storage.model import ProducerId, TimestampType

pytestmark = pytest.mark.slow

PRODUCER = {"producer_id": ProducerId(7), "producer_epoch": 0, "base_sequence": 0}
STAMPS = {
    "plain": BatchStamp(),
    "gzip": BatchStamp(codec=Codec.GZIP),
    "log append time": BatchStamp(timestamp_type=TimestampType.LOG_APPEND_TIME),
    "producer": BatchStamp(**PRODUCER),
    "transaction": BatchStamp(**PRODUCER, transactional=True),
    "marker": BatchStamp(**PRODUCER, transactional=True, control=True),
    "delete horizon": BatchStamp(delete_horizon_ms=1_700_000_000_000),
}
HEADER_BYTES = 61
REFUSED = {errno.EINVAL, errno.EMSGSIZE, errno.EILSEQ, errno.ESTALE}
"""The errno values for mistakes of a producer: invalid records, wrong size, wrong sequence number, old epoch."""


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[MountClient]:
    engine = open_engine(tmp_path / "data")
    async with mounted(engine, tmp_path, allow_delete=True) as client:
        yield client
    engine.close()


def with_attributes(data: bytearray, bits: int) -> bytearray:
    """Set the attribute bits of a batch, and correct its checksum."""
    data[21:23] = bits.to_bytes(2, "big")
    seal(data, 0, len(data))
    return data


async def produce(client: MountClient, data: bytearray) -> None:
    """Write one batch as `cat >> log.batch` does; check that a refusal has an errno of REFUSED, and a reason."""
    try:
        await client.append("t/0/log.batch", data)
    except FileError as error:
        assert error.number in REFUSED, f"{errno.errorcode[error.number]}: {error.reason}"
        assert error.reason


@pytest.mark.parametrize("name", STAMPS)
@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "as flipped"])
async def test_no_bit_of_a_header_is_a_surprise(client: MountClient, name: str, sealed: bool, caplog) -> None:
    """No flipped bit causes EIO or a traceback, whether the checksum is valid or not, and the log stays readable."""
    await client.mkdir("t")
    good = batch(b"a", b"b", timestamp=1_700_000_000_000, stamp=STAMPS[name])
    for bit in range(HEADER_BYTES * 8):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        if sealed:
            seal(data, 0, len(data))
        await produce(client, data)
        await client.cat("t/0/log.json")
        await client.cat("t/0/log.batch")
        await client.cat("t/0/status")
    assert [] == [record.getMessage() for record in caplog.records if record.exc_info]


async def test_a_transactions_batch_with_bits_without_a_meaning_is_refused(client: MountClient) -> None:
    """A transactional batch with undefined attribute bits is refused; a plain batch keeps the bits, as in Kafka.

    A transactional batch is stored as a plain batch, but nobody knows what the undefined bits would mean there.
    """
    await client.mkdir("t")
    for bits in (1 << bit for bit in range(7, 16)):
        data = with_attributes(batch(b"a", stamp=STAMPS["transaction"]), bits | 16)
        with refused("EINVAL"):
            await client.append("t/0/log.batch", data)
    await client.append("t/0/log.batch", with_attributes(batch(b"a"), 1 << 15))
    assert b"a\n" == await client.cat("t/0/log")


async def test_a_topic_that_stamps_its_own_time_keeps_every_bit(client: MountClient) -> None:
    """A topic with LogAppendTime sets the timestamp type, and keeps the highest attribute bit."""
    client.engine.create_topic("t", overrides={"message.timestamp.type": "LogAppendTime"})
    await client.append("t/0/log.batch", with_attributes(batch(b"a"), 1 << 15))
    stored = await client.cat("t/0/log.batch")
    assert 1 << 15 | 1 << 3 == int.from_bytes(stored[21:23], "big")


@pytest.mark.parametrize("bits", range(0, 1 << 16, 771))
async def test_attributes_of_any_kind_are_no_surprise(client: MountClient, bits: int, caplog) -> None:
    """No combination of attribute bits causes EIO or a traceback."""
    await client.mkdir("t")
    for name in ("plain", "producer"):
        data = batch(b"a", b"b", timestamp=1_700_000_000_000, stamp=STAMPS[name])
        await produce(client, with_attributes(data, bits))
        await client.cat("t/0/log.json")
    assert [] == [record.getMessage() for record in caplog.records if record.exc_info]
