"""The files `lag` and `status` of a group, which show the same lag."""

from __future__ import annotations

import pytest

from tests.doubles.engines import append_lines
from tests.doubles.group_reader import Reader, wait_until_shared
from tests.doubles.mount_client import MountClient
from tests.doubles.records import marker, produced
from topicfs.coordination.share_groups import Acknowledgement
from topicfs.storage.model import TopicPartition
from topicfs.storage.producers.append import Origin

SHOP = TopicPartition("shop", 0), TopicPartition("shop", 1)


@pytest.fixture
def shop(orders: MountClient) -> MountClient:
    """A mount with a group and a topic: partition 0 has three records, partition 1 an aborted transaction."""
    plain, aborted = orders.engine.create_topic("shop", partitions=2).partitions().values()
    append_lines(plain, "a\nb\nc\n")
    aborted.append(produced(b"x", b"y", txn=True))
    aborted.append(marker(commit=False), origin=Origin.COORDINATOR)
    orders.engine.groups.create("g")
    return orders


async def lags(client: MountClient) -> tuple[list[str], list[str]]:
    """Return the content of each partition's `lag`, and the lines of `status` that show a lag."""
    files = [(await client.cat(f"@groups/g/shop/{number}/lag")).decode().strip() for number in range(2)]
    lines = (await client.cat("@groups/g/status")).decode().splitlines()
    return files, [line.partition(" committed ")[0] for line in lines if "lag" in line]


async def test_a_partition_without_a_position_counts_while_a_member_reads_it(shop: MountClient):
    """While a member reads a partition without a position, `lag` and `status` count all offsets of the partition."""
    reader = Reader(shop.engine, "g", "shop")
    wait_until_shared([reader], SHOP)
    reader.commit(SHOP[0], 1)

    rows = ["lag 5", "partition shop-0 position 1 lag 2", "partition shop-1 position - lag 3"]
    assert (["2", "3"], rows) == await lags(shop)
    reader.leave()
    assert ["lag 2", "partition shop-0 position 1 lag 2"] == (await lags(shop))[1]


async def test_a_group_that_passed_aborted_records_has_no_lag(shop: MountClient):
    """A group or queue that has skipped aborted records at the end of the log has lag 0."""
    assert b"a\nb\nc\n" == await shop.cat("@groups/g/shop/drain")
    rows = ["lag 0", "partition shop-0 position 3 lag 0", "partition shop-1 position 3 lag 0"]
    assert (["0", "0"], rows) == await lags(shop)
    session = shop.engine.share_groups.group("jobs").open(["shop"], holder="a test")
    while (leased := session.take()) is not None:
        session.acknowledge({leased.record_name: Acknowledgement.ACCEPT})
    assert b"lag 0\n" in await shop.cat("@queues/jobs/status")
    session.close()
