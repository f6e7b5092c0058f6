"""`topicfs work`: a command for each record of a queue."""

from __future__ import annotations

from pathlib import Path

from tests.topicfs.conftest import Topicfs


def test_each_record_is_a_run(orders: Topicfs, tmp_path: Path):
    """The value on standard input, and what else is known of it in the environment."""
    out = tmp_path / "out"
    script = f'echo "$(cat) $TOPICFS_TOPIC $TOPICFS_PARTITION $TOPICFS_OFFSET ${{TOPICFS_KEY-none}}" >> {out}'
    ran = orders("work", "g", "orders", "--drain", "--", "sh", "-c", script)

    assert (0, b"") == (ran.status, ran.errors)
    assert [
        "one orders 0 0 none",
        "two orders 0 1 none",
        "three orders 0 2 none",
    ] == out.read_text().splitlines()
    assert 0 == orders("work", "g", "orders", "--drain", "--", "sh", "-c", script).status
    assert 3 == len(out.read_text().splitlines()), "what was accepted is done"


def test_exit_statuses(orders: Topicfs, tmp_path: Path):
    """65 rejects; any other than 0 gives back, and the record comes again, five times in all."""
    out = tmp_path / "out"
    script = f"job=$(cat); echo $job >> {out}; case $job in one) exit 65;; two) exit 1;; esac"
    ran = orders("work", "g", "orders", "--drain", "--", "sh", "-c", script)
    runs = out.read_text().split()

    assert {"one": 1, "two": 5, "three": 1} == {job: runs.count(job) for job in set(runs)}
    assert b"orders-0-0: exit status 65: rejected" in ran.errors
    assert b"orders-0-1: exit status 1: given back" in ran.errors


def test_several_at_a_time(orders: Topicfs, tmp_path: Path):
    """Each record once all the same."""
    out = tmp_path / "out"
    orders("append", "orders/0", stdin=b"".join(b"%d\n" % n for n in range(20)))
    ran = orders(
        "work",
        "g",
        "orders",
        "--drain",
        "--jobs",
        "4",
        "--",
        "sh",
        "-c",
        f"cat | tee -a {out}.$$; echo >> {out}.$$",
    )
    done = sorted(path.read_text().strip() for path in tmp_path.glob("out.*"))

    assert 0 == ran.status
    assert sorted(["one", "two", "three", *map(str, range(20))]) == done


def test_a_topic_that_is_not_there(orders: Topicfs):
    """One line, and nothing is made."""
    ran = orders("work", "g", "clicks", "--drain", "--", "true")

    assert 1 == ran.status
    assert b"clicks: no such topic" in ran.errors


def test_a_command_that_is_not_there(orders: Topicfs):
    """The record is not lost for it."""
    assert 1 == orders("work", "g", "orders", "--drain", "--", "/no/such/command").status

    assert 0 == orders("work", "g", "orders", "--drain", "--", "true").status
