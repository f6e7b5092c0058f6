"""Tests of a data directory that a program owns: topics, appends and records."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest

import topicfs
from topicfs import Record, errors
from topicfs.storage.codec.batch import scan
from topicfs.storage.disk.native import system_clock

HASHES_OF_KAFKA = {b"": 275646681, b"21": -973932308, b"foobar": -790332482, b"abc": 479470107}
"""Results of murmur2 in Kafka's clients, by key."""


@pytest.fixture
def topics(tmp_path):
    """The topics of a data directory that is created together with the first topic."""
    with topicfs.open(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def orders(topics):
    """A topic of one partition."""
    return topics.create("orders")


def values(records) -> list[bytes | None]:
    return [record.value for record in records]


def test_topics_are_created_found_and_deleted(topics):
    """Topics are a collection by name. A topic can be created, found and deleted."""
    created = topics.create("orders", partitions=4, config={"retention.ms": "-1"})
    assert (["orders"], 1, True, False) == (list(topics), len(topics), "orders" in topics, "clicks" in topics)
    assert (created.id, 4, {"retention.ms": "-1"}) == (
        topics["orders"].id,
        len(topics["orders"]),
        created.config,
    )
    assert [0, 1, 2, 3] == [one.number for one in created]
    topics.delete("orders")
    assert [] == list(topics)


def test_an_unknown_topic_is_an_error_with_the_names_that_are_similar(topics, orders):
    """Asking for an unknown topic raises an error that suggests similar names."""
    with pytest.raises(errors.UnknownTopicError, match="order: no such topic; did you mean orders"):
        topics["order"]
    with pytest.raises(errors.UnknownTopicError, match="orders has partition 0 alone"):
        orders[1]


def test_opening_a_place_makes_no_directory(tmp_path):
    """Opening a path creates no directory. Creating the first topic creates the directory."""
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty"):
        with topicfs.open(tmp_path / name) as topics:
            assert [] == list(topics)
            with pytest.raises(errors.UnknownTopicError, match="there is no topic yet"):
                topics["orders"]
            with pytest.raises(errors.UnknownTopicError, match="a group needs at least one topic"):
                topics.group("billing")
            assert [] == topics.groups()
            topics.maintain()
    assert ["empty"] == [path.name for path in tmp_path.rglob("*")]
    with pytest.raises(errors.StorageError, match="no such directory"):
        topicfs.open(tmp_path / "missing", read_only=True)


def test_records_are_not_deleted_by_accident(topics, orders):
    """Deleting a topic that has records requires `with_records`."""
    orders.append(b"one")
    with pytest.raises(errors.TopicNotEmptyError, match="holds 1 records"):
        topics.delete("orders")
    topics.delete("orders", with_records=True)
    assert "orders" not in topics


def test_a_record_comes_back_as_it_was_appended(orders):
    """Appended records are read unchanged. A header's name is a str, even if its bytes are not UTF-8."""
    headers = (("source", b"shop"), ("source", None), ("\udcff", b""))
    appended = orders.append(b"one apple", key=b"anna", headers=headers, timestamp=1_795_000_000_000)
    orders.append(None, key=b"anna", timestamp=datetime(2026, 11, 21, 3, tzinfo=UTC))
    first, second = orders.records()
    assert (0, 0) == appended
    assert Record(b"one apple", b"anna", headers, 1_795_000_000_000, "orders", 0, 0) == first
    assert Record(None, b"anna", (), 1_795_230_000_000, "orders", 0, 1) == second


def test_a_record_is_stamped_when_it_is_appended(orders):
    """A record that is appended without a timestamp gets the time of the append."""
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    orders.append(b"one")
    (record,) = orders.records()
    assert before <= datetime.fromtimestamp(record.timestamp / 1000, UTC) <= datetime.now(UTC)


def test_a_record_never_changes():
    """Records are immutable, and two records are equal if all their fields are equal."""
    record = Record(b"one", b"k")
    with pytest.raises(AttributeError):
        record.value = b"two"
    with pytest.raises(AttributeError):
        record.other = 1
    assert (Record(b"one", b"k"), ()) == (record, Record.__slots__)


@pytest.mark.parametrize("timestamp", [-2, 2**63, -(2**63) - 1])
def test_a_timestamp_has_63_bits(topics, timestamp):
    """A timestamp must be from 0 to 2^63-1. The value -1 means no timestamp, so the present time is stored."""
    orders = topics.create("orders", config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    with pytest.raises(errors.InvalidTimestampError, match="milliseconds since 1970"):
        orders.append(b"one", timestamp=timestamp)
    orders.append(b"one", timestamp=2**63 - 1)
    assert [2**63 - 1] == [record.timestamp for record in orders.records()]


def test_fields_of_a_wrong_type_are_refused(orders):
    """A value or key that is not bytes, a header name that is not a str, or a time without a zone is refused."""
    for refused in ("one", 5):
        with pytest.raises(TypeError, match="a value must be bytes or None"):
            orders.append(refused)
        with pytest.raises(TypeError, match="a key must be bytes or None"):
            orders.append(b"", key=refused)
    with pytest.raises(TypeError, match="a header's name must be text"):
        orders.append(b"", headers=[(b"source", b"shop")])
    with pytest.raises(ValueError, match="must have a zone"):
        orders.append(b"", timestamp=datetime.fromisoformat("2026-11-21"))
    assert [] == list(orders.records())


def test_a_key_goes_where_kafkas_producer_sends_it(topics):
    """A record with a key goes to the partition that Kafka's producers choose.

    Records without keys go to one partition until enough of them have been appended.
    """
    clicks = topics.create("clicks", partitions=4)
    expected = {key: (digest & 0x7FFFFFFF) % 4 for key, digest in HASHES_OF_KAFKA.items()}
    assert expected == {key: clicks.append(b"", key=key).partition for key in HASHES_OF_KAFKA}
    assert 1 == len({clicks.append(b"").partition for _ in range(20)})
    assert 2 == clicks.append(b"", key=b"anna", partition=2).partition


def test_append_many_makes_one_batch(orders):
    """`append_many` writes one batch; with `durable` the batch is on disk when the call returns."""
    orders.append(b"before")
    appended = orders[0].append_many([b"one", Record(b"two", b"k"), bytearray(b"three")], durable=True)
    assert (0, 1) == appended
    assert [b"before", b"one", b"two", b"three"] == values(orders[0].records())
    fetched = orders[0]._served.read(0, max_bytes=2**20)
    assert [1, 3] == [batch.record_count for batch in scan(fetched.data)]


def test_a_batch_that_is_refused_leaves_nothing(orders):
    """If a record is invalid, the batch is too large or no record is given, `append_many` fails and appends nothing."""
    with pytest.raises(TypeError):
        orders[0].append_many([b"one", "two"])
    with pytest.raises(errors.RecordTooLargeError):
        orders[0].append_many([b"x" * 1024] * 1025)
    with pytest.raises(ValueError, match="no records to append"):
        orders[0].append_many([])
    assert (0, []) == (orders[0].end_offset, list(orders.records()))


def test_records_of_another_topic_are_copied(topics, orders):
    """A record that was read can be appended to another topic, with all fields except partition and offset."""
    orders.append(b"one", key=b"k", headers=[("h", b"v")], timestamp=5)
    copy = topics.create("copy")
    copy[0].append_many(orders.records())
    (record,) = copy.records()
    assert Record(b"one", b"k", (("h", b"v"),), 5, "copy", 0, 0) == record


def test_partitions_are_merged_by_time(topics):
    """Reading a topic merges its partitions by timestamp and keeps the order of each partition."""
    clicks = topics.create("clicks", partitions=3)
    for timestamp, partition in ((30, 0), (10, 1), (20, 2), (40, 1), (35, 0)):
        clicks.append(b"%d" % timestamp, timestamp=timestamp, partition=partition)
    assert [b"10", b"20", b"30", b"35", b"40"] == values(clicks.records())


def test_kafkas_own_topics_are_only_read(topics, orders):
    """Internal topics can be read, but they can be neither written nor created."""
    orders.append(b"one")
    with topics.group("billing").join("orders", timeout=0) as member:
        assert [b"one"] == values(member.poll())
        member.commit()
    offsets = topics["__consumer_offsets"]
    assert offsets.internal
    with pytest.raises(errors.PolicyViolationError, match="only Kafka writes to it"):
        offsets.append(b"")
    with pytest.raises(errors.PolicyViolationError, match="one of Kafka's own topics"):
        topics.create("__transaction_state")


def test_a_topic_stays_the_same_topic(topics, orders):
    """After a topic was deleted and created again, objects of the old topic can neither read nor write."""
    orders.append(b"one")
    before = orders[0]
    topics.delete("orders", with_records=True)
    topics.create("orders").append(b"another")
    with pytest.raises(errors.PartitionGoneError):
        before.append(b"two")
    for read in (before.records, before.follow, orders.records, orders.follow, lambda: [before.end_offset]):
        with pytest.raises(errors.UnknownTopicError, match="another topic has its name now"):
            list(read())
    assert [b"another"] == values(topics["orders"].records())


def test_following_waits_for_what_is_appended_later(topics, orders):
    """`follow` returns records as they are appended, and ends if no record is appended for `timeout` seconds."""
    orders.append(b"one")
    followed = orders.follow(timeout=60)
    assert b"one" == next(followed).value
    late = threading.Timer(0.05, orders.append, (b"two",))
    late.start()
    assert b"two" == next(followed).value
    late.join()
    followed.close()
    assert [b"two"] == values(orders[0].follow(start=1, timeout=0))


def test_following_ends_with_its_topic(topics, orders):
    """`follow` raises UnknownTopicError when the followed topic is deleted."""
    orders.append(b"one")
    followed = orders.follow()
    assert b"one" == next(followed).value
    late = threading.Timer(0.05, topics.delete, ("orders",), {"with_records": True})
    late.start()
    with pytest.raises(errors.UnknownTopicError):
        next(followed)
    late.join()


def test_following_takes_partitions_that_come_later(topics, orders):
    """`follow` also reads a partition that is added later, beginning with its first record."""
    followed = orders.follow(timeout=60)
    orders.append(b"one")
    assert b"one" == next(followed).value
    topics._engine.add_partitions("orders", total=2)
    orders[1].append(b"two")
    assert b"two" == next(followed).value
    followed.close()


def test_another_process_cannot_open_a_directory_that_is_owned(tmp_path, topics, orders):
    """While a process owns a directory, another process can only open it read-only. The error says so."""
    orders.append(b"one")
    program = """
import json, sys, topicfs
try:
    topicfs.open(sys.argv[1])
except topicfs.errors.StorageError as error:
    with topicfs.open(sys.argv[1], read_only=True) as topics:
        print(json.dumps([str(error), [one.value.decode() for one in topics["orders"].records()]]))
"""
    words = [sys.executable, "-c", program, str(tmp_path / "data")]
    ran = subprocess.run(words, capture_output=True, check=True, text=True)
    message, read = json.loads(ran.stdout)
    assert (True, ["one"]) == ("in use by process" in message and "read_only=True" in message, read)
    assert 'or through its listener: topicfs.open("kafka://HOST:PORT")' in message


def test_a_directory_that_is_only_read_is_not_touched(tmp_path, topics, orders):
    """Opening a directory read-only neither locks nor changes it. Each later call returns its state at that moment."""
    orders.append(b"one")
    with topicfs.open(tmp_path / "data", read_only=True) as looking:
        seen = looking["orders"]
        assert [b"one"] == values(seen.records())
        orders.append(b"two")
        followed = seen.follow(start="latest", timeout=60)
        late = threading.Timer(0.05, orders.append, (b"three",))
        late.start()
        assert (b"three", [b"one", b"two", b"three"]) == (next(followed).value, values(seen.records()))
        followed.close()
        for change in (
            lambda: seen.append(b"four"),
            lambda: looking.create("clicks"),
            lambda: looking.delete("orders"),
            lambda: looking.group("billing").join("orders"),
        ):
            with pytest.raises(errors.ReadOnlyError):
                change()
        topics.delete("orders", with_records=True)
        topics.create("orders")
        with pytest.raises(errors.UnknownTopicError, match="another topic has its name now"):
            list(seen.records())
        assert [] == list(looking["orders"].records())


def test_a_damaged_batch_is_an_error_after_the_records_before_it(tmp_path):
    """A read returns the records before a damaged batch, and raises CorruptionError only when it reaches the batch."""
    with topicfs.open(tmp_path / "data") as topics:
        orders = topics.create("orders")
        orders.append(b"one")
        orders.append(b"two" * 20)
    log = tmp_path / "data" / "orders-0" / f"{0:020}.log"
    octets = bytearray(log.read_bytes())
    octets[-3] ^= 1
    log.write_bytes(octets)
    with topicfs.open(tmp_path / "data", read_only=True) as topics:
        records = topics["orders"].records()
        assert b"one" == next(records).value
        with pytest.raises(errors.CorruptionError):
            next(records)


def test_duties_run_when_the_program_says_so(topics, monkeypatch):
    """`maintain` runs all duties that are due, such as retention."""
    short = topics.create("short", config={"retention.ms": "1", "file.delete.delay.ms": "0"})
    short.append(b"old", timestamp=1)
    assert 0 == short[0].start_offset
    monkeypatch.setattr("topicfs.api.topics.system_clock", lambda: system_clock() + 600_000)
    topics.maintain()
    assert 1 == short[0].start_offset


def test_an_object_of_topics_keeps_them_open(tmp_path):
    """An object obtained from a Topics, such as a topic, a partition or a member, keeps the Topics open."""
    place = tmp_path / "data"
    with topicfs.open(place) as topics:
        topics.create("orders")
    orders = topicfs.open(place)["orders"]
    orders.append(b"one")
    del orders
    partition = topicfs.open(place)["orders"][0]
    partition.append(b"two")
    del partition
    with topicfs.open(place).group("billing").join("orders") as member:
        assert [b"one", b"two"] == values(member.poll(60))


@pytest.mark.parametrize("keep", ["held = topics, member", "held = []; held.append((held, topics, member))"])
def test_a_program_that_ends_without_closing_gives_the_directory_back_in_order(tmp_path, keep):
    """If a program ends without closing a directory, the directory is closed cleanly.

    The close works although Python can start no thread while it exits.
    """
    program = f"""
import sys, topicfs
topics = topicfs.open(sys.argv[1])
topics.create("orders").append(b"one")
member = topics.group("billing").join("orders")
assert member.poll(60)
{keep}
del topics, member
"""
    words = [sys.executable, "-c", program, str(tmp_path / "data")]
    ran = subprocess.run(words, capture_output=True, check=True, text=True)
    assert ("", True) == (ran.stderr, (tmp_path / "data" / ".kafka_cleanshutdown").exists())
