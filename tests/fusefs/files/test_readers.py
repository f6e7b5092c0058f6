"""The lines of `status` about groups and queues that read the topic or partition, with their lag."""

from __future__ import annotations

import pytest

from tests.doubles.engines import append_lines
from tests.doubles.mount_client import MountClient
from topicfs.coordination.membership import Position
from topicfs.storage.errors import GroupError
from topicfs.storage.model import TopicPartition


async def readers(client: MountClient, path: str) -> list[str]:
    """Return the lines of a status about groups and queues."""
    lines = (await client.cat(path)).decode().splitlines()
    return [line for line in lines if line.startswith(("group", "queue"))]


@pytest.fixture
def shop(orders: MountClient) -> MountClient:
    """A mount with two topics: `shop` has two partitions with three records each, and nobody reads `quiet`."""
    engine = orders.engine
    engine.create_topic("quiet")
    for partition in engine.create_topic("shop", partitions=2).partitions().values():
        append_lines(partition, "a\nb\nc\n")
    return orders


async def test_nobody_reads(shop: MountClient):
    """The status of a topic without readers has no line about groups or queues."""
    assert [[], []] == [await readers(shop, path) for path in ("shop/status", "shop/1/status")]


async def test_groups_show_with_their_lag(shop: MountClient):
    """The status of a topic or partition has a line for each existing group that has a position there."""
    groups, engine = shop.engine.groups, shop.engine
    engine.create_topic("gone")
    first, second = TopicPartition("shop", 0), TopicPartition("shop", 1)
    groups.set_positions(
        "both", {first: Position(1), second: Position(3), TopicPartition("gone", 0): Position(0)}
    )
    groups.set_positions("one\n", {second: Position(0)})
    groups.set_positions("elsewhere", {TopicPartition("orders", 0): Position(0)})
    engine.delete_topic("gone")

    assert ["group both lag 2", r"group one\n lag 3"] == await readers(shop, "shop/status")
    assert ["group both position 1 lag 2"] == await readers(shop, "shop/0/status")
    assert ["group both position 3 lag 0", r"group one\n position 0 lag 3"] == await readers(
        shop, "shop/1/status"
    )
    assert [] == await readers(shop, "quiet/status")


async def test_queues_show_with_their_lag(shop: MountClient):
    """The lag of a queue includes the records that a consumer holds."""
    session = shop.engine.share_groups.group("jobs").open(["shop"], holder="a test")
    leased = session.take()
    assert leased is not None
    assert ["queue jobs lag 6"] == await readers(shop, "shop/status")
    number = leased.record_name.partition
    assert ["queue jobs start 0 lag 3"] == await readers(shop, f"shop/{number}/status")
    assert [] == await readers(shop, "quiet/0/status")
    session.close()


async def test_a_status_shows_why_groups_cannot_be_read(shop: MountClient, monkeypatch: pytest.MonkeyPatch):
    """If the positions of groups cannot be read, the status has the reason in place of the lines of groups."""

    def fails(_topic: str) -> None:
        raise GroupError("a coordinator does not answer")

    shop.engine.groups.set_positions("g", {TopicPartition("shop", 0): Position(1)})
    monkeypatch.setattr(shop.engine.groups, "positions_in", fails)
    for path in ("shop/status", "shop/0/status"):
        assert ["groups unknown: a coordinator does not answer"] == await readers(shop, path)
        assert b"log_bytes" in await shop.cat(path)
