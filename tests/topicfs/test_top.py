"""Tests of `topicfs top` of a directory with or without a writer, of a mount, and on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.doubles.engines import append_lines
from tests.doubles.waiting import TIMEOUT_SECONDS
from tests.topicfs.conftest import TOPICFS, mounted
from topicfs.commands.top import source_of
from topicfs.coordination.membership import Position
from topicfs.places import Place
from topicfs.replication import open_engine
from topicfs.storage.model import TopicPartition
from topicfs.top.engine_source import EngineSource
from topicfs.top.mount_source import MountSource, parse_metrics
from topicfs.top.samples import PartitionSample


def test_a_table_of_a_directory(orders):
    """Without a terminal, `top` prints one table with all columns and ends."""
    ran = orders("top", "--interval", "0.1")
    assert (0, b"") == (ran.status, ran.errors)
    head, line = ran.text.splitlines()
    assert ["topic", "records/s", "bytes/s", "partitions", "records", "end", "size", "lag"] == head.split()[
        :8
    ]
    assert ["orders", "0", "0", "B", "1", "3", "3"] == line.split()[:7]


def test_an_object_for_programs(orders, directory):
    """The option --json prints one object on one line. A number that is not known is null."""
    ran = orders("top", "--json", "--interval", "0.1", str(directory))
    found = json.loads(ran.text)
    (topic,) = found["topics"]
    assert ("orders", 3, 3, 0.0, None, []) == tuple(
        topic[name] for name in ("topic", "records", "end_offsets", "records_per_second", "lag", "readers")
    )
    assert str(directory) == found["place"]
    assert [str(directory)] == [one["path"] for one in found["disks"]]


def test_an_invalid_place_gives_a_one_line_error(topicfs):
    """A place that is not a data directory prints one line of error; the status is 1."""
    ran = topicfs("top", "--interval", "0.1", "/etc")
    assert (1, b"", 1) == (ran.status, ran.output, len(ran.errors.splitlines()))


def test_an_interval_that_is_too_short_is_a_usage_error(orders):
    """An interval below a tenth of a second is a usage error."""
    assert 2 == orders("top", "--interval", "0").status


def test_what_a_writer_appends_meanwhile_is_counted(tmp_path):
    """While an engine owns the directory, `top` shows appends and lags of the engine's topics."""
    data = tmp_path / "data"
    with closing(open_engine(data)) as engine:
        partitions = engine.create_topic("orders", partitions=2).partitions()
        append_lines(partitions[0], "a\nb\n", timestamp=2000)
        engine.groups.set_positions("billing", {TopicPartition("orders", 0): Position(0)})
        source = EngineSource(Place((data,)), "data")
        first = source.sample().topics["orders"]
        append_lines(partitions[1], "c\n", timestamp=3000)
        second = source.sample().topics["orders"]
        assert (2, 3) == (first.appended_records, second.appended_records)
        assert second.log_bytes > first.log_bytes
        assert {"billing": 2} == second.lags


def test_metrics_are_read_as_they_were_written():
    """`parse_metrics` leaves out histograms, and returns the values of labels in the order of the labels' names.

    A label's value may be any text.
    """
    text = 'a_total{x="1",b="q\\"\\\\\\n"} 5.0\n# TYPE h histogram\nh_bucket{le="+Inf"} 1.0\nh_count 1.0\nh_sum 2.0\n'
    assert {('q"\\\n', "1"): 5.0} == parse_metrics(f"# TYPE a counter\n{text}")["a_total"]


@contextmanager
def terminal(*words: str, columns: int = 80, lines: int = 24, **variables: str) -> Iterator[Terminal]:
    """Run `topicfs` with the given words on a new terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    environment |= variables
    with subprocess.Popen(
        [TOPICFS, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    ) as program:
        found = Terminal(ours, theirs, program)
        try:
            yield found
        finally:
            program.kill()
            os.close(ours)
            os.close(theirs)


class Terminal:
    """A terminal, and the program that runs on it."""

    def __init__(self, ours: int, theirs: int, program: subprocess.Popen[bytes]) -> None:
        self.ours, self.theirs, self.program = ours, theirs, program

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def until(self, pattern: str) -> str:
        """Read from the terminal until the output matches `pattern`, and return this output."""
        said, ends = "", time.monotonic() + TIMEOUT_SECONDS
        while not re.search(pattern, said, re.DOTALL):
            assert time.monotonic() < ends, said
            if select.select([self.ours], [], [], 0.1)[0]:
                said += os.read(self.ours, 65_536).decode(errors="replace")
        return said


@pytest.mark.slow
def test_the_screen_at_a_terminal(orders, directory):
    """On a terminal, keys sort and filter the rows and open a topic; at the end the terminal is restored."""
    orders("topics", "create", "clicks")
    with terminal("top", "--interval", "0.1", str(directory)) as screen:
        before = termios.tcgetattr(screen.theirs)
        screen.until(r"clicks.*orders.*q quit")
        screen.press("e")
        screen.until(r"end▼.*orders.*clicks")
        screen.press("/")
        screen.press("ord\r")
        assert "clicks" not in screen.until(r"esc: all topics.*/ord").rpartition("topic")[2]
        screen.press("\r")
        screen.until(r"partition.*end.*records/s.*online.*writers.*readers")
        screen.press("\x1b")
        screen.until(r"orders.*esc: all topics")
        screen.press("\x1b")
        screen.until(r"clicks")
        screen.press("q")
        screen.until(r"\x1b\[\?1049l")  # Read to the end, so that the program can write all of its output.
        assert 0 == screen.program.wait(TIMEOUT_SECONDS)
        assert before == termios.tcgetattr(screen.theirs)


SELECTED = r"\x1b\[1;7m{} "
COLOR = re.compile(r"\x1b\[(?:\d+;)*3[0-7]m")


@pytest.mark.slow
def test_keys_at_a_terminal(orders, directory):
    """Arrow keys, page keys, Home and End move the selection, in both modes of the terminal."""
    for number in range(40):
        orders("topics", "create", f"t{number:02}")
    with terminal("top", "--interval", "60", str(directory)) as screen:
        screen.until(r"more topics")
        screen.press("n")
        assert COLOR.search(screen.until(SELECTED.format("orders")))
        moves = [
            ("\x1b[B", "t00"),
            ("\x1bOB", "t01"),
            ("\x1b[A", "t00"),
            ("\x1b[F", "t39"),
            ("\x1b[1~", "orders"),
        ]
        for keys, expected in [
            *moves,
            ("\x1b[4~", "t39"),
            ("\x1b[H", "orders"),
            ("\x1b[6~", "t18"),
            ("\x1b[5~", "orders"),
        ]:
            screen.press(keys)
            screen.until(SELECTED.format(expected))
        screen.press("?")
        screen.until("sort by name.*any key")
        screen.press("q")
        assert 0 == screen.program.wait(TIMEOUT_SECONDS)


@pytest.mark.slow
def test_no_color_where_none_is_wanted(orders, directory):
    """With NO_COLOR the output has no colors."""
    del orders
    with terminal("top", str(directory), NO_COLOR="1") as screen:
        assert not COLOR.search(screen.until(r"q quit"))


@pytest.mark.fuse
@pytest.mark.parametrize("named", ["mountpoint", "directory"])
def test_a_mount_shows_who_reads_and_writes(orders, directory, tmp_path, named):
    """`top` of a mount, named by mountpoint or directory, shows its readers, writers and rates."""
    with mounted(directory, tmp_path / "mnt") as mountpoint:
        source = source_of(Place((mountpoint if named == "mountpoint" else directory,)))
        assert isinstance(source, MountSource)
        with (
            (mountpoint / "orders/0/log").open("ab", buffering=0) as writer,
            subprocess.Popen(
                ["tail", "-f", str(mountpoint / "orders/0/log")], stdout=subprocess.PIPE
            ) as tail,
        ):
            writer.write(b"four\n")
            assert b"four\n" in b"".join(tail.stdout.readline() for _ in range(4))
            found = source.sample().topics["orders"]
            assert (1, 4, 4) == (found.appended_records, found.records, found.end_offsets)
            assert (f"tail ({tail.pid})",) == found.readers
            assert [True] == [one.endswith(f"({os.getpid()})") for one in found.writers]
            tail.kill()
        expected = [PartitionSample(number=0, start_offset=0, end_offset=4, state="online")]
        assert (
            expected
            == source.partitions("orders")
            == EngineSource(Place((directory,)), "").partitions("orders")
        )
        ran = orders("top", "--once", "--interval", "0.1", str(mountpoint))
        assert (0, b"") == (ran.status, ran.errors)
        assert "orders" in ran.text
