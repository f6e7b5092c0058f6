"""The tree of a queue: its files, and its records under their names."""

from __future__ import annotations

import os

from tests.doubles.mount_client import MountClient, refused


async def taken(client: MountClient, count: int) -> int:
    """Fill `orders` with `a`, `b`, …, make the queue `q`, and take so many; the open file."""
    await client.append("orders/0/log", "".join(f"{chr(97 + n)}\n" for n in range(count)).encode())
    await client.mkdir("@groups/q")
    fh = await client.open("@groups/q/orders/take", os.O_RDWR)
    for n in range(count):
        assert b"%c\n" % (97 + n) == await client.filesystem.read(fh, 2 * n, 100)
    return fh


async def test_a_queue_shows_its_records(orders: MountClient):
    """Held ones in `in-flight`, each with its value; `take` is there by name alone."""
    fh = await taken(orders, 2)

    assert ["q"] == orders.list("@groups")
    assert ["config", "status", "orders"] == orders.list("@groups/q")
    assert ["in-flight", "rejected"] == orders.list("@groups/q/orders")
    assert ["orders-0-0", "orders-0-1"] == orders.list("@groups/q/orders/in-flight")
    assert b"b" == await orders.cat("@groups/q/orders/in-flight/orders-0-1")
    assert b"in_flight 2\n" in await orders.cat("@groups/q/status")
    assert b"share.delivery.count.limit=5" in await orders.cat("@groups/q/config")
    await orders.filesystem.release(fh)
    assert [] == orders.list("@groups/q/orders/in-flight")


async def test_removing_a_record_in_flight_accepts_it(orders: MountClient):
    """Whoever holds it; and moving it up releases it."""
    fh = await taken(orders, 2)
    directory = "@groups/q/orders/in-flight"
    await orders.filesystem.unlink(*orders.parent(f"{directory}/orders-0-0"))
    above = orders.lookup("@groups/q/orders").node_id
    parent, name = orders.parent(f"{directory}/orders-0-1")
    await orders.filesystem.rename(parent, name, above, name)

    assert [] == orders.list(directory)
    assert b"lag 1\n" in await orders.cat("@groups/q/status")
    with refused("ESTALE"):
        await orders.filesystem.write(fh, b"accept\n", 4)
    assert b"b\n" == await orders.filesystem.read(fh, 4, 100)
    await orders.filesystem.release(fh)


async def test_rejected_records_are_kept_until_they_are_removed(orders: MountClient):
    """By their names."""
    fh = await taken(orders, 1)
    await orders.filesystem.write(fh, b"reject\n", 2)
    directory = "@groups/q/orders/rejected"
    assert ["orders-0-0"] == orders.list(directory)
    assert b"a" == await orders.cat(f"{directory}/orders-0-0")
    await orders.filesystem.unlink(*orders.parent(f"{directory}/orders-0-0"))

    assert [] == orders.list(directory)
    await orders.filesystem.release(fh)


async def test_other_names_of_a_queue_do_not_exist(orders: MountClient):
    """Nor can records be moved elsewhere, or renamed."""
    fh = await taken(orders, 1)
    for path in (
        "log",
        "in-flight/orders-0-9",
        "in-flight/nothing",
        "rejected/orders-0-0",
        "../nothere/take",
    ):
        with refused("ENOENT"):
            orders.lookup(f"@groups/q/orders/{path}" if not path.startswith("..") else "@groups/q/nothere")
    parent, name = orders.parent("@groups/q/orders/in-flight/orders-0-0")
    for target, renamed in ((orders.filesystem.root.node_id, name), (parent, b"x")):
        with refused("EPERM"):
            await orders.filesystem.rename(parent, name, target, renamed)
    await orders.filesystem.release(fh)


async def test_a_queue_is_removed_when_nobody_takes_from_it(orders: MountClient):
    """And when it keeps something, only where that is allowed."""
    fh = await taken(orders, 1)
    with refused("ENOTEMPTY"):
        await orders.rmdir("@groups/q")
    await orders.filesystem.release(fh)
    await orders.mkdir("@groups/empty")
    await orders.rmdir("@groups/empty")

    assert ["q"] == orders.list("@groups")
    with refused("EEXIST"):
        await orders.mkdir("@groups/q")


async def test_a_setting_of_a_queue(orders: MountClient):
    """A line sets one, and a bad one is refused."""
    await orders.filesystem.release(await taken(orders, 1))
    await orders.append("@groups/q/config", b"share.delivery.count.limit=2\n")

    assert (await orders.cat("@groups/q/config")).startswith(b"share.delivery.count.limit=2\n")
    with refused("EINVAL"):
        await orders.append("@groups/q/config", b"share.delivery.count.limit=1000\n")
