"""The files `config`, `start`, `status` and `@status`."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from pathlib import Path

import pytest
import trio

from tests.doubles.engines import log_of
from tests.doubles.mount_client import APPEND, MountClient, mounted, refused
from topicfs.coordination.engine import Engine
from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.files.start_and_state import StateFile
from topicfs.fusefs.filesystem import TopicFileSystem
from topicfs.replication import open_engine
from topicfs.replication.replicas.startup import open_replicas
from topicfs.storage.checkpoints.offset_checkpoint import read_offsets
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk.names import LOG_START_OFFSETS
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.model import TopicPartition

REWRITE = os.O_WRONLY | os.O_TRUNC


async def test_config_lists_overrides_then_defaults_as_comments(orders: MountClient):
    """`config` lists the overrides and then the defaults as comments, one setting per line, by Kafka's names."""
    lines = (await orders.cat("orders/config")).decode().splitlines()

    assert "retention.ms=-1" == lines[0]
    assert "# segment.bytes=1073741824" in lines
    assert not any(line.startswith("# retention.ms") for line in lines)


@pytest.mark.parametrize("flags", [APPEND, REWRITE, os.O_WRONLY], ids=[">>", ">", "vim"])
async def test_a_written_line_sets_a_setting(orders: MountClient, flags: int):
    """A written line changes only its own setting. The flags of open(2) make no difference."""
    await orders.append("orders/config", b"# a comment\n\nsegment.bytes = 2000000\n", flags)

    assert {"retention.ms": "-1", "segment.bytes": "2000000"} == orders.engine.topic("orders").overrides


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("new/config", b"flush.messages=7\n"),
        ("new/replicas", b"1\n"),
        ("new/0/state", b"online\n"),
        ("@groups/g/new/0/position", b"1\n"),
    ],
)
async def test_an_open_file_of_a_deleted_topic_changes_no_new_topic_of_the_name(
    tmp_path: Path, file: str, line: bytes
):
    """After a topic is deleted and created again, files opened before give ESTALE; files opened afterwards work."""
    disks = EngineConfig(replication_factor=2)
    engine = open_replicas([tmp_path / "a", tmp_path / "b"], config=disks, in_background=False)
    async with mounted(engine, tmp_path) as client:
        await client.mkdir("@groups/g")
        await client.mkdir("new")
        fh = await client.open(file, APPEND)
        await client.rmdir("new")
        await client.mkdir("new")
        partition = engine.partition("new", 0)

        with refused("ESTALE"):
            await client.filesystem.write(fh, line)
        await client.filesystem.release(fh)

        assert partition is engine.partition("new", 0)
        assert 2 == len(partition.status().replicas)
        assert "flush.messages" not in engine.topic("new").overrides
        assert {} == engine.groups.positions("g").committed
        await client.append(file, line)
    engine.close()


async def test_an_empty_value_removes_an_override(orders: MountClient):
    """A written line `name=` removes the override."""
    await orders.append("orders/config", b"retention.ms=\n")

    assert {} == orders.engine.topic("orders").overrides


@pytest.mark.parametrize(
    "line", [b"no.such.setting=1", b"segment.bytes=small", b"segment.bytes=1", b"just words", b"\xff=1"]
)
async def test_one_write_is_all_or_nothing(orders: MountClient, line: bytes):
    """A bad line fails the write with EINVAL and a report, and no line of the write has an effect."""
    with refused("EINVAL"):
        await orders.append("orders/config", b"flush.messages=7\n" + line + b"\n")

    assert "orders/config" in orders.reports
    assert "flush.messages" not in orders.engine.topic("orders").overrides


async def test_a_last_line_without_newline_is_set_at_close(orders: MountClient):
    """close(2) applies a last line without a newline, and fails if that line is invalid."""
    await orders.append("orders/config", b"flush.messages=7")
    assert "7" == orders.engine.topic("orders").overrides["flush.messages"]

    with refused("EINVAL"):
        await orders.append("orders/config", b"flush.messages=none")


async def test_config_read_and_written_back_changes_nothing(orders: MountClient):
    """Writing the content of `config` back to it, as `cp` does, changes nothing."""
    before = await orders.cat("orders/config")

    await orders.append("orders/config", before, REWRITE)

    assert await orders.cat("orders/config") == before


async def test_the_status_of_a_partition_has_names_and_values(orders: MountClient):
    """A partition's status has lines of the form `name value`."""
    await orders.append("orders/0/log.json", b'{"payload":"a","ts":1700000000123}\n')

    lines = dict(line.split(" ", 1) for line in (await orders.cat("orders/0/status")).decode().splitlines())

    assert "online" == lines["state"]
    assert "0" == lines["log_start_offset"]
    assert lines["log_end_offset"] == lines["high_watermark"] == lines["last_stable_offset"] == "1"
    assert ("0", "1") == (lines["recovery_point"], lines["unflushed_records"])
    assert "1700000000123 2023-11-14T22:13:20.123Z" == lines["last_timestamp"]
    assert "yes" == lines["measured"]
    assert [
        "state", "log_start_offset", "recovery_point", "unflushed_records", "last_stable_offset", "high_watermark",
        "log_end_offset", "leader_epoch",
    ] == list(lines)[:8]  # fmt: skip


async def test_an_open_text_keeps_its_size(orders: MountClient):
    """The text and size of an open file do not change, because tar reads exactly as many bytes as stat(2) gave."""
    fh = await orders.open("orders/0/status")
    node = orders.lookup("orders/0/status")
    await orders.append("orders/0/log", b"a\n" * 100)

    assert (await orders.filesystem.getattr(node.node_id)).size == len(await orders.read_on(fh))
    await orders.close(fh)
    assert b"log_end_offset 100\n" in await orders.cat("orders/0/status")


async def test_the_daemons_status_ends_with_the_newest_reports(orders: MountClient):
    """`@status` ends with the newest reports, one report per line."""
    with refused("EINVAL"):
        await orders.append("orders/0/log.json", b"no json\n")

    lines = (await orders.cat("@status")).decode().splitlines()

    assert "pid 1" == lines[0]
    assert " error orders/0/log.json: " in lines[-1]


@pytest.mark.parametrize(
    "path", ["@status", "orders/config", "orders/status", "orders/0/status", "orders/0/start"]
)
async def test_a_text_that_did_not_change_keeps_its_time(orders: MountClient, path: str):
    """mtime does not change while the text stays the same, so that a backup sees no change."""
    await orders.append("orders/0/log", b"a\n")
    first = (await orders.stat(path)).mtime_ns
    await trio.sleep(0.005)

    assert first == (await orders.stat(path)).mtime_ns


async def test_a_text_that_changed_has_another_time(orders: MountClient):
    """mtime changes with the settings of a topic, and when `@status` gets a new report."""
    before = {path: (await orders.stat(path)).mtime_ns for path in ("orders/config", "@status")}
    await trio.sleep(0.005)
    await orders.append("orders/config", b"retention.ms=1\n")
    with refused("EINVAL"):
        await orders.append("orders/0/log.json", b"bad\n")

    after = {path: (await orders.stat(path)).mtime_ns for path in before}

    assert all(after[path] > before[path] for path in before)


@pytest.mark.parametrize("path", ["@status", "orders/0/status", "orders/0/start"])
async def test_files_cannot_be_opened_for_writing_without_allow_delete(orders: MountClient, path: str):
    """Without --allow-delete, opening `start` or a status file for writing fails with EPERM, even for root."""
    with refused("EPERM"):
        await orders.open(path, APPEND)
    with refused("EPERM"):
        await orders.truncate(path, 0)


async def test_a_larger_start_deletes_older_records_with_allow_delete(engine: Engine, tmp_path: Path):
    """A larger `start` deletes records, a smaller one changes nothing, and a `start` beyond the log gives EINVAL."""
    async with mounted(engine, tmp_path, allow_delete=True) as client:
        await client.mkdir("orders")
        await client.append("orders/0/log", b"a\nb\nc\n")

        await client.append("orders/0/start", b"1\n")
        assert b"b\nc\n" == await client.cat("orders/0/log")
        assert b"1\n" == await client.cat("orders/0/start")

        await client.append("orders/0/start", b"0\n", REWRITE)
        assert b"1\n" == await client.cat("orders/0/start")

        for bad in (b"4\n", b"-1\n", b"two\n", b"\n"):
            with refused("EINVAL"):
                await client.append("orders/0/start", bad)
        assert b"b\nc\n" == await client.cat("orders/0/log")


async def test_a_larger_start_is_kept_at_once(engine: Engine, tmp_path: Path):
    """A new log start is checkpointed immediately, for readers of the directory and for a start after a crash."""
    async with mounted(engine, tmp_path, allow_delete=True) as client:
        await client.mkdir("orders")
        await client.append("orders/0/log", b"a\nb\nc\n")
        await client.append("orders/0/start", b"2\n")
        directory = Path(engine.directories()[0].path)
        starts = read_offsets(NativeFileSystem(read_only=True), directory / LOG_START_OFFSETS)
        assert {TopicPartition("orders", 0): 2} == starts


async def test_segments_are_the_real_files(orders: MountClient, tmp_path: Path):
    """The files in `segments` have the same bytes as the files on disk, and are read-only."""
    await orders.append("orders/0/log", b"a\n")
    directory = tmp_path / "data" / "orders-0"

    names = orders.list("orders/0/segments")

    assert "00000000000000000000.log" in names
    for name in names:
        content = (directory / name).read_bytes()
        assert await orders.cat(f"orders/0/segments/{name}", chunk=1 << 20) == content
        assert (await orders.stat(f"orders/0/segments/{name}")).size == len(content)
        with refused("EPERM"):
            await orders.open(f"orders/0/segments/{name}", APPEND)


async def test_a_deleted_segment_is_stale_under_an_open_file(orders: MountClient):
    """Reading a deleted segment through an open file gives ESTALE.

    The open file does not keep the segment's disk space in use.
    """
    await orders.append("orders/config", b"internal.segment.bytes=150\n")
    for _ in range(3):
        await orders.append("orders/0/log", b"x" * 40 + b"\n")
    first = orders.list("orders/0/segments")[0]
    fh = await orders.open(f"orders/0/segments/{first}")
    log_of(orders.engine).replacer.delete_oldest_segments(1, "test")

    with refused("ESTALE"):
        await orders.filesystem.read(fh, 0, 10)
    with refused("ENOENT"):
        orders.lookup(f"orders/0/segments/{first}")


FORGED = "x\n2026-11-22T00:00:00.000Z error orders: all is lost\x1b[2J"
ESCAPED = r"x\n2026-11-22T00:00:00.000Z error orders: all is lost\x1b[2J"


async def test_a_name_forges_no_line_of_the_daemons_status(orders: MountClient):
    """Newlines and escape sequences in names are escaped in `@status`, so that a name cannot forge a line."""
    before = len(orders.context.reports.lines())
    with refused("EINVAL"):
        await orders.mkdir(FORGED)
    with refused("EINVAL"):
        await orders.mkdir(f"orders/{FORGED}")

    lines = (await orders.cat("@status")).decode().splitlines()
    assert len(lines) == 1 + before + 2
    assert all(line.isprintable() and ESCAPED in line for line in lines[-2:])


async def test_a_directorys_name_forges_no_line_of_a_status(tmp_path: Path):
    """Newlines in a directory's name are escaped in the status of a partition."""
    directory = tmp_path / FORGED
    with closing(open_engine(directory)) as engine:
        async with mounted(engine, directory) as client:
            await client.mkdir("orders")
            status = (await client.cat("orders/0/status")).decode()
            assert status.count("\n") == len(status.splitlines())
            assert f"directory {tmp_path}/{ESCAPED}/orders-0" == status.splitlines()[-1]


async def test_a_setting_forges_no_other(tmp_path: Path):
    """Newlines in settings that were edited by hand are escaped, so that `config` shows one setting per line."""
    directory = tmp_path / "data"
    with closing(open_engine(directory)) as engine:
        engine.create_topic("orders", overrides={"cleanup.policy": "compact,\ndelete"})
    settings = directory / "topicfs.topics"
    settings.write_text(settings.read_text().replace('"cleanup.policy"', r'"x\nretention.ms"'))
    with closing(open_engine(directory)) as engine:
        async with mounted(engine, directory) as client:
            lines = (await client.cat("orders/config")).decode().splitlines()
            assert [r"retention.ms=-1", r"x\nretention.ms=compact,\ndelete"] == [
                line for line in lines if not line.startswith("#")
            ]


async def test_the_size_of_an_open_text_does_not_change(
    orders: MountClient, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
):
    """If two calls of open(2) overlap, both open files show the text of the call that returns first."""
    texts, begun, go_on = ["second", "the first"], threading.Event(), threading.Event()

    def render(_file: StateFile) -> str:
        leave_event_loop()
        text = texts.pop()
        if texts:
            begun.set()
            go_on.wait(20)
        return text

    node_id = orders.lookup("orders/0/state").node_id
    monkeypatch.setattr(StateFile, "render", render)
    opened: list[bytes] = []

    async def read(filesystem: TopicFileSystem) -> int:
        fh = (await filesystem.open(node_id, os.O_RDONLY, 0)).fh
        opened.append(bytes(await filesystem.read(fh, 0, 100)))
        return fh

    nursery.start_soon(read, orders.filesystem)
    with trio.fail_after(20):
        while not begun.is_set():
            await trio.sleep(0.001)
        await read(orders.filesystem)
        go_on.set()
        while len(opened) < 2:
            await trio.sleep(0.001)
    assert [b"second", b"second"] == opened
    assert len("second") == (await orders.filesystem.getattr(node_id)).size


async def test_an_open_status_hides_no_newer_one(orders: MountClient):
    """While a program has `@status` open, other programs that open it see newer reports."""
    open_before = await orders.open("@status")
    with refused("EINVAL"):
        await orders.mkdir("@orders")
    assert b"@orders" in await orders.cat("@status")
    assert b"@orders" not in await orders.filesystem.read(open_before, 0, 100_000)
