"""Tests of the Python API over a cluster, whose brokers answer the same calls as a data directory."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from itertools import islice

import pytest

import topicfs
from topicfs import Record, TopicPartition, errors

pytestmark = pytest.mark.java


@pytest.fixture
def topics(address):
    """The cluster, opened for writing."""
    with topicfs.open(str(address)) as opened:
        yield opened


def test_what_is_appended_is_what_consumers_get(topics, client):
    """A consumer gets the appended value, key, headers and time, at the returned offset, in the key's partition."""
    orders = topics.create("api-orders", partitions=4, config={"retention.ms": "-1"})
    now = time.time_ns() // 1_000_000
    appended = orders.append(b"one", key=b"abc", headers=[("h", b"v")], timestamp=now, durable=True)
    assert (479470107 % 4, 0) == appended
    (consumed,) = client.records("api-orders", partition=3)
    assert (b"one", b"abc", ((b"h", b"v"),), now) == (
        consumed.value,
        consumed.key,
        consumed.headers,
        consumed.timestamp,
    )
    assert [Record(b"one", b"abc", (("h", b"v"),), now, "api-orders", 3, 0)] == list(orders.records())
    assert ("-1", True) == (orders.config["retention.ms"], "api-orders" in topics)


def test_ranges_follow_and_columns(topics):
    """Ranges by offset and by time have the right records, and `follow` waits for later records."""
    orders = topics.create("api-ranges")
    orders[0].append_many([b"one", b"two", b"three"])
    assert [b"two"] == [record.value for record in orders[0].records(1, 2)]
    assert [b"three"] == [record.value for record in orders[0].records(-1)]
    assert 3 == len(list(orders.records("-10m"))) == orders.arrow("@yesterday").read_all().num_rows
    assert [] == list(orders.records(datetime(2100, 1, 1, tzinfo=UTC)))
    followed = orders.follow(start="latest", timeout=60)
    late = threading.Timer(0.2, orders.append, (b"four",))
    late.start()
    assert b"four" == next(followed).value
    late.join()
    followed.close()


def test_positions_are_the_brokers(topics, client):
    """A member commits to the broker's group, and the group's next member begins there."""
    topics.create("api-members").append(b"one")
    billing = topics.group("api-billing")
    with billing.join("api-members") as member:
        assert [b"one"] == [record.value for record in islice(member, 1)]
        member.commit()
    assert {TopicPartition("api-members", 0): 1} == billing.positions()
    topics["api-members"].append(b"two")
    with billing.join("api-members") as member:
        assert [b"two"] == [record.value for record in islice(member, 1)]
    assert "api-billing" in topics.groups()


def test_topics_are_deleted_with_their_records_only_if_asked(topics):
    """Deleting a topic with records needs a flag; after the deletion the old topic object raises an error."""
    orders = topics.create("api-deleted")
    orders.append(b"one")
    with pytest.raises(errors.TopicNotEmptyError):
        topics.delete("api-deleted")
    topics.delete("api-deleted", with_records=True)
    with pytest.raises(errors.UnknownTopicError):
        list(orders.records())


def test_a_cluster_that_is_only_read(topics, address):
    """A read-only cluster refuses every change."""
    topics.create("api-looked-at").append(b"one")
    with topicfs.open(str(address), read_only=True) as looking:
        assert [b"one"] == [record.value for record in looking["api-looked-at"].records()]
        for change in (
            lambda: looking["api-looked-at"].append(b"two"),
            lambda: looking.create("api-never"),
            lambda: looking.group("api-nobody").join("api-looked-at"),
        ):
            with pytest.raises(errors.ReadOnlyError):
                change()
