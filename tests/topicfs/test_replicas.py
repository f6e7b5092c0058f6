"""Tests of `topicfs replicas`, `topics replicas` and `topics create --replicas`, without a mount."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from topicfs.replication.replicas.startup import open_replicas
from topicfs.storage.config.broker import EngineConfig

BOTH = "a,b"


@pytest.fixture
def two(topicfs, monkeypatch):
    """Two replica directories, with a topic of one partition and two replicas."""
    monkeypatch.setenv("TOPICFS_DATA", BOTH)
    engine = open_replicas(
        [Path("a"), Path("b")], config=EngineConfig(replication_factor=2), in_background=False
    )
    with closing(engine):
        engine.create_topic("orders")
    assert 0 == topicfs("append", "orders/0", stdin=b"one\ntwo\n").status
    return topicfs


def roles(listing: str) -> list[tuple[str, str]]:
    """Return the directory and the role in each line of `replicas list`."""
    return [(Path(line.split()[2]).name, line.split()[3]) for line in listing.splitlines()]


def test_replicas_are_listed(two):
    """`replicas list` prints each replica with directory, role and log end."""
    listed = two("replicas", "list").text
    assert [("a", "leader"), ("b", "in_sync")] == roles(listed)
    assert ["2", "2"] == [line.split()[5] for line in listed.splitlines()]
    assert listed == two("replicas", "list", "orders").text


def test_both_directories_have_what_was_appended(two):
    """Each directory has the appended records, and can be read without the other directory."""
    assert b"one\ntwo\n" == two("cat", "orders/0/log").output
    assert [b"two", b"two"] == [two("cat", "orders/0/1", "--data", name).output for name in ("a", "b")]


def test_the_number_of_replicas_is_changed(two):
    """`topics replicas` can remove a replica, and can add a replica and copy the records to it."""
    assert 0 == two("topics", "replicas", "orders", "1").status
    assert [("a", "leader")] == roles(two("replicas", "list").text)
    assert not Path("b/orders-0").exists()
    assert 0 == two("topics", "replicas", "orders", "2").status
    assert [("a", "leader"), ("b", "in_sync")] == roles(two("replicas", "list").text)
    assert b"one\ntwo\n" == two("cat", "orders/0/log", "--data", "b").output


def test_more_replicas_than_directories_are_refused(two):
    """A number of replicas above the number of directories is refused, and nothing changes."""
    ran = two("topics", "replicas", "orders", "3")
    assert 1 == ran.status
    assert b"3 replicas: 1 to 2 are possible, one in each serving data directory" in ran.errors
    assert [("a", "leader"), ("b", "in_sync")] == roles(two("replicas", "list").text)


def test_a_topic_is_created_with_replicas(two):
    """`topics create` creates as many replicas as --replicas says. The default is the same as for a mount."""
    assert 0 == two("topics", "create", "single", "--replicas", "1").status
    assert 0 == two("topics", "create", "double").status
    assert [1, 2] == [len(roles(two("replicas", "list", name).text)) for name in ("single", "double")]


def test_a_topic_that_cannot_have_its_replicas_is_not_created(two):
    """If a topic cannot have the requested number of replicas, it is not created."""
    ran = two("topics", "create", "more", "--replicas", "3")
    assert (1, True) == (ran.status, b"3 replicas: 1 to 2 are possible" in ran.errors)
    assert "orders\n" == two("topics", "list").text


def test_the_leadership_is_given_back(two):
    """`replicas elect --preferred` changes nothing if the preferred replicas already lead."""
    assert 0 == two("replicas", "elect", "--preferred").status
    assert [("a", "leader"), ("b", "in_sync")] == roles(two("replicas", "list").text)


def test_an_unclean_election_goes_on_with_what_a_directory_has(two):
    """After `replicas elect --unclean` the replica in the named directory leads."""
    assert 0 == two("replicas", "elect", "--unclean", "orders/0", "b").status
    assert ("b", "leader") in roles(two("replicas", "list").text)
    assert b"one\ntwo\n" == two("cat", "orders/0/log").output


def test_elections_say_what_is_missing(two):
    """Missing or conflicting options of an election are a usage error."""
    for words in ((), ("--preferred", "--unclean"), ("--unclean",), ("--preferred", "orders/0", "b")):
        assert 2 == two("replicas", "elect", *words).status
    ran = two("replicas", "elect", "--unclean", "orders/0", "c")
    assert 1 == ran.status
    assert b"has no available replica in" in ran.errors


def test_a_replica_is_moved_and_a_move_is_cancelled(two):
    """`replicas move` moves a replica; a move or cancellation that is impossible fails with the reason."""
    assert 0 == two("topics", "create", "single", "--replicas", "1").status
    assert 0 == two("append", "single/0", stdin=b"one\ntwo\n").status
    ((source, _),) = roles(two("replicas", "list", "single").text)
    target = "b" if source == "a" else "a"
    assert 0 == two("replicas", "move", "single/0", target).status
    assert [(target, "leader")] == roles(two("replicas", "list", "single").text)
    assert b"one\ntwo\n" == two("cat", "single/0/log").output
    for words, reason in (
        (("single/0", target), "already has a replica"),
        (("single/0", "c"), "is not one of the data directories"),
        (("single/0", "--cancel"), "no replica is being moved"),
        (("orders/0", "c", "--from", "a"), "is not one of the data directories"),
    ):
        ran = two("replicas", "move", *words)
        assert 1 == ran.status
        assert reason in ran.errors.decode()
    for wrong in (("single/0",), ("single/0", "b", "--cancel"), ("single/0", "--cancel", "--from", "a")):
        assert 2 == two("replicas", "move", *wrong).status


def test_a_replica_that_alone_has_records_stays(two):
    """The number of replicas is not reduced if the replica to remove has records that the other replica lacks."""
    assert 0 == two("config", "orders", "internal.segment.bytes=90").status
    for line in (b"three\n", b"four\n", b"five\n"):
        assert 0 == two("append", "orders/0", stdin=line).status
    (gap, other) = sorted(Path("a/orders-0").glob("*.log"))[1:3]
    gap.unlink()
    (Path("b/orders-0") / other.name).unlink()
    whole = b"one\ntwo\nthree\nfour\nfive\n"
    assert whole == two("cat", "orders/0/log").output
    for _ in range(2):  # Each of the two commands opens the directories again.
        before = {path: path.stat().st_size for path in Path().glob("[ab]/orders-0/*.log")}
        ran = two("topics", "replicas", "orders", "1")
        assert 1 == ran.status
        assert f"orders-0: only {Path('b').absolute()} has offsets {int(gap.stem)} to " in ran.errors.decode()
        assert before == {path: path.stat().st_size for path in Path().glob("[ab]/orders-0/*.log")}
        assert whole == two("cat", "orders/0/log").output


@pytest.mark.fuse
def test_what_a_daemon_refuses_is_said_with_its_reason(two, tmp_path):
    """If the daemon of a mount refuses a change, the command prints the daemon's reason."""
    (tmp_path / "mnt").mkdir()
    assert 0 == two("mount", "a,b", "mnt").status
    try:
        for words, reason in (
            (("move", "orders/0", "c"), "is not one of the data directories"),
            (("move", "nosuch/0", "a"), "nosuch: no such topic"),
            (("elect", "--unclean", "orders/0", "c"), "has no available replica in"),
        ):
            ran = two("replicas", *words)
            assert (1, True) == (ran.status, reason in ran.errors.decode()), ran
    finally:
        assert 0 == two("umount", "mnt").status


def test_a_check_of_both_finds_nothing(two):
    """`check` accepts a partition that is in both directories; `maintain` accepts only one directory at a time."""
    assert b"no findings in 2 partitions" in two("check", BOTH).errors
    ran = two("maintain", "--dry-run", BOTH)
    assert 1 == ran.status
    assert b"has replicas of the other directories' partitions; name only one directory" in ran.errors
    assert 0 == two("maintain", "--dry-run", "a").status
