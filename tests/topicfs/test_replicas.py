"""Tests of `topicfs replicas`, `topics replicas` and `topics create --replicas`, without a mount."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.topicfs.conftest import BOTH, assert_refused


def roles(listing: str) -> list[tuple[str, str]]:
    """Return the directory and the role in each line of `replicas list`."""
    return [(Path(line.split()[2]).name, line.split()[3]) for line in listing.splitlines()]


def test_replicas_are_listed(replicated):
    """`replicas list` prints each replica with directory, role and log end."""
    listed = replicated("replicas", "list").text
    assert [("a", "leader"), ("b", "in_sync")] == roles(listed)
    assert ["2", "2"] == [line.split()[5] for line in listed.splitlines()]
    assert listed == replicated("replicas", "list", "orders").text


def test_both_directories_have_what_was_appended(replicated):
    """Each directory has the appended records, and can be read without the other directory."""
    assert b"one\ntwo\n" == replicated("cat", "orders/0/log").output
    assert [b"two", b"two"] == [replicated("cat", "orders/0/1", "--data", name).output for name in ("a", "b")]


def test_the_number_of_replicas_is_changed(replicated):
    """`topics replicas` can remove a replica, and can add a replica and copy the records to it."""
    assert 0 == replicated("topics", "replicas", "orders", "1").status
    assert [("a", "leader")] == roles(replicated("replicas", "list").text)
    assert not Path("b/orders-0").exists()
    assert 0 == replicated("topics", "replicas", "orders", "2").status
    assert [("a", "leader"), ("b", "in_sync")] == roles(replicated("replicas", "list").text)
    assert b"one\ntwo\n" == replicated("cat", "orders/0/log", "--data", "b").output


def test_more_replicas_than_directories_are_refused(replicated):
    """A number of replicas above the number of directories is refused, and nothing changes."""
    ran = replicated("topics", "replicas", "orders", "3")
    assert_refused(ran, "3 replicas: 1 to 2 are possible, one in each serving data directory")
    assert [("a", "leader"), ("b", "in_sync")] == roles(replicated("replicas", "list").text)


def test_a_topic_is_created_with_replicas(replicated):
    """`topics create` creates as many replicas as --replicas says. The default is the same as for a mount."""
    assert 0 == replicated("topics", "create", "single", "--replicas", "1").status
    assert 0 == replicated("topics", "create", "double").status
    assert [1, 2] == [len(roles(replicated("replicas", "list", name).text)) for name in ("single", "double")]


def test_a_topic_that_cannot_have_its_replicas_is_not_created(replicated):
    """If a topic cannot have the requested number of replicas, it is not created."""
    ran = replicated("topics", "create", "more", "--replicas", "3")
    assert_refused(ran, "3 replicas: 1 to 2 are possible")
    assert "orders\n" == replicated("topics", "list").text


def test_the_leadership_is_given_back(replicated):
    """`replicas elect --preferred` changes nothing if the preferred replicas already lead."""
    assert 0 == replicated("replicas", "elect", "--preferred").status
    assert [("a", "leader"), ("b", "in_sync")] == roles(replicated("replicas", "list").text)


def test_an_unclean_election_goes_on_with_what_a_directory_has(replicated):
    """After `replicas elect --unclean` the replica in the named directory leads."""
    assert 0 == replicated("replicas", "elect", "--unclean", "orders/0", "b").status
    assert ("b", "leader") in roles(replicated("replicas", "list").text)
    assert b"one\ntwo\n" == replicated("cat", "orders/0/log").output


def test_elections_say_what_is_missing(replicated):
    """Missing or conflicting options of an election are a usage error."""
    for words in ((), ("--preferred", "--unclean"), ("--unclean",), ("--preferred", "orders/0", "b")):
        assert 2 == replicated("replicas", "elect", *words).status
    ran = replicated("replicas", "elect", "--unclean", "orders/0", "c")
    assert_refused(ran, "has no available replica in")


def test_a_replica_is_moved_and_a_move_is_cancelled(replicated):
    """`replicas move` moves a replica; a move or cancellation that is impossible fails with the reason."""
    assert 0 == replicated("topics", "create", "single", "--replicas", "1").status
    assert 0 == replicated("append", "single/0", stdin=b"one\ntwo\n").status
    ((source, _),) = roles(replicated("replicas", "list", "single").text)
    target = "b" if source == "a" else "a"
    assert 0 == replicated("replicas", "move", "single/0", target).status
    assert [(target, "leader")] == roles(replicated("replicas", "list", "single").text)
    assert b"one\ntwo\n" == replicated("cat", "single/0/log").output
    for words, reason in (
        (("single/0", target), "already has a replica"),
        (("single/0", "c"), "is not one of the data directories"),
        (("single/0", "--cancel"), "no replica is being moved"),
        (("orders/0", "c", "--from", "a"), "is not one of the data directories"),
    ):
        assert_refused(replicated("replicas", "move", *words), reason)
    for wrong in (("single/0",), ("single/0", "b", "--cancel"), ("single/0", "--cancel", "--from", "a")):
        assert 2 == replicated("replicas", "move", *wrong).status


def test_a_replica_that_alone_has_records_stays(replicated):
    """The number of replicas is not reduced if the replica to remove has records that the other replica lacks."""
    assert 0 == replicated("config", "orders", "internal.segment.bytes=90").status
    for line in (b"three\n", b"four\n", b"five\n"):
        assert 0 == replicated("append", "orders/0", stdin=line).status
    (gap, other) = sorted(Path("a/orders-0").glob("*.log"))[1:3]
    gap.unlink()
    (Path("b/orders-0") / other.name).unlink()
    whole = b"one\ntwo\nthree\nfour\nfive\n"
    assert whole == replicated("cat", "orders/0/log").output
    for _ in range(2):  # Each of the two commands opens the directories again.
        before = {path: path.stat().st_size for path in Path().glob("[ab]/orders-0/*.log")}
        ran = replicated("topics", "replicas", "orders", "1")
        assert_refused(ran, f"orders-0: only {Path('b').absolute()} has offsets {int(gap.stem)} to ")
        assert before == {path: path.stat().st_size for path in Path().glob("[ab]/orders-0/*.log")}
        assert whole == replicated("cat", "orders/0/log").output


@pytest.mark.fuse
def test_what_a_daemon_refuses_is_said_with_its_reason(replicated, tmp_path):
    """If the daemon of a mount refuses a change, the command prints the daemon's reason."""
    (tmp_path / "mnt").mkdir()
    assert 0 == replicated("mount", "a,b", "mnt").status
    try:
        for words, reason in (
            (("move", "orders/0", "c"), "is not one of the data directories"),
            (("move", "nosuch/0", "a"), "nosuch: no such topic"),
            (("elect", "--unclean", "orders/0", "c"), "has no available replica in"),
        ):
            assert_refused(replicated("replicas", *words), reason)
    finally:
        assert 0 == replicated("umount", "mnt").status


def test_a_check_of_both_finds_nothing(replicated):
    """`check` accepts a partition that is in both directories; `maintain` accepts only one directory at a time."""
    assert b"no findings in 2 partitions" in replicated("check", BOTH).errors
    ran = replicated("maintain", "--dry-run", BOTH)
    assert_refused(ran, "has replicas of the other directories' partitions; name only one directory")
    assert 0 == replicated("maintain", "--dry-run", "a").status
