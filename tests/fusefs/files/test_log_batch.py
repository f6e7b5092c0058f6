"""`log.batch` and `<selector>.batch`: reads return record batches, and writes to `log.batch` append them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doubles.mount_client import APPEND, MountClient, mounted, refused
from tests.doubles.records import batch, produced
from topicfs.replication import open_engine
from topicfs.storage.codec.batch import scan
from topicfs.storage.model import Isolation, Offset

VECTORS = Path(__file__).parents[2] / "vectors"
BROKER = VECTORS / "broker-made" / "log-dirs"
PARTITIONS = sorted(path.name for path in BROKER.iterdir() if path.is_dir())


@pytest.fixture
async def brokers(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[MountClient]:
    """A mount over a copy of a broker's log directory; the fixture's parameter is the isolation level."""
    shutil.copytree(BROKER, tmp_path / "data")
    engine = open_engine(tmp_path / "data")
    isolation = getattr(request, "param", Isolation.READ_COMMITTED)
    async with mounted(engine, tmp_path, isolation=isolation) as client:
        yield client
    engine.close()


def without_place(lines: bytes) -> list[dict[str, object]]:
    """Return the records of `log.json` without the fields that change when a record is copied."""
    kept = []
    for line in lines.splitlines():
        record = json.loads(line)
        kept.append(
            {name: record[name] for name in record if name not in ("topic", "partition", "offset", "tstype")}
        )
    return kept


@pytest.mark.parametrize("name", PARTITIONS)
async def test_appending_batches_that_were_read_makes_a_copy(brokers: MountClient, name: str):
    """If a broker's batches are appended to another partition in pieces of any size, all records are copied in order.

    Keys, values, headers and timestamps stay the same.
    """
    source = name.replace("-0", "/0") if name.endswith("-0") else name.replace("-1", "/1")
    content = await brokers.cat(f"{source}/log.batch", chunk=1000)
    assert (await brokers.stat(f"{source}/log.batch")).size == len(content)
    await brokers.mkdir("copy")
    fh = await brokers.open("copy/0/log.batch", APPEND)
    for start in range(0, len(content), 777):
        await brokers.filesystem.write(fh, content[start : start + 777])
    await brokers.close(fh)

    expected = without_place(await brokers.cat(f"{source}/log.json"))
    copied = without_place(await brokers.cat("copy/0/log.json"))
    divided = (
        7 if source == "trimmed/0" else 0
    )  # The records of the batch that contains the log start are not copied.
    assert copied == expected[divided:]
    assert copied


@pytest.mark.parametrize("name", ["codecs", "idempotent"])
async def test_a_copy_keeps_codecs_and_producers(brokers: MountClient, name: str):
    """A copied batch keeps its codec, producer and checksum."""
    content = await brokers.cat(f"{name}/0/log.batch")
    await brokers.mkdir("copy")
    await brokers.append("copy/0/log.batch", content)

    def kept(data: bytes) -> list[tuple[int, ...]]:
        return [
            (header.codec, header.producer_id, header.producer_epoch, header.base_sequence, header.checksum)
            for header in scan(data)
        ]

    assert kept(await brokers.cat("copy/0/log.batch")) == kept(content)


@pytest.mark.parametrize("brokers", [*Isolation], indirect=True)
async def test_markers_never_show_and_aborted_batches_only_uncommitted(brokers: MountClient):
    """`log.batch` shows the records that a Kafka consumer with the same isolation level gets, and no markers."""
    level = brokers.context.settings.isolation
    consumed = VECTORS / "broker-made" / "consumed" / f"transactions-0.{level.value}.jsonl"
    expected = [json.loads(line)["offset"] for line in consumed.read_text().splitlines()]
    headers = list(scan(await brokers.cat("transactions/0/log.batch")))

    assert not any(header.is_control for header in headers)
    assert [offset for h in headers for offset in range(h.base_offset, h.end_offset)] == expected


async def test_a_range_shows_the_batches_that_are_wholly_inside(orders: MountClient):
    """A range includes its first and last offset, and shows only batches that lie completely inside."""
    first, second, third = (
        bytes(batch(*b"abc"[:count].split(), *[b"x"] * (count - 1), offset=offset))
        for count, offset in ((2, 0), (3, 2), (2, 5))
    )
    for data in (first, second, third):
        await orders.append("orders/0/log.batch", data)

    for name, expected in {
        "0-6": first + second + third,
        "1-6": second + third,
        "0-5": first + second,
        "1-5": second,
        "3-4": b"",
        "1-": second + third,
        "3-": third,
        "-5": second + third,
        "-4": third,
        "@0-": first + second + third,
    }.items():
        assert await orders.cat(f"orders/0/{name}.batch") == expected, name
        assert (await orders.stat(f"orders/0/{name}.batch")).size == len(expected), name


async def test_the_batch_of_a_record_is_its_whole_batch(orders: MountClient):
    """`N.batch` is the whole batch that contains offset N, and has the mtime of the record at this offset."""
    data = bytes(batch(b"a", b"b", b"c", timestamp=[5, 6, 7]))
    await orders.append("orders/0/log.batch", data)

    assert await orders.cat("orders/0/1.batch") == data
    assert await orders.cat("orders/0/@6.batch") == data
    assert 6_000_000 == (await orders.stat("orders/0/1.batch")).mtime_ns
    assert "2.batch" == orders.filesystem.readlink(orders.lookup("orders/0/latest.batch").node_id)


async def test_a_batch_that_begins_below_the_log_start_is_not_there(orders: MountClient):
    """A batch that begins below the log start is not shown, so that copying does not restore deleted records."""
    cut, whole = bytes(batch(b"a", b"b")), bytes(batch(b"c", offset=2))
    await orders.append("orders/0/log.batch", cut)
    await orders.append("orders/0/log.batch", whole)
    orders.engine.partition("orders", 0).delete_records(Offset(1))

    assert b"b\nc\n" == await orders.cat("orders/0/log")
    assert await orders.cat("orders/0/log.batch") == whole
    assert await orders.cat("orders/0/1-.batch") == whole
    with refused("ENOENT"):
        await orders.cat("orders/0/1.batch")
    assert "begins at 0, and records below 1 were deleted" in orders.reports


async def test_it_grows_like_log(orders: MountClient):
    """An open file shows batches that are appended later through any file."""
    await orders.append("orders/0/log.batch", batch(b"a"))
    fh = await orders.open("orders/0/log.batch")
    seen = await orders.read_on(fh)
    await orders.append("orders/0/log", b"b\nc\n")
    grown = await orders.read_on(fh, len(seen))

    assert [1, 2] == [header.record_count for header in scan(seen + grown)]
    assert (await orders.stat("orders/0/log.batch")).size == len(seen + grown)


async def test_one_write_is_all_or_nothing(orders: MountClient):
    """If one batch is damaged, the whole write is refused with a reason, and none of its batches is stored."""
    damaged = bytearray(batch(b"aaaa"))
    damaged[-2] ^= 1
    with refused("EINVAL"):
        await orders.append("orders/0/log.batch", batch(b"good") + damaged)

    assert b"" == await orders.cat("orders/0/log")
    assert "orders/0/log.batch: not a record batch" in orders.reports


async def test_a_write_of_repeated_and_new_batches_appends_the_new_ones(orders: MountClient):
    """If a producer repeats batches together with new batches, only the new batches are appended."""
    await orders.append("orders/0/log.batch", produced(b"a"))
    await orders.append(
        "orders/0/log.batch", produced(b"a") + produced(b"b", sequence=1) + produced(b"c", sequence=2)
    )
    await orders.append("orders/0/log.batch", produced(b"d", sequence=3) + produced(b"c", sequence=2))

    assert b"a\nb\nc\nd\n" == await orders.cat("orders/0/log")


async def test_after_a_refusal_the_handle_takes_nothing_more(orders: MountClient):
    """After a refused write, the open file refuses further batches, but another open file accepts them."""
    fh = await orders.open("orders/0/log.batch", APPEND)
    with refused("EINVAL"):
        await orders.filesystem.write(fh, b"these are lines, not batches\n")
    with refused("EINVAL"):
        await orders.filesystem.write(fh, bytes(batch(b"a")))
    await orders.close(fh)
    await orders.append("orders/0/log.batch", batch(b"b"))

    assert b"b\n" == await orders.cat("orders/0/log")


async def test_an_incomplete_batch_at_close_is_reported(orders: MountClient):
    """If the last batch is incomplete, close(2) or fsync(2) fails with EINVAL, and the reason is reported."""
    data = bytes(batch(b"a"))
    with refused("EINVAL"):
        await orders.append("orders/0/log.batch", data + data[:-1])
    assert "incomplete" in orders.reports
    fh = await orders.open("orders/0/log.batch", APPEND)
    await orders.filesystem.write(fh, data[:30])
    with refused("EINVAL"):
        await orders.filesystem.fsync(fh)
    await orders.filesystem.release(fh)

    assert b"a\n" == await orders.cat("orders/0/log")


async def test_a_batch_too_large_is_refused_after_its_first_bytes(orders: MountClient):
    """A batch above max.message.bytes is refused with its whole write, once its first 20 bytes have arrived."""
    await orders.append("orders/config", b"max.message.bytes=200\n")
    with refused("EMSGSIZE"):
        await orders.append("orders/0/log.batch", batch(b"good") + batch(b"x" * 200)[:20])

    assert b"" == await orders.cat("orders/0/log")


async def test_a_producers_errors(orders: MountClient):
    """A gap in a producer's sequence gives EILSEQ, a fenced epoch gives ESTALE; a repeated batch is stored once."""
    for data in (produced(b"a"), produced(b"a"), produced(b"b", sequence=1)):
        await orders.append("orders/0/log.batch", data)
    with refused("EILSEQ"):
        await orders.append("orders/0/log.batch", produced(b"gap", sequence=9))
    await orders.append("orders/0/log.batch", produced(b"c", epoch=1))
    with refused("ESTALE"):
        await orders.append("orders/0/log.batch", produced(b"fenced", sequence=2))

    assert b"a\nb\nc\n" == await orders.cat("orders/0/log")
    assert "fenced by epoch 1" in orders.reports


async def test_it_opens_for_appending_alone(orders: MountClient):
    """`log.batch` requires O_APPEND, like log.kv and log.json, so that copying all files stores each record once."""
    for flags in (os.O_WRONLY, os.O_WRONLY | os.O_TRUNC, os.O_RDWR):
        with refused("EPERM"):
            await orders.open("orders/0/log.batch", flags)
