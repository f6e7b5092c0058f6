"""`@producers` over a cluster, in which no named producers exist."""

from __future__ import annotations

from tests.doubles.mount_client import APPEND, mounted, refused
from tests.doubles.stalling_engine import StallingEngine


async def test_the_producers_of_a_cluster_are_empty_and_only_read(engine: StallingEngine) -> None:
    """Over a cluster, `@producers` is empty, and opening it for writing fails with EPERM."""
    async with mounted(engine, None) as client:
        assert b"" == await client.cat("@producers")
        assert 0o444 == (await client.stat("@producers")).mode & 0o777
        with refused("EPERM"):
            await client.open("@producers", APPEND)
