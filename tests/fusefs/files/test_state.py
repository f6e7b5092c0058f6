"""The file `state`: whether a partition is online, and how to reopen it after a repair."""

# ruff: noqa: ASYNC240 - the disk is prepared while nothing else runs

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles.mount_client import APPEND, MountClient, mounted, refused
from tests.fusefs.mounted.faults import FaultyFileSystem
from topicfs.replication import open_engine
from topicfs.storage.manager import Machine


@pytest.fixture
async def faulty(tmp_path: Path) -> AsyncIterator[MountClient]:
    """A mount with the topic `orders`, on a disk that fails as the file `faults` describes."""
    engine = open_engine(tmp_path / "data", machine=Machine(files=FaultyFileSystem(tmp_path / "faults")))
    async with mounted(engine, tmp_path) as client:
        await client.mkdir("orders")
        yield client
    engine.close()


async def fail_sync(client: MountClient, faults: Path) -> None:
    """Append a record, and make its fsync fail."""
    fh = await client.open("orders/0/log", APPEND)
    await client.filesystem.write(fh, b"a\n")
    faults.write_text("sync .log EIO\n")
    with refused("EIO"):
        await client.filesystem.fsync(fh)
    await client.filesystem.release(fh)


async def test_a_partition_that_serves(orders: MountClient):
    """Writing `online` to the state of an online partition changes nothing."""
    assert b"online\n" == await orders.cat("orders/0/state")
    await orders.append("orders/0/state", b"online\n")
    await orders.append("orders/0/log", b"a\n")
    await orders.append("orders/0/state", b"online\n", os.O_WRONLY | os.O_TRUNC)

    assert b"online\n" == await orders.cat("orders/0/state")
    assert b"a\n" == await orders.cat("orders/0/log")


async def test_a_failed_partition_says_why_and_serves_again_after_a_repair(
    faulty: MountClient, tmp_path: Path
):
    """`state` shows the reason of a failure; after a repair, `online` reopens the partition with its records."""
    await fail_sync(faulty, tmp_path / "faults")
    state = (await faulty.cat("orders/0/state")).decode()
    assert state.startswith("offline: ")
    assert f"state {state}" in (await faulty.cat("orders/0/status")).decode()
    with refused("EIO"):
        await faulty.append("orders/0/log", b"refused\n")

    (tmp_path / "faults").unlink()
    await faulty.append("orders/0/state", b"online\n")

    await faulty.append("orders/0/log", b"b\n")
    assert b"online\n" == await faulty.cat("orders/0/state")
    assert b"a\nb\n" == await faulty.cat("orders/0/log")


async def test_writing_online_fails_while_a_file_is_damaged(faulty: MountClient, tmp_path: Path):
    """While a file is damaged, writing `online` fails with EIO and a report, and the partition stays offline."""
    await fail_sync(faulty, tmp_path / "faults")
    (tmp_path / "faults").unlink()
    epochs = tmp_path / "data" / "orders-0" / "leader-epoch-checkpoint"
    good = epochs.read_bytes()
    epochs.write_bytes(b"nonsense")
    with refused("EIO"):
        await faulty.append("orders/0/state", b"online\n")

    assert (await faulty.cat("orders/0/state")).startswith(b"offline: ")
    assert "error orders/0/state: " in faulty.reports
    epochs.write_bytes(good)
    await faulty.append("orders/0/state", b"online\n")
    assert b"a\n" == await faulty.cat("orders/0/log")


@pytest.mark.parametrize("line", [b"offline\n", b"\n", b"on line\n", b"\xff\n", b"ONLINE"])
async def test_nothing_else_can_be_written(orders: MountClient, line: bytes):
    """Any line other than `online` fails with EINVAL, so a partition cannot be taken offline by hand."""
    with refused("EINVAL"):
        await orders.append("orders/0/state", line)
    assert b"online\n" == await orders.cat("orders/0/state")


async def test_reopening_makes_the_nodes_of_files_stale_but_not_the_directory(orders: MountClient):
    """Reopening a partition makes its files' nodes stale, so that the kernel looks up the names again."""
    names = ("status", "start", "log", "log.batch")
    nodes = [orders.lookup(f"orders/0/{name}") for name in names]
    directory = orders.lookup("orders/0")
    await orders.append("orders/0/log", b"a\n")
    await orders.append("orders/0/state", b"online\n")

    for name, node in zip(names, nodes, strict=True):
        with refused("ESTALE"):
            await orders.filesystem.open(node.node_id, os.O_RDONLY, 1)
        found = orders.filesystem.lookup(directory.node_id, name.encode())
        await orders.filesystem.open(found.node.node_id, os.O_RDONLY, 1)
    assert orders.lookup("orders/0") is directory


async def test_a_read_only_mount_repairs_nothing(tmp_path: Path):
    """In a read-only mount, writing `online` fails with EROFS."""
    with closing(open_engine(tmp_path / "data")) as engine:
        engine.create_topic("orders")
    with closing(open_engine(tmp_path / "data", read_only=True)) as reading:
        async with mounted(reading, tmp_path) as client:
            with refused("EROFS"):
                await client.append("orders/0/state", b"online\n")


async def test_the_log_of_an_offline_partition_is_not_shown_as_empty(tmp_path: Path):
    """The log of an offline partition has size 1. Programs such as tar therefore open the log, and get EIO."""
    with closing(open_engine(tmp_path / "data")) as engine:
        async with mounted(engine, tmp_path) as client:
            await client.mkdir("orders")
            await client.mkdir("orders/1")
            await client.append("orders/0/log", b"a\n")
    (tmp_path / "data" / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"nonsense")
    with closing(open_engine(tmp_path / "data")) as engine:
        async with mounted(engine, tmp_path) as client:
            for path in ("orders/0/log", "orders/log"):
                assert 1 == (await client.stat(path)).size
                with refused("EIO"):
                    await client.open(path)
