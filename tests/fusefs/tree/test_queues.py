"""The directory of a queue: its files, and its records by their names."""

from __future__ import annotations

import os
from contextlib import suppress

import trio

from tests.doubles.mount_client import MountClient, refused
from topicfs.fusefs.errors import FileError


async def taken(client: MountClient, count: int) -> int:
    """Append `count` records to `orders`, create the queue `q` and take all records; return the handle of `take`."""
    await client.append("orders/0/log", "".join(f"{chr(97 + n)}\n" for n in range(count)).encode())
    await client.mkdir("@queues/q")
    fh = await client.open("@queues/q/orders/take", os.O_RDWR)
    for n in range(count):
        assert b"%c\n" % (97 + n) == await client.filesystem.read(fh, 2 * n, 100)
    return fh


async def test_a_queue_shows_its_records(orders: MountClient):
    """`in-flight` lists the held records, which have their values as content; `take` is not listed."""
    fh = await taken(orders, 2)

    assert ["q"] == orders.list("@queues")
    assert ["config", "status", "orders"] == orders.list("@queues/q")
    assert ["in-flight", "rejected"] == orders.list("@queues/q/orders")
    assert ["orders-0-0", "orders-0-1"] == orders.list("@queues/q/orders/in-flight")
    assert b"b" == await orders.cat("@queues/q/orders/in-flight/orders-0-1")
    assert b"in_flight 2\n" in await orders.cat("@queues/q/status")
    assert b"share.delivery.count.limit=5" in await orders.cat("@queues/q/config")
    await orders.filesystem.release(fh)
    assert [] == orders.list("@queues/q/orders/in-flight")


async def test_removing_a_record_in_flight_accepts_it(orders: MountClient):
    """unlink(2) in `in-flight` accepts a record, and rename(2) to the parent directory releases it."""
    fh = await taken(orders, 2)
    directory = "@queues/q/orders/in-flight"
    await orders.filesystem.unlink(*orders.parent(f"{directory}/orders-0-0"))
    above = orders.lookup("@queues/q/orders").node_id
    parent, name = orders.parent(f"{directory}/orders-0-1")
    await orders.filesystem.rename(parent, name, above, name)

    assert [] == orders.list(directory)
    assert b"lag 1\n" in await orders.cat("@queues/q/status")
    with refused("ESTALE"):
        await orders.filesystem.write(fh, b"accept\n", 4)
    assert b"b\n" == await orders.filesystem.read(fh, 4, 100)
    await orders.filesystem.release(fh)


async def test_rejected_records_are_kept_until_they_are_removed(orders: MountClient):
    """A rejected record stays in `rejected` until its file is unlinked."""
    fh = await taken(orders, 1)
    await orders.filesystem.write(fh, b"reject\n", 2)
    directory = "@queues/q/orders/rejected"
    assert ["orders-0-0"] == orders.list(directory)
    assert b"a" == await orders.cat(f"{directory}/orders-0-0")
    await orders.filesystem.unlink(*orders.parent(f"{directory}/orders-0-0"))

    assert [] == orders.list(directory)
    await orders.filesystem.release(fh)


async def test_other_names_of_a_queue_do_not_exist(orders: MountClient):
    """Other names in a queue give ENOENT, and records can be neither renamed nor moved elsewhere."""
    fh = await taken(orders, 1)
    for path in ("log", "in-flight/orders-0-9", "in-flight/nothing", "rejected/orders-0-0"):
        with refused("ENOENT"):
            orders.lookup(f"@queues/q/orders/{path}")
    with refused("ENOENT"):
        orders.lookup("@queues/q/nothere")
    parent, name = orders.parent("@queues/q/orders/in-flight/orders-0-0")
    for target, renamed in ((orders.filesystem.root.node_id, name), (parent, b"x")):
        with refused("EPERM"):
            await orders.filesystem.rename(parent, name, target, renamed)
    await orders.filesystem.release(fh)


async def test_a_queue_is_removed_when_nobody_takes_from_it(orders: MountClient):
    """A queue that has open files or stored state cannot be removed; an empty queue can be removed."""
    fh = await taken(orders, 1)
    with refused("ENOTEMPTY"):
        await orders.rmdir("@queues/q")
    await orders.filesystem.release(fh)
    await orders.mkdir("@queues/empty")
    await orders.rmdir("@queues/empty")

    assert ["q"] == orders.list("@queues")
    with refused("EEXIST"):
        await orders.mkdir("@queues/q")


async def test_a_name_belongs_to_one_kind(orders: MountClient):
    """A queue and a consumer group cannot have the same name; the error says which of them has the name."""
    await orders.mkdir("@groups/g")
    await orders.mkdir("@queues/q")
    for path in ("@queues/g", "@groups/q"):
        with refused("EEXIST"):
            await orders.mkdir(path)

    assert (["g"], ["q"]) == (orders.list("@groups"), orders.list("@queues"))
    for path in ("@queues/g", "@groups/q", "@groups/g/orders/take", "@queues/q/orders/log"):
        with refused("ENOENT"):
            orders.lookup(path)
    of_consumers, of_jobs = orders.context.reports.lines()
    assert "@queues/g: group g: is a consumer group; choose another name for the queue" in of_consumers
    assert "@groups/q: q: is a queue; choose another name for a consumer group" in of_jobs


async def test_both_kinds_made_at_once_share_no_name(orders: MountClient):
    """Of two simultaneous mkdir(2) of the same name in `@groups` and `@queues`, one is refused."""
    await orders.mkdir(
        "@queues/first"
    )  # Creating the topic for the records of groups takes longer than all calls below.

    async def make(path: str) -> None:
        with suppress(FileError):
            await orders.mkdir(path)

    for number in range(50):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(make, f"@groups/{number}")
            nursery.start_soon(make, f"@queues/{number}")

    consumers, queues = set(orders.list("@groups")), set(orders.list("@queues"))
    assert (set(), 51) == (consumers & queues, len(consumers | queues))


async def test_a_name_that_exists_leaves_no_error(orders: MountClient):
    """mkdir(2) of an existing queue gives EEXIST without a report, because each worker calls mkdir(2) at its start."""
    await orders.mkdir("@queues/q")
    with refused("EEXIST"):
        await orders.mkdir("@queues/q")
    assert "" == orders.reports


async def test_a_queue_is_configured_before_anybody_takes(orders: MountClient):
    """Settings written before the first `take` have effect, and the queue's directory remains the same node."""
    await orders.append("orders/0/log", b"old\n")
    await orders.mkdir("@queues/q")
    directory = orders.lookup("@queues/q")
    await orders.append("@queues/q/config", b"share.auto.offset.reset=latest\n")
    fh = await orders.open("@queues/q/orders/take", os.O_RDWR | os.O_NONBLOCK)
    await orders.append("orders/0/log", b"new\n")

    assert b"new\n" == await orders.filesystem.read(fh, 0, 100)
    assert directory is orders.lookup("@queues/q")
    await orders.filesystem.release(fh)


async def test_a_queue_whose_topic_is_gone_still_shows_its_status(orders: MountClient):
    """If the topic of a queue was deleted, the status of the queue is shown, and the queue can be removed."""
    await orders.filesystem.release(await taken(orders, 1))
    orders.engine.delete_topic("orders", with_records=True)

    assert b"members 0\nlag 0\n" in await orders.cat("@queues/q/status")
    await orders.rmdir("@queues/q")
    assert [] == orders.list("@queues")


async def test_a_setting_of_a_queue(orders: MountClient):
    """A valid line in `config` changes a setting of the queue; an invalid line is refused."""
    await orders.filesystem.release(await taken(orders, 1))
    await orders.append("@queues/q/config", b"share.delivery.count.limit=2\n")

    assert (await orders.cat("@queues/q/config")).startswith(b"share.delivery.count.limit=2\n")
    with refused("EINVAL"):
        await orders.append("@queues/q/config", b"share.delivery.count.limit=1000\n")
