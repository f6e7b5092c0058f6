"""Commands while a daemon owns the directory: they read its files, and write through its mount."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.waiting import wait_until
from topicfs.commands import append, topics
from topicfs.fusefs.following.signals import Look
from topicfs.groups import location
from topicfs.groups.location import serving_mount
from topicfs.places import Place

pytestmark = pytest.mark.fuse

TOPICFS = Path(sys.executable).with_name("topicfs")


@pytest.fixture
def mnt(orders, directory, tmp_path) -> Iterator[Path]:
    """The mount of a daemon that owns the directory, with a topic of three records; it has a schema of the topic."""
    mountpoint, schemas = tmp_path / "mnt", tmp_path / "schemas"
    mountpoint.mkdir()
    schemas.mkdir()
    (schemas / "7.avsc").write_text('"int"')
    (schemas / "orders-value.avsc").symlink_to("7.avsc")
    (tmp_path / "server.properties").write_text("num.partitions=2\n")
    asked = [
        "mount",
        "--config",
        "server.properties",
        "--schema-dir",
        "schemas",
        str(directory),
        str(mountpoint),
    ]
    subprocess.run([str(TOPICFS), *asked], check=True)
    try:
        yield mountpoint
    finally:
        subprocess.run([str(TOPICFS), "umount", str(mountpoint)], check=True)


def test_reading_says_nothing_of_the_daemon(mnt):
    """All that it has appended is shown; the log of a process is its own, so this is one."""
    with (mnt / "orders/0/log").open("a") as file:
        file.write("four\n")
    ran = subprocess.run([str(TOPICFS), "cat", "orders/0"], capture_output=True, check=False)
    assert (0, b"one\ntwo\nthree\nfour\n", b"") == (ran.returncode, ran.stdout, ran.stderr)


@pytest.mark.parametrize("place", ["mnt", "mnt/orders"])
@pytest.mark.parametrize(
    "words", [("topics", "list", "-d"), ("append", "orders/0", "-d"), ("check",), ("mount", "--nonempty")]
)
def test_a_mount_is_no_data_directory(orders, mnt, directory, words, place):
    """The message names the directory behind it, and moves nobody's files."""
    where = [place, "data"] if words[0] == "mount" else [place]
    ran = subprocess.run([str(TOPICFS), *words, *where], capture_output=True, check=False)
    expected = f"{Path(place).absolute()}: lies in a mount of topicfs; name what is behind it: {directory}\n"
    assert (1, f"topicfs: {expected}") == (ran.returncode, ran.stderr.decode())


def test_lines_are_appended_through_the_mount(orders, mnt):
    """From standard input, and from a file, which is checked first; a last line without its end is a record, too."""
    Path("lines").write_text("five\nsix")
    assert (0, b"") == orders("append", "orders/0", stdin=b"four\n")[:2]
    assert (0, b"") == orders("append", "orders", "lines")[:2]
    assert "one two three four five six" == " ".join((mnt / "orders/0/log").read_text().split())
    Path("wrong").write_text('{"payload":"seven"}\nno JSON\n')
    ran = orders("append", "orders/0/log.json", "wrong")
    assert (1, True) == (ran.status, b"line 2: no JSON" in ran.errors)
    assert b"nothing was appended" in ran.errors
    assert 6 == len((mnt / "orders/0/log").read_text().split())
    batches = orders("cat", "orders/0/log.batch").output
    assert (0, b"") == orders("append", "orders/0/log.batch", stdin=batches)[:2]
    assert 12 == len((mnt / "orders/0/log").read_text().split())


def test_a_killed_append_leaves_whole_lines(mnt):
    """A mount takes a begun line for a record when its program ends: each request ends with a line."""
    lines = [b"%d %s end" % (number, b"x" * (number % 997)) for number in range(100_000)]
    Path("lines").write_bytes(b"\n".join(lines))
    log = mnt / "orders/1/log"
    log.parent.mkdir()
    with subprocess.Popen([str(TOPICFS), "append", "orders/1", "lines"]) as appending:
        wait_until(lambda: log.stat().st_size > 0, "some lines are appended")
        appending.kill()
    kept = log.read_bytes().splitlines()
    assert lines[: len(kept)] == kept
    block = b"\n".join(lines[:3000])
    written = list(append.requests(block))
    assert block == b"".join(written)
    assert {10} == {one[-1] for one in written[:-1]}
    assert max(map(len, written)) <= append.REQUEST_BYTES


def test_a_line_of_several_requests_is_appended_whole(orders, mnt):
    """Nothing ends its requests but their size."""
    line = b"x" * (3 * append.REQUEST_BYTES)
    assert 0 == orders("append", "orders/0", stdin=b"four\n" + line + b"\nfive").status
    assert [b"four", line, b"five"] == (mnt / "orders/0/log").read_bytes().splitlines()[3:]


def test_a_file_is_encoded_by_the_schemas_of_the_daemon(orders, mnt):
    """Only the daemon knows where its schemas are, so that the command does not check the lines first."""
    Path("lines").write_text('{"payload":4}\n')
    assert (0, b"") == orders("append", "orders/0/log.avro.json", "lines")[:2]
    assert 4 == json.loads((mnt / "orders/0/3.avro.json").read_text())["payload"]


@pytest.mark.parametrize("words", [("--producer", "p"), ("--compression", "zstd"), ("--schema-dir", ".")])
def test_what_a_mount_cannot_do_names_it(orders, mnt, words):
    """The daemon's own options hold there: nothing is appended otherwise than it was asked for."""
    Path("lines").write_text("four\n")
    ran = orders("append", *words, "orders/0", "lines")
    assert 1 == ran.status
    assert f"go through its mount: cat lines >> {mnt}/orders/0/log".encode() in ran.errors
    assert "one two three" == " ".join((mnt / "orders/0/log").read_text().split())


def test_topics_are_created_through_the_mount(orders, mnt):
    """With partitions and settings; names and settings are looked at before the first is made."""
    ran = orders("topics", "create", "a", "b", "--partitions", "3", "--config", "retention.ms=5000")
    assert (0, "a: created with 3 partitions\nb: created with 3 partitions\n") == (ran.status, ran.text)
    assert [0, 1, 2] == sorted(int(one.name) for one in (mnt / "b").iterdir() if one.name.isdecimal())
    assert "retention.ms=5000" in (mnt / "b/config").read_text().splitlines()
    assert "c: created with 2 partitions\n" == orders("topics", "create", "c").text
    for words, reason in [
        (("d", "orders"), b"orders: the topic exists already"),
        (("d", "e@f"), b"a topic's name has only"),
        (("d", "--config", "retention.ms=soon"), b"retention.ms=soon: must be a whole number"),
        (("d", "--partitions", "1"), b"d: the daemon makes at least 2 partitions (num.partitions)"),
    ]:
        ran = orders("topics", "create", *words)
        assert (1, True) == (ran.status, reason in ran.errors), ran
    assert ["a", "b", "c", "orders"] == sorted(one.name for one in mnt.iterdir() if one.name[0] != "@")


@pytest.mark.parametrize("words", [(), ("--partitions", "1")])
def test_no_topic_is_made_in_the_directory_below_a_mount_that_has_ended(orders, tmp_path, monkeypatch, words):
    """The daemon may end after the command found its mount: mkdir would make an ordinary directory then."""
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.setattr(topics, "serving_mount", lambda _place: below)
    ran = orders("topics", "create", "a", *words)
    assert (1, f"topicfs: {below}: its mount has ended; run the command again\n") == (
        ran.status,
        ran.errors.decode(),
    )
    assert [] == list(below.iterdir())


def test_settings_are_changed_through_the_mount(orders, mnt):
    """All of them or none, and shown as the daemon has them then."""
    ran = orders("config", "orders", "retention.ms=5000", "cleanup.policy=compact")
    assert (0, "orders: retention.ms=5000\norders: cleanup.policy=compact\n") == (ran.status, ran.text)
    ran = orders("config", "orders", "retention.ms=6000", "cleanup.policy=shred")
    assert (1, True) == (ran.status, b"cleanup.policy=shred" in ran.errors)
    ran = orders("config", "orders", "retention.m=")
    assert (1, True) == (ran.status, b"retention.m: no such topic setting; did you mean" in ran.errors)
    assert (
        "orders: cleanup.policy=delete (the default)\n" == orders("config", "orders", "cleanup.policy=").text
    )
    shown = json.loads(orders("config", "orders", "--set", "--json").text)
    assert [("retention.ms", "5000")] == [(one["name"], one["value"]) for one in shown]


def test_a_mount_of_another_user_is_not_written_to(orders, mnt, directory, monkeypatch):
    """Root's is, and one's own: whoever serves a mount gets what is written to it."""
    place = Place((directory,))
    assert mnt == serving_mount(place)
    for user, expected in ((os.geteuid(), mnt), (0, mnt), (os.geteuid() + 1, None)):
        monkeypatch.setattr(location, "look", lambda _, user=user: Look(1, stuck=False, pending=0, user=user))
        assert expected == serving_mount(place)
    assert f"go through its mount: cat >> {mnt}".encode() in orders("append", "orders/0", stdin=b"x\n").errors
