"""Tests of new users' mistakes: each error names the thing, the cause and the remedy."""

from __future__ import annotations

import re

import pytest

import topicfs
from topicfs import Record, errors

CALLS = [
    (lambda topics: topics[3], TypeError, "3: a name must be text, as in topics['orders']"),
    (lambda topics: topics.create(3), TypeError, "3: a name must be text"),
    (lambda topics: topics.group(3), TypeError, "3: a name must be text"),
    (
        lambda topics: topics.create("new", config={"retention.ms": 1.5}),
        TypeError,
        "retention.ms: a setting must be text, an int or a bool, not float",
    ),
    (
        lambda topics: topics.create("orders"),
        errors.TopicExistsError,
        "orders: the topic already exists; use topics['orders']",
    ),
    (
        lambda topics: topics.delete("orders"),
        errors.TopicNotEmptyError,
        "orders: holds 1 records; add with_records=True to delete them too",
    ),
    (lambda topics: topics.create("new", replicas=3), errors.StorageError, "replicas: these data"),
    (
        lambda topics: topics["orders"][0:2],
        TypeError,
        "name a partition of orders by its number, as in topic[0]",
    ),
    (lambda topics: topics["orders"]["0"], TypeError, "'0': name a partition of orders by its number"),
    (
        lambda topics: topics["orders"].append(b"", partition="0"),
        TypeError,
        "'0': name a partition of orders",
    ),
    (
        lambda topics: topics["orders"].append(b"", timestamp=1.5),
        TypeError,
        "1.5: a timestamp is an int of milli",
    ),
    (
        lambda topics: topics["orders"].append(b"", timestamp=True),
        TypeError,
        "True: a timestamp is an int of milli",
    ),
    (lambda topics: topics["orders"].append(b"", headers=["ab"]), TypeError, "headers must be pairs, as in"),
    (lambda topics: topics["orders"][0].append_many(b"abc"), TypeError, "records must be a list, not bytes"),
    (lambda topics: topics["orders"][0].append_many("abc"), TypeError, "append(record) appends one"),
    (lambda topics: topics["orders"][0].append_many(Record(b"abc")), TypeError, "a list, not Record"),
    (
        lambda topics: topics["orders"].append(b"x" * 2_000_000, partition=0),
        errors.RecordTooLargeError,
        (
            "orders-0: batch of 2000074 bytes, max.message.bytes is 1048588; append less at once, "
            "or raise it for orders"
        ),
    ),
    (
        lambda topics: topics["orders"][0].records(99),
        errors.OffsetOutOfRangeError,
        "orders-0: offset 99 is outside [0, 1); start at 'latest' for the records that come next",
    ),
    (
        lambda topics: topics["orders"].records(isolation="x"),
        ValueError,
        "'x': isolation is 'read_committed' or 'read_uncommitted'",
    ),
    (
        lambda topics: topics["orders"].records("yesterday"),
        ValueError,
        (
            "yesterday: not a place; write 42, '-10', '-10m', '@yesterday', '@2026-11-21T03:00', "
            "'earliest' or 'latest'"
        ),
    ),
    (
        lambda topics: topics.group("g").join(["orders"]),
        TypeError,
        "g: each topic is one argument, as in join('orders', 'clicks')",
    ),
    (
        lambda topics: topics.group("g").join("order", timeout=0),
        errors.UnknownTopicError,
        "order: no such topic; did you mean orders?",
    ),
    (
        lambda topics: topics.group("g").set_positions({("orders", 9): 5}),
        errors.UnknownTopicError,
        "orders-9: no such partition",
    ),
    (
        lambda topics: topics.group("g").set_positions({("orders", 0): -1}),
        errors.InvalidPositionError,
        "g: -1 in orders-0: not an offset (0 to 9223372036854775807)",
    ),
    (
        lambda topics: topics.group("g").set_positions({("orders", 0): 2**63}),
        errors.InvalidPositionError,
        "g: 9223372036854775808 in orders-0: not an offset (0 to 9223372036854775807)",
    ),
    (
        lambda topics: topics.group("g").set_positions({"orders": 5}),
        TypeError,
        "{'orders': 5}: write positions as {('orders', 0): 42}",
    ),
]


@pytest.fixture
def topics(tmp_path):
    """A topic of two partitions; partition 0 has one record."""
    with topicfs.open(tmp_path / "data") as opened:
        opened.create("orders", partitions=2)[0].append(b"one")
        yield opened


@pytest.mark.parametrize(("call", "kind", "message"), CALLS)
def test_the_error_of_a_mistake_contains_the_remedy(topics, call, kind, message):
    """A wrong call changes nothing, and raises an error that contains the remedy."""
    with pytest.raises(kind, match=re.escape(message)):
        call(topics)
    assert (["orders"], [1, 0]) == (list(topics), [one.end_offset for one in topics["orders"]])


def test_numbers_and_mappings_are_taken_for_text_and_pairs(topics):
    """A setting may be given as an int or a bool, headers as a dict, and a partition as a plain tuple."""
    created = topics.create("new", config={"retention.ms": -1, "preallocate": True})
    assert {"retention.ms": "-1", "preallocate": "true"} == created.config
    created.append(b"", headers={"a": b"b", "c": None})
    created[0].append(Record(b"", headers={"a": b"b"}))
    assert [(("a", b"b"), ("c", None)), (("a", b"b"),)] == [one.headers for one in created.records()]
    topics.group("g").set_positions({("new", 0): 1})
    assert {topicfs.TopicPartition("new", 0): 1} == topics.group("g").positions()


def test_a_pattern_may_name_no_topic_yet(topics):
    """A pattern may match no topic yet."""
    with topics.group("g").join("later*", timeout=0) as member:
        assert [] == list(member)


def test_what_was_opened_read_only_says_how_to_write(topics, tmp_path):
    """If topics are opened read-only, appending, creating a topic and joining raise ReadOnlyError with the remedy."""
    with topicfs.open(tmp_path / "data", read_only=True) as opened:
        for call in (
            lambda: opened["orders"].append(b""),
            lambda: opened.create("new"),
            lambda: opened.group("g").join("orders"),
        ):
            with pytest.raises(
                errors.ReadOnlyError, match="open the directory itself without read_only=True"
            ):
                call()


def test_a_directory_that_this_process_has_open_is_not_another_process(topics, tmp_path):
    """Opening a directory twice in one process raises an error that says to use the existing Topics."""
    with pytest.raises(errors.StorageError, match="data: already open in this process; use that Topics"):
        topicfs.open(tmp_path / "data")


def test_topics_and_the_package_name_themselves(topics, tmp_path):
    """`repr` of a Topics shows its place, and the package has a version."""
    assert (f"<Topics {tmp_path / 'data'}>", "0.1.0") == (repr(topics), topicfs.__version__)
