"""Tests of members of groups, and of positions as in Kafka."""

from __future__ import annotations

import threading
from itertools import islice

import pytest

import topicfs
from topicfs import TopicPartition, errors


@pytest.fixture
def topics(tmp_path):
    """Two topics: `orders` with three records in two partitions, `clicks` with one."""
    with topicfs.open(tmp_path / "data") as opened:
        orders = opened.create("orders", partitions=2)
        orders[0].append_many([b"one", b"two"])
        orders[1].append(b"three")
        opened.create("clicks").append(b"four")
        yield opened


def values(records, count=None) -> list[bytes]:
    """Return the sorted values of the next `count` records; without `count`, of all records."""
    return sorted(record.value for record in islice(records, count))


def test_what_is_committed_is_not_read_again(topics):
    """A group reads committed records once, and reads uncommitted records again."""
    billing = topics.group("billing")
    with billing.join("orders") as member:
        assert [b"one", b"three", b"two"] == values(member, 3)
    with billing.join("orders") as member:
        assert [b"one", b"three", b"two"] == values(member, 3)
        member.commit()
    assert {TopicPartition("orders", 0): 2, TopicPartition("orders", 1): 1} == billing.positions()
    topics["orders"].append(b"five", partition=0)
    with billing.join("orders") as member:
        assert [b"five"] == values(member, 1)
    assert ["billing"] == topics.groups()


def test_a_commit_within_the_loop_counts_the_record_at_hand(topics):
    """A commit inside the loop commits up to the record of this iteration, not all fetched records."""
    billing = topics.group("billing")
    with billing.join("orders") as member:
        for record in member:
            if record.value == b"one":
                member.commit()
                break
    assert 1 == billing.positions()[TopicPartition("orders", 0)]


def test_iterating_ends_if_nothing_comes(topics):
    """A member's loop ends after its timeout; the member then stays in the group until it is closed."""
    with topics.group("billing").join("orders", timeout=0) as member:
        assert [b"one", b"three", b"two"] == sorted(
            record.value for _ in range(2) for record in member.poll(60)
        )
        assert ([], []) == (list(member), member.poll(0))
        member.commit()


def test_a_pattern_names_topics_that_come_later(topics):
    """A pattern also matches topics that are created later, but no internal topics. Each record names its topic."""
    with topics.group("all").join("*") as member:
        records = iter(member)
        assert [b"four", b"one", b"three", b"two"] == values(records, 4)
        topics.create("later").append(b"six")
        record = next(records)
        assert ("later", b"six") == (record.topic, record.value)


def test_members_share_the_partitions(topics):
    """Each partition is read by one member; when a member leaves, the other members get its partitions."""
    billing = topics.group("billing")
    first = billing.join("orders")
    assert 3 == sum(len(first.poll(60)) for _ in range(2))
    second = billing.join("orders")
    reading = threading.Thread(target=lambda: first.poll(60))
    reading.start()  # The first member gives up one partition, and waits for records in the other.
    given = second.poll(60)
    (partition,) = {record.partition for record in given}
    second.commit()
    second.close()
    topics["orders"].append(b"more", partition=1 - partition)
    reading.join()
    first.close()
    assert {TopicPartition("orders", partition)} == billing.positions().keys()


def test_positions_are_set_while_nobody_reads(topics):
    """The positions of a group can be set while the group has no members."""
    billing = topics.group("billing")
    billing.set_positions({TopicPartition("orders", 0): 1})
    with billing.join("orders") as member:
        assert [b"three", b"two"] == values(member, 2)
        with pytest.raises(errors.GroupNotEmptyError):
            billing.set_positions({TopicPartition("orders", 0): 0})
        with pytest.raises(errors.GroupNotEmptyError):
            billing.delete()
    billing.delete()
    with pytest.raises(errors.UnknownGroupError):
        billing.positions()


def test_a_position_out_of_range_is_reset(topics):
    """A position that is out of range is reset as `auto.offset.reset` says, here to the earliest record."""
    billing = topics.group("billing")
    billing.set_positions({TopicPartition("orders", 0): 99, TopicPartition("orders", 1): 1})
    with billing.join("orders") as member:
        assert [b"one", b"two"] == values(member, 2)


def test_records_that_were_deleted_meanwhile_are_passed_over(topics):
    """If records that a member has not read are deleted, the member continues as `auto.offset.reset` says."""
    orders = topics["orders"]
    with topics.group("billing").join("orders") as member:
        assert 3 == sum(len(member.poll(60)) for _ in range(2))
        orders[0].append_many([b"gone", b"left"])
        topics._engine.partition("orders", 0).delete_records(3)
        assert [b"left"] == values(member.poll(60))


def test_a_group_reads_topics(topics):
    """Joining requires at least one topic and the name of a group."""
    with pytest.raises(ValueError, match="give the topics"):
        topics.group("billing").join()
    with pytest.raises(errors.InvalidGroupError):
        topics.group("").join("orders")


@pytest.mark.parametrize("polls", [0, 1])
def test_a_position_belongs_to_one_topic(topics, polls):
    """When a topic is recreated, a member reads the new topic from its start, and commits no old position."""
    billing = topics.group("billing")
    with billing.join("orders") as member:
        assert 3 == sum(len(member.poll(60)) for _ in range(2))
        topics.delete("orders", with_records=True)
        topics.create("orders", partitions=2)[0].append_many([b"another", b"one"])
        read = [member.poll(60) for _ in range(polls)]
        assert [[b"another", b"one"]] * polls == [values(records) for records in read]
        member.commit()
    expected = {TopicPartition("orders", 0): 2} if polls else {}
    try:
        positions = billing.positions()
    except errors.UnknownGroupError:  # The group has no positions.
        positions = {}
    assert expected == positions


def test_a_member_waits_for_a_topic_that_is_created_again(topics):
    """A member that waits for records is woken by records of a topic that was deleted and created again."""
    with topics.group("billing").join("orders") as member:
        assert 3 == sum(len(member.poll(60)) for _ in range(2))
        read = []
        reading = threading.Thread(target=lambda: read.extend(member.poll()))
        reading.start()
        topics.delete("orders", with_records=True)
        topics.create("orders").append(b"another")
        reading.join(60)
        assert [b"another"] == values(read)
