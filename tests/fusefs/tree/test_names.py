"""Which names exist, which names are listed, and the modes of files."""

from __future__ import annotations

import stat

import pytest

from tests.doubles.mount_client import MountClient, refused


async def test_an_empty_mount_lists_its_status(client: MountClient):
    """A mount without topics lists only `@groups`, `@queues` and `@status`."""
    assert ["@groups", "@queues", "@status"] == client.list()


async def test_a_topic_is_a_directory_with_settings_status_and_partitions(orders: MountClient):
    """A topic lists its partitions but not its own log, so that a recursive copy has each record once."""
    assert ["@groups", "@queues", "@status", "orders"] == orders.list()
    assert ["config", "status", "0"] == orders.list("orders")


async def test_a_partition_lists_only_files_that_end(orders: MountClient):
    """A partition does not list `follow` and selectors, so that programs that read all files (grep -r, tar) end."""
    await orders.append("orders/0/log", b"a\n")

    logs = ["log", "log.kv", "log.json", "log.batch"]
    others = ["earliest", "latest", "start", "state", "status", "segments"]
    assert logs + others == orders.list("orders/0")


OF_A_PARTITION = ["follow", "follow.kv", "follow.json", "0", "0.kv", "0.json", "0-", "0-0", "-1"]
OF_A_TOPIC = ["log", "log.kv", "log.json", "follow", "follow.kv", "follow.json"]
OF_TIMES = ["@0-", "@0-.kv", "@2000-@2026-01-01.json"]


@pytest.mark.parametrize("path", [f"0/{name}" for name in OF_A_PARTITION] + OF_A_TOPIC + OF_TIMES)
async def test_unlisted_names_are_there_all_the_same(orders: MountClient, path: str):
    """`follow` and selectors of a partition, and the files of a topic as a whole, can be looked up by name."""
    await orders.append("orders/0/log", b"a\n")

    assert stat.S_ISREG(orders.lookup(f"orders/{path}").attributes().mode)


PATHS_BY_MODE = {
    stat.S_IFDIR | 0o755: ["", "orders", "orders/0", "orders/0/segments"],
    stat.S_IFREG | 0o644: [
        *("orders/0/log", "orders/0/log.kv", "orders/0/log.json"),
        *("orders/log", "orders/log.kv", "orders/log.json", "orders/config"),
        "@groups/g/orders/0/position",
    ],
    stat.S_IFREG | 0o600: [
        *("@groups/g/orders/log", "@groups/g/orders/drain.json", "@queues/q/orders/take.kv"),
        *("@groups/g/orders/next-1000", "@groups/g/orders/next-10s.kv"),
    ],
    stat.S_IFREG | 0o444: [
        *("@status", "orders/0/follow", "orders/0/status", "orders/0/start", "orders/0/0", "orders/0/0-"),
        "orders/0/segments/00000000000000000000.log",
    ],
    stat.S_IFLNK | 0o777: ["orders/0/earliest"],
}


@pytest.mark.parametrize(
    ("path", "mode"), [(path, mode) for mode, paths in PATHS_BY_MODE.items() for path in paths]
)
async def test_modes(orders: MountClient, path: str, mode: int):
    """Directories have mode 0755, files that take lines 0644, files that change a group 0600, other files 0444."""
    await orders.append("orders/0/log", b"a\n")
    await orders.mkdir("@groups/g")
    await orders.mkdir("@queues/q")

    assert (await orders.stat(path)).mode == mode


NO_PARTITIONS = ["orders/1", "orders/00", "orders/10000"]
NO_FILES = ["payments", "orders/logs", "orders/log.batch", "orders/0/.git"]


@pytest.mark.parametrize("path", NO_PARTITIONS + NO_FILES)
async def test_other_names_do_not_exist(orders: MountClient, path: str):
    """Other names give ENOENT, and no report, because tools look up many names."""
    with refused("ENOENT"):
        orders.lookup(path)
    assert "" == orders.reports


async def test_a_name_longer_than_any_filesystem_takes(client: MountClient):
    """A name of 256 bytes gives ENAMETOOLONG, as in a file system on a disk."""
    with refused("ENAMETOOLONG"):
        client.lookup("x" * 256)


@pytest.mark.parametrize("link", ["earliest", "latest"])
async def test_links_exist_once_a_record_does(orders: MountClient, link: str):
    """`earliest` and `latest` exist only if the partition has a record."""
    with refused("ENOENT"):
        orders.lookup(f"orders/0/{link}")

    await orders.append("orders/0/log", b"a\n")

    orders.lookup(f"orders/0/{link}")


async def test_links_name_the_first_and_the_last_record(orders: MountClient):
    """`earliest` and `latest` point to the first and the last record, with the same suffix as the link."""
    await orders.append("orders/0/log", b"a\nb\nc\n")

    targets = {
        name: orders.filesystem.readlink(orders.lookup(f"orders/0/{name}").node_id)
        for name in ("earliest", "latest", "latest.json", "earliest.kv")
    }

    assert {"earliest": "0", "latest": "2", "latest.json": "2.json", "earliest.kv": "0.kv"} == targets


async def test_a_link_shows_the_time_of_its_record(orders: MountClient):
    """The mtime of a link is the timestamp of its record."""
    await orders.append("orders/0/log.json", b'{"payload":"a","ts":1000}\n{"payload":"b","ts":2000}\n')
    times = [(await orders.stat(f"orders/0/{name}")).mtime_ns for name in ("earliest", "latest", "0")]

    assert [1_000_000_000, 2_000_000_000, 1_000_000_000] == times
    await orders.append("orders/0/log.json", b'{"payload":"c","ts":3000}\n')
    assert 3_000_000_000 == (await orders.stat("orders/0/latest")).mtime_ns


async def test_a_listing_continues_after_its_cookie(orders: MountClient):
    """readdir(3) continues after its cookie in the listing that was made at opendir(3)."""
    fh = orders.filesystem.opendir(orders.lookup("orders").node_id)
    first_two = list(orders.filesystem.readdir(fh, 0))[:2]
    await orders.mkdir("orders/1")

    rest = [entry.name for entry in orders.filesystem.readdir(fh, first_two[-1].next_entry)]

    assert ["config", "status", "0"] == rest


async def test_a_group_whose_name_is_no_file_name_is_not_listed(client: MountClient):
    """A group whose name contains a slash or NUL is not listed, because the kernel would refuse the whole listing."""
    groups = client.filesystem.context.engine.groups
    for name in ("a/b", "../c", "d\0e", ".", "..", "...", "plain"):
        groups.create(name)
    assert ["...", "plain"] == sorted(client.list("@groups"))
    listing = client.filesystem.readdir(client.filesystem.opendir(client.lookup("@groups").node_id), 0)
    assert [".", "..", "...", "plain"] == sorted(entry.name for entry in listing)


async def test_a_topic_removed_during_a_listing_is_skipped(client: MountClient):
    """A topic that is removed during a listing is skipped."""
    await client.mkdir("a")
    await client.mkdir("b")
    fh = client.filesystem.opendir(client.filesystem.root.node_id)
    listing = client.filesystem.readdir(fh, 0)
    seen = [next(listing).name for _ in range(6)]
    await client.rmdir("b")

    assert [".", "..", "@groups", "@queues", "@status", "a"] == [*seen, *(entry.name for entry in listing)]


async def test_a_name_that_resembles_a_selector_is_reported(orders: MountClient):
    """A name that resembles a selector is reported with the valid selectors; other unknown names are not reported."""
    with refused("ENOENT"):
        orders.lookup("orders/0/5x")
    with refused("ENOENT"):
        orders.lookup("orders/0/.git")

    (line,) = orders.context.reports.lines()
    assert "orders/0/5x: 5x: not a selector; selectors are 42, 42-99, 42-, -10, @TIME" in line


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("@bogus-", "bogus: not a time"),
        ("@2026-11-28 12:00-", "2026-11-28 12:00: not a time"),
        ("@0", "a topic has its partitions (0, 1, …), log, follow, config, status, @TIME- and @TIME-@TIME"),
        ("@0-.batch", "a topic has its partitions"),
        ("-10", "a topic has its partitions"),
        ("0-", "a topic has its partitions"),
    ],
)
async def test_a_selector_that_a_topic_does_not_have_is_reported(orders: MountClient, name: str, reason: str):
    """A misspelled time, or an offset without a partition, is reported with the names that a topic has."""
    with refused("ENOENT"):
        orders.lookup(f"orders/{name}")

    (line,) = orders.context.reports.lines()
    assert f"error orders/{name}: " in line
    assert reason in line


async def test_removing_a_topic_file_by_file_names_the_way_once(orders: MountClient):
    """Each unlink(2) of `rm -r` on a topic fails with EPERM; a single report says how to remove the topic."""
    orders.engine.add_partitions("orders", total=2)
    for path in ("orders/0/log", "orders/0/log.kv", "orders/1/log", "orders/config"):
        with refused("EPERM"):
            await orders.filesystem.unlink(*orders.parent(path))
    with refused("EPERM"):
        await orders.rmdir("orders/0")

    first, second = orders.context.reports.lines()
    assert (
        "error orders: single files of a topic cannot be removed; `rmdir orders` removes the topic" in first
    )
    assert "topicfs topics delete orders --with-records" in first
    assert first.endswith(" (4 times)")
    assert "orders/0: only topics can be removed, by rmdir at the top" in second
