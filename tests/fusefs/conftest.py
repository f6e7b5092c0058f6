"""Fixtures: a mount without a kernel, over a new data directory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.doubles.mount_client import MountClient, mounted
from topicfs.coordination.engine import Engine
from topicfs.replication import open_engine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(tmp_path / "data")
    yield engine
    engine.close()


@pytest.fixture
async def client(engine: Engine, tmp_path: Path) -> AsyncIterator[MountClient]:
    """A mount without topics."""
    async with mounted(engine, tmp_path) as client:
        yield client


@pytest.fixture
async def orders(client: MountClient) -> MountClient:
    """A mount that has the topic `orders` with one empty partition."""
    await client.mkdir("orders")
    return client
