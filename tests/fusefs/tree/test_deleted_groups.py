"""Using directories and open files of deleted groups and queues does not create the group or queue again."""

from __future__ import annotations

import os

from tests.doubles.mount_client import MountClient, refused


async def test_a_deleted_queue_stays_deleted(orders: MountClient):
    """Opening `take` in a deleted queue's directory, or writing to its open `config`, does not create the queue."""
    await orders.mkdir("@queues/q")
    directory = orders.lookup("@queues/q/orders").node_id
    config = await orders.open("@queues/q/config", os.O_WRONLY)
    await orders.rmdir("@queues/q")
    take = orders.filesystem.lookup(directory, b"take").node.node_id

    with refused("ENOENT"):
        await orders.filesystem.open(take, os.O_RDWR, 1)
    with refused("ESTALE"):
        await orders.filesystem.write(config, b"share.delivery.count.limit=2\n")
    assert [] == orders.list("@queues")
    await orders.mkdir("@queues/q")
    assert b"share.delivery.count.limit=5" in await orders.cat("@queues/q/config")


async def test_a_deleted_group_stays_deleted(orders: MountClient):
    """Opening a file in a deleted group's directory, or writing to its open file, does not create the group."""
    await orders.mkdir("@groups/g")
    directory = orders.lookup("@groups/g/orders").node_id
    config = await orders.open("@groups/g/config", os.O_WRONLY)
    position = await orders.open("@groups/g/orders/0/position", os.O_WRONLY)
    await orders.rmdir("@groups/g")

    for name in (b"log", b"drain", b"next-5"):
        node = orders.filesystem.lookup(directory, name).node.node_id
        with refused("ENOENT"):
            await orders.filesystem.open(node, os.O_RDONLY, 1)
    with refused("ESTALE"):
        await orders.filesystem.write(config, b"commit=manual\n")
    with refused("ESTALE"):
        await orders.filesystem.write(position, b"0\n")
    assert [] == orders.list("@groups")


async def test_a_word_about_a_record_of_a_deleted_topic(orders: MountClient):
    """A command about a record of a deleted topic is refused, even if there is a new topic of the same name."""
    await orders.append("orders/0/log", b"one\n")
    await orders.mkdir("@queues/q")
    take = await orders.open("@queues/q/orders/take", os.O_RDWR)
    assert b"one\n" == await orders.filesystem.read(take, 0, 100)
    orders.engine.delete_topic("orders")
    with refused("ESTALE"):
        await orders.filesystem.write(take, b"accept\n", 4)
    orders.engine.create_topic("orders", partitions=1)
    await orders.append("orders/0/log", b"two\n")
    with refused("ESTALE"):
        await orders.filesystem.write(take, b"accept\n", 4)
    assert b"two\n" == await orders.filesystem.read(take, 4, 100)
    await orders.filesystem.release(take)
