"""`topicfs cat PATH` prints the content of the file at this path of a mount."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio

from testing.processes import started
from tests.doubles.mount_client import mounted
from tests.topicfs.conftest import TOPICFS, assert_refused
from topicfs.replication import open_engine
from topicfs.storage.model import Isolation

pytestmark = pytest.mark.slow

SEGMENT = "00000000000000000000"

SUFFIXES = ("", ".kv", ".json", ".batch")

IN_PARTITION = [
    *(f"{name}{suffix}" for name in ("log", "0", "0-1", "1-", "-2", "@0", "@0-") for suffix in SUFFIXES),
    "start",
    "state",
    *(f"segments/{SEGMENT}.{kind}" for kind in ("log", "index", "timeindex")),
]

IN_TOPIC = [
    "config",
    "status",
    *(f"{name}{suffix}" for name in ("log", "@0-", "@0-@9999-12-31") for suffix in SUFFIXES[:3]),
]


@pytest.fixture
def clicks(topicfs):
    """The topic `clicks` of two partitions, each with four records in two batches and alternating timestamps."""
    topicfs("topics", "create", "clicks", "--partitions", "2")
    for number, first in ((0, 0), (0, 2), (1, 0), (1, 2)):
        lines = b"".join(
            b'{"ts":%d,"key":"k%d","payload":"%d of %d"}\n'
            % (1_700_000_000_000 + 7 * n + number, n, n, number)
            for n in (first, first + 1)
        )
        assert 0 == topicfs("append", f"clicks/{number}/log.json", stdin=lines).status
    return topicfs


def on_the_mount(path: str) -> bytes:
    """Return the content of a path in a read-only mount of the same data directory."""

    async def read() -> bytes:
        async with mounted(engine, Path("data")) as client:
            return await client.cat(path)

    with closing(open_engine(Path("data"), read_only=True)) as engine:
        return trio.run(read)


@pytest.mark.parametrize(
    "path", [*(f"clicks/1/{name}" for name in IN_PARTITION), *(f"clicks/{name}" for name in IN_TOPIC)]
)
def test_every_file_prints_what_the_mount_shows(clicks, path):
    """`cat` prints the same content of logs, records, ranges, settings, states and segments as a mount."""
    expected = on_the_mount(path)
    assert expected or path.endswith(".index")  # A segment with so few bytes has no index entries.
    assert (0, expected, b"") == clicks("cat", path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_link_prints_the_record_it_points_to(clicks, suffix):
    """`cat` of a link prints the record that it points to."""
    for name, offset in (("earliest", 0), ("latest", 3)):
        expected = on_the_mount(f"clicks/0/{offset}{suffix}")
        assert (0, expected, b"") == clicks("cat", f"clicks/0/{name}{suffix}")


def test_status_of_a_partition_prints_its_lines(clicks):
    """`cat` of a partition's `status` prints the same lines as the mount, except `last_flush` and `measured`."""

    def steady(text: bytes) -> list[bytes]:
        return [line for line in text.splitlines() if not line.startswith((b"last_flush", b"measured"))]

    lines = steady(clicks("cat", "clicks/0/status").output)
    assert steady(on_the_mount("clicks/0/status")) == lines
    assert b"log_end_offset 4" in lines


def test_status_of_all_says_what_was_opened(clicks, directory):
    """`cat @status` prints the data directory, the mode and the numbers of topics and partitions."""
    expected = f"directory {directory}\nmode read-only\ntopics 1\npartitions 2\nisolation read_committed\n"
    assert (0, expected.encode(), b"") == clicks("cat", "@status")


def test_isolation_is_that_of_the_command(clicks):
    """`cat @status` shows the isolation that was passed to the command."""
    level = Isolation.READ_UNCOMMITTED.value
    assert f"isolation {level}" in clicks("cat", "--isolation", level, "@status").text


def test_a_topics_log_is_merged_by_time(clicks):
    """A topic's log is merged by timestamp."""
    expected = "".join(f"{n} of {number}\n" for n in range(4) for number in (0, 1))
    assert expected == clicks("cat", "clicks/log").text


def test_paths_are_those_of_a_shell(clicks):
    """Paths are resolved as in a shell: extra slashes are ignored, `..` goes up. A partition's path means its log."""
    expected = clicks("cat", "clicks/0/log").output
    for path in ("/clicks/0", "clicks//0/", "clicks/1/../0/log"):
        assert (0, expected, b"") == clicks("cat", path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "clicks",
            "clicks: is a directory; choose a file in it; clicks/log has the records of all partitions (it has ",
        ),
        (
            "clicks/0/segments",
            f"clicks/0/segments: is a directory; choose a file in it (it has {SEGMENT}.log, {SEGMENT}.index, ",
        ),
        ("clicks/0/log/log", "clicks/0/log/log: Not a directory"),
        ("clicks/0/segments/none", f"clicks/0/segments/none: {os.strerror(2)}"),
        ("absent/config", "absent: no such topic"),
        ("clicks/0/follow", "clicks/0/follow: waits for records without end; "),
        ("clicks/follow.kv", "clicks/follow.kv: waits for records without end; "),
    ],
)
def test_a_path_that_cannot_be_read_prints_the_cause(clicks, path, message):
    """If a path cannot be read, `cat` prints one line with path and cause, but no records, and ends with status 1."""
    ran = clicks("cat", path)
    assert (1, b"", 1) == (ran.status, ran.output, len(ran.errors.splitlines()))
    assert f"topicfs: {message}" == ran.errors.decode().rstrip("\n")[: 9 + len(message)]


def test_an_empty_partition_has_no_first_record(topicfs):
    """`earliest` of an empty partition is an error that gives the reason."""
    topicfs("topics", "create", "orders")
    assert (1, b"", b"topicfs: orders/0/earliest: no record is visible\n") == topicfs(
        "cat", "orders/0/earliest"
    )


def test_a_directory_of_many_names_is_not_listed_whole(topicfs):
    """The error for a directory lists only some of its names."""
    topicfs("topics", "create", "wide", "--partitions", "40")
    assert topicfs("cat", "wide").errors.endswith(b", 16, 17 and 22 more)\n")


def test_follow_takes_a_partition(clicks):
    """`--follow` requires a partition, or a file of a partition that grows."""
    assert_refused(clicks("cat", "--follow", "clicks/log"), "add a partition")
    assert_refused(clicks("cat", "--follow", "clicks/0/start"), "clicks/0/start does not grow", status=2)


def test_nothing_is_written_by_reading(clicks, directory, monkeypatch, tmp_path):
    """`cat` writes no files, either in the data directory or in the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    for path in ("clicks/0/log", "clicks/log", "clicks/0/status", "clicks/0/0-1"):
        assert 0 == clicks("cat", path).status
    assert before == {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    assert not (tmp_path / "cache").exists()


@pytest.fixture(params=["orders/0", "orders/log"])
def printing(topicfs, request) -> Iterator[subprocess.Popen[bytes]]:
    """A `cat` that has begun to print a topic larger than a pipe's buffer."""
    topicfs("topics", "create", "orders")
    topicfs("append", "orders/0", stdin=b"x" * 1000 * 8 + b"\n" + b"y" * 999 * 1000 + b"\n")
    topicfs("append", "orders/0", stdin=(b"z" * 999 + b"\n") * 2000)

    command = [TOPICFS, "cat", request.param]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as cat:
        assert b"xxx" == cat.stdout.read(3)
        yield cat


def test_a_reader_that_goes_away_ends_it_quietly(printing):
    """If a program such as `| head` stops reading the output, `cat` ends with status 0 and no message."""
    printing.stdout.close()
    assert (0, b"") == (printing.wait(), printing.stderr.read())


def test_ctrl_c_ends_it_quietly(printing):
    """Ctrl-C ends `cat` with status 130; no message is printed."""
    printing.send_signal(signal.SIGINT)
    printing.stdout.read()
    assert (130, b"") == (printing.wait(), printing.stderr.read())
