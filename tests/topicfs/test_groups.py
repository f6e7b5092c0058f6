"""Tests of `topicfs groups` without a daemon; options and columns have the names of kafka-consumer-groups."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.topicfs.conftest import Topicfs, assert_refused
from topicfs.groups.mount import parse_status
from topicfs.groups.scenarios import export, parse_export


def reset(topicfs: Topicfs, *words: str) -> list[list[str]]:
    """Reset the group `g`, and return the fields of each printed row."""
    ran = topicfs("groups", "reset", "g", *words)
    assert 0 == ran.status, ran.errors
    return [line.split() for line in ran.text.splitlines()[1:]]


def described(orders: Topicfs, group: str) -> dict[str, Any]:
    (found,) = json.loads(orders("groups", "describe", group, "--json").text)
    return dict(found)


def positions(orders: Topicfs, group: str) -> list[int]:
    return [one["position"] for one in described(orders, group)["positions"]]


def test_a_reset_makes_a_group(orders: Topicfs):
    """A reset creates the group, which can then be listed and described."""
    assert "" == orders("groups", "list").text
    assert [["g", "orders", "0", "1"]] == reset(orders, "--topic", "orders", "--to-offset", "1")

    assert ["g"] == orders("groups", "list").text.split()
    listed = orders("groups", "list", "--state").text.split()
    assert ["GROUP", "STATE", "TYPE", "g", "Empty", "consumer"] == listed
    row = orders("groups", "describe", "g").text.splitlines()[1].split()
    assert ["g", "orders", "0", "1", "3", "2", "-", "-"] == row
    assert "Empty" in orders("groups", "describe", "g", "--state").text
    found = described(orders, "g")
    assert (2, "Empty", []) == (found["lag"], found["state"], found["members"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 3),
        (("--to-current",), 1),
        (("--to-offset", "0"), 0),
        (("--to-offset", "2"), 2),
        (("--to-offset", "99"), 3),
        (("--shift-by", "0"), 1),
        (("--shift-by", "1"), 2),
        (("--shift-by", "-5"), 0),
        (("--to-datetime", "2000-01-01T00:00:00.000"), 0),
        (("--to-datetime", "2100-01-01T00:00:00Z"), 3),
        (("--by-duration", "P1D"), 0),
    ],
)
def test_each_option_sets_a_position(orders: Topicfs, words: tuple[str, ...], expected: int):
    """Each option of Kafka for a position works. A position outside the log is moved to the nearest end of the log."""
    reset(orders, "--topic", "orders", "--to-offset", "1")

    assert [["g", "orders", "0", str(expected)]] == reset(orders, "--all-topics", *words)
    assert [expected] == positions(orders, "g")


def test_a_dry_run_changes_nothing(orders: Topicfs):
    """The option --dry-run changes nothing, and --from-file accepts the output of --export."""
    reset(orders, "--topic", "orders:0", "--to-offset", "1")
    assert [["g", "orders", "0", "3"]] == reset(orders, "--all-topics", "--to-latest", "--dry-run")
    exported = orders("groups", "reset", "g", "--all-topics", "--to-current", "--dry-run", "--export").text
    assert "orders,0,1\n" == exported
    reset(orders, "--all-topics", "--to-earliest")
    with open("positions.csv", "w") as file:
        file.write(exported)
    reset(orders, "--from-file", "positions.csv")

    assert [1] == positions(orders, "g")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--topic", "orders:x", "--to-latest"), "partitions are numbers"),
        (("--topic", "orders", "--shift-by", "1"), "no position there"),
        (("--topic", "orders", "--to-datetime", "soon"), "write a time as"),
        (("--topic", "orders", "--by-duration", "1 day"), "write a duration as"),
    ],
)
def test_invalid_options_change_nothing(orders: Topicfs, words: tuple[str, ...], reason: str):
    """Invalid options are reported in one line that gives the reason, and change nothing."""
    ran = orders("groups", "reset", "g", *words)

    assert 0 != ran.status
    assert reason in ran.errors.decode()
    assert "" == orders("groups", "list").text


def test_delete(orders: Topicfs):
    """`groups delete` deletes a group and its positions."""
    reset(orders, "--topic", "orders", "--to-offset", "1")
    assert "g: deleted\n" == orders("groups", "delete", "g").text

    assert b"g: no such group" in orders("groups", "describe", "g").errors
    assert 1 == orders("groups", "delete", "g").status


def test_positions_of_a_topic_are_deleted_alone(orders: Topicfs):
    """`groups delete --topic` deletes only the group's positions in that topic."""
    reset(orders, "--topic", "orders", "--to-offset", "1")

    assert "1 position deleted" in orders("groups", "delete", "g", "--topic", "orders").text
    assert_refused(orders("groups", "describe", "g"), "g: no such group")


def test_a_status_file_is_read_back():
    """The `status` file of a mount can be parsed even if the name of a reader's program contains spaces."""
    text = (
        "state Stable\ngeneration 3\nassignor range\ncoordinator __consumer_offsets-12\nmembers 1\nlag 7\n"
        "member cat-7-x reader my prog 7 topics orders partitions orders-0,a-b-1\n"
        "partition orders-0 position 5 lag 4 committed 1795562696081 2026-11-24T23:24:56.081Z by my prog 7\n"
        "partition a-b-1 position - lag 3\n"
    )
    group = parse_status("g", text)

    assert ("Stable", 3, "range", 7) == (group.state, group.generation, group.assignor, group.lag)
    assert [("my prog 7", (("orders", 0), ("a-b", 1)))] == [
        (one.reader, one.partitions) for one in group.members
    ]
    assert [(5, 9, "my prog 7"), (None, 3, "")] == [
        (one.position, one.end_offset, one.committed_by) for one in group.places
    ]


def test_what_is_exported_is_read_back():
    """The text of an export can be parsed again; an invalid text is refused, and the error has the line's number."""
    assert {("a-b", 1): 5} == parse_export("a-b,1,5\n")
    assert "" == export([])
    with pytest.raises(Exception, match="line 2: must be topic,partition,offset"):
        parse_export("a,1,5\nb,1\n")
    with pytest.raises(Exception, match="line 1: must be topic,partition,offset"):
        parse_export(f"a,1,{'9' * 5000}\n")


def test_reading_as_a_member(orders: Topicfs):
    """`cat --group` reads each record once, and commits when it ends."""
    orders("topics", "create", "clicks", "--partitions", "2")
    assert b"one\ntwo\nthree\n" == orders("cat", "--group", "g", "orders/log").output
    assert b"" == orders("cat", "--group", "g", "orders/log").output
    orders("append", "orders/0", stdin=b"four\n")

    assert b"\\N\tfour\n" == orders("cat", "--group", "g", "orders/log.kv").output
    assert b"" == orders("cat", "--group", "g", "clicks").output
    assert [4] == positions(orders, "g")


@pytest.mark.parametrize(
    ("words", "reason"), [(("nothere/log",), "no such topic"), (("a", "b"), "needs exactly one path")]
)
def test_a_path_that_a_group_cannot_read_is_an_error(orders: Topicfs, words: tuple[str, ...], reason: str):
    """For a path that a group cannot read, the command fails and prints the reason."""
    ran = orders("cat", "--group", "g", *words)

    assert 0 != ran.status
    assert reason in ran.errors.decode()


def test_a_queue_is_listed_described_reset_and_deleted(orders: Topicfs):
    """Each subcommand works for queues. The position of a queue is its start offset."""
    reset(orders, "--topic", "orders", "--to-offset", "1")
    assert 0 == orders("work", "jobs", "orders", "--drain", "--", "true").status
    assert [
        {"group": "g", "state": "Empty", "type": "consumer"},
        {"group": "jobs", "state": "Empty", "type": "share"},
    ] == json.loads(orders("groups", "list", "--json").text)
    assert ["jobs", "Empty", "share"] == orders("groups", "list", "--state").text.splitlines()[-1].split()
    row = orders("groups", "describe", "jobs").text.splitlines()[1].split()
    assert ["jobs", "orders", "0", "3", "3", "0", "-", "-"] == row
    row = orders("groups", "describe", "jobs", "--state").text.splitlines()[1].split()
    assert ["jobs", "-", "-", "Empty"] == row[:4]

    ran = orders("groups", "reset", "jobs", "--all-topics", "--shift-by", "-2")
    assert ["jobs", "orders", "0", "1"] == ran.text.splitlines()[1].split(), ran.errors
    found = described(orders, "jobs")
    assert ("share", 2, 3) == (found["type"], found["lag"], found["positions"][0]["end_offset"])
    assert [1] == positions(orders, "jobs")
    assert "jobs: deleted\n" == orders("groups", "delete", "jobs").text
    assert ["g"] == orders("groups", "list").text.split()
    assert b"jobs: no such group" in orders("groups", "describe", "jobs").errors


def test_a_queue_without_its_topic_is_described(orders: Topicfs):
    """A queue whose topic was deleted is described without a position."""
    assert 0 == orders("work", "jobs", "orders", "--drain", "--", "true").status
    orders("topics", "delete", "orders", "--with-records")
    assert [] == positions(orders, "jobs")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("groups", "delete", "g", "jobs", "--topic", "orders"), "jobs: a queue is deleted as a whole"),
        (("groups", "delete", "g", "nothere"), "nothere: no such group"),
        (("cat", "--group", "jobs", "orders/log"), "jobs: is a queue"),
        (("work", "g", "orders", "--drain", "--", "true"), "g: is a consumer group; choose another name"),
    ],
)
def test_a_command_for_the_wrong_kind_of_group_changes_nothing(
    orders: Topicfs, words: tuple[str, ...], reason: str
):
    """A command is refused before it changes anything if one of its groups is unknown or of the wrong kind."""
    reset(orders, "--topic", "orders", "--to-offset", "1")
    assert 0 == orders("work", "jobs", "orders", "--drain", "--", "true").status
    before = described(orders, "g"), described(orders, "jobs")
    assert_refused(orders(*words), reason)
    assert before == (described(orders, "g"), described(orders, "jobs"))


def test_records_of_queues_cause_no_warnings(orders: Topicfs, caplog: pytest.LogCaptureFixture):
    """Records of queues in __consumer_offsets cause no warnings about unknown records."""
    assert 0 == orders("work", "jobs", "orders", "--drain", "--", "true").status
    assert 0 == orders("groups", "list").status
    assert "Unknown record type" not in caplog.text
