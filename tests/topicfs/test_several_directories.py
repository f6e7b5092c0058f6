"""Tests of commands over two data directories, and of commands that reopen offline partitions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.topicfs.conftest import assert_refused
from topicfs.commands.topics import through_mount
from topicfs.storage.disk.lock import DirectoryLock

BOTH = "a,b"


@pytest.fixture
def two(topicfs, monkeypatch):
    """Two directories with a topic of two partitions, one line in each partition."""
    monkeypatch.setenv("TOPICFS_DATA", BOTH)
    topicfs("topics", "create", "orders", "--partitions", "2")
    for number in (0, 1):
        topicfs("append", f"orders/{number}", stdin=f"line {number}\n".encode())
    return topicfs


def test_commands_take_several_directories(two):
    """Commands accept several directories in --data, in the environment or as an argument."""
    assert [True, True] == [Path("a/orders-0").is_dir(), Path("b/orders-1").is_dir()]
    assert [b"line 0\n", b"line 1\n"] == [two("cat", f"orders/{number}").output for number in (0, 1)]
    assert b"line 1" == two("cat", "orders/1/0", "--data", "a, b").output
    assert "orders\n" == two("topics", "list").text
    assert (0, 2) == (
        two("topics", "describe", "orders").status,
        len(list(Path("b").glob("orders-1/*.log"))) + 1,
    )
    assert "offset 0" in two("explain", "orders/1/0").text
    ran = two("check", BOTH)
    assert (0, b"") == ran[:2]
    assert b"no findings in 2 partitions" in ran.errors
    assert 0 == two("topics", "delete", "orders", "--with-records").status
    assert "" == two("topics", "list").text


def test_one_directory_shows_its_own_partitions(two, caplog):
    """A command that gets only one of the directories shows its partitions, and warns about the missing partitions."""
    ran = two("topics", "describe", "orders", "--data", "a")
    assert "orders: not in " in caplog.text
    assert "\n0 " in ran.text
    assert "\n1 " not in ran.text


def test_a_partition_in_both_is_found_and_refused(two):
    """If a partition is in both directories, `check` reports it, and the directories cannot be opened."""
    Path("b/orders-0").mkdir()
    ran = two("check", BOTH)
    assert 1 == ran.status
    assert [
        line for line in ran.text.splitlines() if line.startswith("b/orders-0: orders-0 is in a, too")
    ] != []
    assert "is in " in two("cat", "orders/0").errors.decode()


def test_an_empty_list_is_a_misuse(two):
    """An empty list of directories is a usage error."""
    assert 2 == two("topics", "list", "--data", ",").status


def test_a_missing_directory_is_reported(two):
    """A missing directory is an error, and is not created."""
    assert b"c: no such directory" in two("topics", "list", "--data", "a,c").errors
    assert not Path("c").exists()


def test_what_was_repaired_is_online_again(two):
    """If a partition is damaged, `topics online` prints why the partition is offline, and ends with status 1.

    After a repair the command reopens the partition.
    """
    epochs = Path("b/orders-1/leader-epoch-checkpoint")
    good = epochs.read_bytes()
    epochs.write_bytes(b"rubbish\n")
    ran = two("topics", "online")
    assert 1 == ran.status
    assert ran.text.startswith("orders/1: offline: ")
    assert "leader-epoch-checkpoint" in ran.text
    epochs.write_bytes(good)
    assert (0, b"orders/0: online\norders/1: online\n") == two("topics", "online", "orders")[:2]
    assert (0, b"", b"nothing is offline\n") == two("topics", "online")
    assert b"line 1\n" == two("cat", "orders/1").output


@pytest.mark.parametrize("words", [("orders/log",), ("orders/1",), ("orders/log", "--format", "csv")])
def test_records_of_a_partition_that_is_offline_are_not_passed_over(two, words):
    """Reading an offline partition fails with an error that names it, because its records are unknown."""
    Path("b/orders-1/leader-epoch-checkpoint").write_bytes(b"rubbish\n")
    assert_refused(two("cat", *words), "orders-1: ")


def test_a_topic_is_not_taken_for_empty_while_a_partition_is_offline(two):
    """Deleting a topic with an offline partition requires --with-records, because the partition may have records."""
    two("topics", "create", "half", "--partitions", "2")
    two("append", "half/1", stdin=b"kept\n")
    (path,) = Path().glob("[ab]/half-1/leader-epoch-checkpoint")
    good = path.read_bytes()
    path.write_bytes(b"rubbish\n")
    ran = two("topics", "delete", "half")
    assert (1, b"") == ran[:2]
    assert "half-1: " in ran.errors.decode()
    path.write_bytes(good)
    assert b"kept\n" == two("cat", "half/1").output
    path.write_bytes(b"rubbish\n")
    assert 0 == two("topics", "delete", "half", "--with-records").status


def test_a_daemon_without_a_mount_cannot_be_asked(two):
    """If a process owns the directory but has no mount, the error names the process, and nothing is done."""
    lock = DirectoryLock(Path("b"))
    try:
        ran = two("topics", "online")
    finally:
        lock.release()
    assert (1, b"") == ran[:2]
    assert f"in use by process {os.getpid()}, which has no visible mount" in ran.errors.decode()


def test_a_daemon_is_asked_partition_by_partition(tmp_path):
    """Through a mount, only the offline partitions are reopened, in the order of their numbers."""
    for number, state in ((0, "online"), (2, "offline: broken"), (10, "offline: broken too")):
        partition = tmp_path / "orders" / str(number)
        partition.mkdir(parents=True)
        (partition / "status").write_text(f"state {state}\nlog_start_offset 0\n")
        (partition / "state").write_text("")
    assert [("orders/2", "offline: broken"), ("orders/10", "offline: broken too")] == list(
        through_mount(tmp_path, ())
    )
    assert ["", "online\n", "online\n"] == [
        (tmp_path / "orders" / number / "state").read_text() for number in ("0", "2", "10")
    ]
    assert [("orders/0", "online")] == list(through_mount(tmp_path, ("orders/0",)))
