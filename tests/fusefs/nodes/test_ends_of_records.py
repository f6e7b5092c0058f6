"""Attributes of files that show records whose fields have extreme values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.ends_of_records import MICROSECONDS, write_logs
from tests.doubles.mount_client import mounted
from topicfs.fusefs.nodes.nodes import nanoseconds
from topicfs.replication import open_engine
from topicfs.storage.model import LATEST_TIMESTAMP, Timestamp

LATEST_NS = 2**63 - 1


@pytest.mark.parametrize(
    ("shown", "timestamp"),
    [
        (0, -(2**63)),
        (0, -1),
        (0, 0),
        (1_000_000, 1),
        (LATEST_NS // 1_000_000 * 1_000_000, LATEST_NS // 1_000_000),
        (LATEST_NS, LATEST_NS // 1_000_000 + 1),
        (LATEST_NS, MICROSECONDS),
        (LATEST_NS, LATEST_TIMESTAMP),
    ],
)
def test_a_time_becomes_the_nearest_that_the_kernel_counts(shown: int, timestamp: int):
    """A timestamp outside the kernel's range (1970 to April 2262) becomes the nearest time in the range."""
    assert shown == nanoseconds(Timestamp(timestamp))


async def test_every_file_of_every_log_has_attributes_and_content(tmp_path: Path):
    """Records with extreme fields can be listed, read and appended to, and stat(2) works on all their files."""
    names = write_logs(tmp_path / "data")
    engine = open_engine(tmp_path / "data")
    async with mounted(engine, tmp_path) as client:
        for name in names:
            await client.append(f"{name}/0/log", b"")
            for directory in (name, f"{name}/0", f"{name}/0/segments"):
                for file in client.list(directory):
                    path = f"{directory}/{file}"
                    assert 0 <= (await client.stat(path)).mtime_ns <= LATEST_NS
            assert b"k\tv\n" in await client.cat(f"{name}/0/log.kv")
            assert b'"v"' in await client.cat(f"{name}/0/log.json")
            assert 0 <= (await client.stat(f"{name}/0/latest.json")).mtime_ns <= LATEST_NS
            for file in ("log", "log.batch", "status"):
                assert await client.cat(f"{name}/0/{file}")
    engine.close()
