"""Tests of the API while a daemon has mounted the directory: it reads the files, and writes through the mount."""

from __future__ import annotations

import threading
from itertools import islice

import pytest

import topicfs
from tests.topicfs.conftest import mounted
from topicfs import Record, TopicPartition, errors

pytestmark = pytest.mark.fuse


@pytest.fixture
def mnt(tmp_path, request):
    """A mount of the directory `data`, with options that a test passes as the fixture's parameter."""
    with mounted(tmp_path / "data", tmp_path / "mnt", *getattr(request, "param", ())) as mountpoint:
        yield mountpoint


@pytest.fixture(params=["data", "mnt"])
def topics(request, mnt):
    """The topics, opened once by the data directory and once by the mountpoint."""
    with topicfs.open(mnt.parent / request.param) as opened:
        yield opened


def values(records) -> list[bytes]:
    return [record.value for record in records]


def written(path, line):
    """Append a line with a write to the file `path`, as a shell does."""
    with path.open("a") as file:
        file.write(line)


def test_what_is_appended_goes_through_the_daemon_and_shows_at_once(topics, mnt):
    """An append goes through the daemon. Its record can be read immediately, and `append` returns no offset."""
    orders = topics.create("orders", partitions=4, config={"retention.ms": "-1"})
    appended = orders.append(b"one apple", key=b"abc", headers=[("source", b"shop")], timestamp=5)
    assert (479470107 % 4, None) == appended
    assert "one apple\n" == (mnt / "orders" / str(appended.partition) / "log").read_text()
    (record,) = orders.records()
    assert Record(b"one apple", b"abc", (("source", b"shop"),), 5, "orders", 3, 0) == record
    assert ({"retention.ms": "-1"}, ["orders"], 4) == (orders.config, list(topics), len(orders))
    written(mnt / "orders/3/log", "by a shell\n")
    assert [b"by a shell"] == values(orders[3].records(-1))
    assert [b"one apple", b"by a shell"] == orders.arrow().read_all()["value"].to_pylist()


def test_a_batch_is_kept_whole_or_not_at_all(topics, mnt):
    """A batch that needs several requests is stored completely or not at all, and the next append succeeds."""
    orders = topics.create("orders")
    orders[0].append_many([b"x" * 1000] * 500, durable=True)
    assert 500 == orders[0].end_offset
    with pytest.raises(errors.StorageError, match="max.message.bytes"):
        orders[0].append_many([b"x" * 1000] * 2000)
    orders.append(b"after")
    assert (501, b"after") == (orders[0].end_offset, values(orders[0].records(-1))[0])


def test_following_sees_what_others_append(topics, mnt):
    """`follow` returns the records that a shell appends."""
    orders = topics.create("orders")
    orders.append(b"one")
    followed = orders.follow(timeout=60)
    assert b"one" == next(followed).value
    late = threading.Timer(0.05, written, (mnt / "orders/0/log", "two\n"))
    late.start()
    assert b"two" == next(followed).value
    late.join()
    followed.close()


def test_a_topic_stays_the_same_topic(topics, mnt):
    """After a topic was deleted and created again, objects of the old topic can neither read nor write."""
    orders = topics.create("orders")
    partition = orders[0]
    list(partition.records())
    topics.delete("orders")
    topics.create("orders").append(b"another")
    for call in (
        lambda: partition.append(b"two"),
        lambda: list(partition.records()),
        lambda: orders.append(b"two"),
        lambda: list(orders.follow(timeout=0)),
    ):
        with pytest.raises((errors.UnknownTopicError, errors.PartitionGoneError)):
            call()
    assert [b"another"] == values(topics["orders"].records())


def test_records_are_not_deleted_by_accident(topics):
    """Deleting a topic that has records requires `with_records`, and a mount that allows deletion."""
    topics.create("orders").append(b"one")
    with pytest.raises(errors.TopicNotEmptyError):
        topics.delete("orders")
    with pytest.raises(errors.StorageError, match="--allow-delete"):
        topics.delete("orders", with_records=True)
    assert ["orders"] == list(topics)


def test_a_member_reads_through_the_mount(topics, mnt):
    """A member reads through the mount. The daemon keeps the member's positions, which change at a commit."""
    topics.create("orders", partitions=2).append(b"one", key=b"k", partition=1, timestamp=5)
    billing = topics.group("billing")
    with billing.join("orders") as member:
        assert [Record(b"one", b"k", (), 5, "orders", 1, 0)] == list(islice(member, 1))
    with billing.join("orders") as member:
        assert [b"one"] == values(islice(member, 1))
        member.commit()
    assert {TopicPartition("orders", 1): 1} == billing.positions()
    assert "1\n" == (mnt / "@groups/billing/orders/1/position").read_text()
    with billing.join("orders", timeout=0) as member:
        assert [] == list(member)
    billing.set_positions({TopicPartition("orders", 1): 0})
    with billing.join("orders") as member:
        assert [b"one"] == values(member.poll(60))


@pytest.mark.parametrize("mnt", [["--allow-delete"]], indirect=True)
def test_a_position_belongs_to_one_topic(topics):
    """If a topic was deleted and created again, a position in the old topic is not committed.

    The new topic is read from its start.
    """
    topics.create("orders", partitions=2)[0].append_many([b"one", b"two"])
    billing = topics.group("billing")
    with billing.join("orders") as member:
        assert [b"one", b"two"] == values(member.poll(60))
        topics.delete("orders", with_records=True)
        topics.create("orders", partitions=2)[0].append_many([b"another", b"one"])
        member.commit()
        assert {} == billing.positions()
        assert [b"another", b"one"] == values(member.poll(60))
        member.commit()
    assert {TopicPartition("orders", 0): 2} == billing.positions()


def test_a_group_whose_readers_commit_by_reading_is_refused(topics, mnt):
    """Joining a group through a mount requires commit=manual, because otherwise each read would commit."""
    topics.create("orders")
    (mnt / "@groups/billing").mkdir()
    with pytest.raises(errors.GroupError, match="echo commit=manual"):
        topics.group("billing").join("orders")
    (mnt / "@groups/billing/config").write_text("commit=manual\n")
    topics.group("billing").join("orders").close()
    with pytest.raises(errors.GroupsUnsupportedError, match="isolation"):
        topics.group("billing").join("orders", isolation="read_uncommitted")


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda group: group.join("orders", "typo"), errors.UnknownTopicError),
        (lambda group: group.join("orders,orders"), errors.UnknownTopicError),
        (lambda group: group.set_positions({("orders", 0): 0, ("orders", 9): 1}), errors.UnknownTopicError),
        (lambda group: group.set_positions({("orders", 0): 0, ("typo", 0): 1}), errors.UnknownTopicError),
        (lambda group: group.set_positions({("orders", 0): -1}), errors.InvalidPositionError),
        (lambda group: group.set_positions({("orders", 0): 2**63}), errors.InvalidPositionError),
    ],
)
def test_a_refused_call_of_a_group_changes_nothing(tmp_path, mnt, call, kind):
    """A refused call creates no group and changes no position."""
    with topicfs.open(tmp_path / "data") as topics:
        topics.create("orders").append(b"one")
        with pytest.raises(kind):
            call(topics.group("new"))
        assert [] == topics.groups()
        billing = topics.group("billing")
        billing.set_positions({("orders", 0): 1})
        with pytest.raises(kind):
            call(billing)
        assert {TopicPartition("orders", 0): 1} == billing.positions()
        with pytest.raises(errors.InvalidNameError):
            topics.group("a/b").join("orders")


def test_a_mount_that_only_reads_is_only_read(tmp_path):
    """A read-only mount can be opened for reading."""
    with topicfs.open(tmp_path / "data") as topics:
        topics.create("orders").append(b"one")
    with mounted(tmp_path / "data", tmp_path / "mnt", "--read-only") as mountpoint:
        with topicfs.open(mountpoint) as topics:
            assert [b"one"] == values(topics["orders"].records())
            with pytest.raises(errors.ReadOnlyError):
                topics["orders"].append(b"two")
        with pytest.raises(errors.StorageError, match="is inside a topicfs mount"):
            topicfs.open(mountpoint / "orders")
