"""Tests of `topicfs append` to a disk that fills up: the error says exactly which lines are stored."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import closing
from functools import partial

import pytest

from tests.doubles.small_disk import fill, run, small_disk
from tests.topicfs.conftest import assert_refused, mounted
from topicfs.replication.replicas.startup import open_replicas
from topicfs.storage.config.broker import EngineConfig

pytestmark = pytest.mark.slow

LINES = [b"%07d %s" % (number, b"x" * 100) for number in range(120_000)]
ROOM = 1_700_000
"""Free bytes on the disk: space for one block of lines, and for one or two partitions' parts of the next block."""
TEXT = b"\n".join(LINES) + b"\n"


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path, kind="tmpfs", size_mb=8) as mounted:
        yield mounted


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "it's a file"
    path.write_bytes(TEXT)
    return path


def test_the_rest_of_a_file_is_appended_as_the_error_says(topicfs, disk, source):
    """The first lines of a file are stored, and the command that the error suggests prints the missing lines."""
    data = ("--data", str(disk / "data"))
    topicfs("topics", "create", "orders", *data)
    ran = topicfs("append", "orders/0", str(source), *data)
    assert_refused(ran, "No space left on device")
    said = ran.errors.decode()
    found = re.search(r"; the first (\d+) lines were appended; to print the rest: (tail .*)\n$", said)
    assert found is not None, said
    kept = LINES[: int(found[1])]
    assert 0 < len(kept) < len(LINES)
    assert kept == topicfs("cat", "orders/0", *data).output.splitlines()
    run("mount", "-o", "remount,size=64m", str(disk))
    rest = subprocess.run(["/bin/sh", "-c", found[2]], capture_output=True, check=True).stdout
    assert 0 == topicfs("append", "orders/0", *data, stdin=rest).status
    assert TEXT == topicfs("cat", "orders/0", *data).output


def test_a_topics_lines_are_counted_in_all_partitions(topicfs, disk, source):
    """For a whole topic the error counts the stored lines of all partitions: only some may have stored their part."""
    data = ("--data", str(disk / "data"))
    topicfs("topics", "create", "orders", "--partitions", "3", *data)
    fill(disk)
    os.truncate(disk / "filler", (disk / "filler").stat().st_size - ROOM)
    source.write_bytes(b"".join(b"%s\t%s\n" % tuple(line.split(b" ")) for line in LINES))
    said = topicfs("append", "orders/log.kv", str(source), *data).errors.decode()
    found = re.search(
        r"; (\d+) lines were appended: the first (\d+), and (\d+) of the later ones; with --producer", said
    )
    assert found is not None, said
    total, first, behind = map(int, found.groups())
    keys = sorted(
        line[:7]
        for number in range(3)
        for line in topicfs("cat", f"orders/{number}/log.kv", *data).output.splitlines()
    )
    assert (total, total) == (len(keys), first + behind)
    assert [line[:7] for line in LINES[:first]] == keys[:first]


def test_lines_that_too_few_disks_have_are_an_error(topicfs, disk, source):
    """If too few replicas are in sync, `append` fails but stores the lines once; the next append is refused."""
    both = (disk.parent / "a", disk / "b")
    data = ("--data", ",".join(map(str, both)))
    replicas = partial(open_replicas, both, config=EngineConfig(replication_factor=2), in_background=False)
    with closing(replicas()) as engine:
        engine.create_topic("orders", overrides={"min.insync.replicas": "2"})
    said = topicfs("append", "orders/0", str(source), *data).errors.decode()
    assert (
        f"1 of 2 replicas in sync and min.insync.replicas=2; the first {len(LINES)} lines were appended"
        in said
    )
    for more, outcome in (((), "; nothing was appended"), (("--producer", "again"), "")):
        refused = topicfs("append", "orders/0", str(source), *more, *data)
        assert_refused(refused, f"1 of 2 replicas in sync and min.insync.replicas=2{outcome}\n")
    run("mount", "-o", "remount,size=64m", str(disk))
    with closing(replicas()) as engine:
        engine.catch_up()
    assert TEXT == topicfs("cat", "orders/0", *data).output


def test_a_pipe_says_how_many_lines_were_appended(topicfs, disk):
    """If the input is standard input, the error says how many lines were appended."""
    data = ("--data", str(disk / "data"))
    topicfs("topics", "create", "orders", *data)
    said = topicfs("append", "orders/0", *data, stdin=TEXT).errors.decode()
    found = re.search(r"No space left on device; the first (\d+) lines were appended\n$", said)
    assert found is not None, said
    assert LINES[: int(found[1])] == topicfs("cat", "orders/0", *data).output.splitlines()


@pytest.mark.fuse
@pytest.mark.parametrize("more", [(), ("--compression", "none")])
def test_on_a_full_disk_the_error_counts_the_stored_lines_through_a_mount(topicfs, disk, source, more):
    """Through a mount, the error has the number of stored lines, whether the daemon or the command encodes them."""
    data = disk / "data"
    with mounted(data, disk.parent / "mnt") as mnt:
        (mnt / "orders").mkdir()
        ran = topicfs("append", *more, "orders/0", str(source), "--data", str(data))
        assert_refused(ran, "No space left on device")
        said = ran.errors.decode()
        kept = (mnt / "orders/0/log").read_bytes().splitlines()
        assert LINES[: len(kept)] == kept
        whole = re.search(r"; the first (\d+) lines were appended; to print the rest: tail -n \+(\d+) ", said)
        cut = re.search(r"; the first (\d+) lines were written; (\d+) more records were added", said)
        if whole is not None:
            assert (len(kept), len(kept) + 1) == tuple(map(int, whole.groups()))
        else:
            assert cut is not None, said
            assert len(kept) == sum(map(int, cut.groups()))
        assert 0 < len(kept) < len(LINES)
