"""Tests that reads of a cluster return the batches of the broker's log directory, from any offset on."""

from __future__ import annotations

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from random import Random

import pytest

from testing.broker.client import Outgoing
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from topicfs.cluster.brokers.fetch import FetchPartition, fetch
from topicfs.cluster.cache.cache_file import FetchedBatches
from topicfs.cluster.engine import open_engine
from topicfs.cluster.topics.reader import FETCH_AHEAD_THREADS, FIRST_WINDOW_BYTES, WindowCache
from topicfs.replication import open_engine as open_directories
from topicfs.storage.codec.batch import find_end
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.errors import CorruptBatchError, OffsetOutOfRangeError
from topicfs.storage.model import AbortedTransaction, Isolation, Offset, ProducerId, Record, Timestamp
from topicfs.storage.remote import ThreadNeededError

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def everything(partition, *, max_bytes, isolation=Isolation.READ_COMMITTED):
    """Read all records from the log start to the visible end."""
    return everything_from(partition, partition.log_start_offset, max_bytes, isolation)


def everything_from(partition, offset, max_bytes=1, isolation=Isolation.READ_COMMITTED):
    found = []
    while offset < partition.visible_end(isolation):
        fetched = partition.read(offset, max_bytes=max_bytes, isolation=isolation)
        if not fetched.data:
            break
        for columns in decode(fetched.data, aborted=fetched.aborted):
            found += [record for record in columns if record.offset >= offset]
        offset = fetched.next_offset
    return found


@pytest.mark.java
@pytest.mark.parametrize("codec", CODECS)
def test_records_are_those_that_a_consumer_gets(address, client, codec):
    """Keys, headers and nulls equal a consumer's records, whether records are read in one read or batch by batch."""
    name = f"consumed-{codec}"
    client.create_topic(name)
    made = [
        Outgoing(None, b"deleted", timestamp=1000),
        Outgoing(b"", None, [("h", None), ("h", b"\xff"), ("", b"")], timestamp=2000),
        *(Outgoing(b"value %d" % number * 50, b"k", timestamp=3000) for number in range(40)),
    ]
    client.produce(name, made, batch=7, compression_type=codec)
    expected = client.records(name)
    with closing(open_engine(address)) as engine:
        partition = engine.partition(name, 0)
        assert expected == everything(partition, max_bytes=1 << 20)
        assert expected == everything(partition, max_bytes=1)


@pytest.mark.java
@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("max_bytes", [1, 300, 1 << 20])
def test_transactions_are_read_as_a_consumer_reads_them(address, client, isolation, max_bytes):
    """At each isolation level, reads return a consumer's records, even if transactions abort, mix or stay open."""
    name = f"transactions-{isolation.value}-{max_bytes}"
    client.create_topic(name)
    first, second = (client.producer(transactional_id=f"{name}-{number}") for number in range(2))
    for producer in (first, second):
        producer.init_transactions(30)
    for number in range(4):
        for producer in (first, second):
            producer.begin_transaction()
            producer.produce(name, b"%d" % number, partition=0)
            producer.flush(30)
        first.commit_transaction(30) if number % 2 else first.abort_transaction(30)
        second.produce(name, b"more %d" % number, partition=0)
        second.flush(30)
        second.abort_transaction(30) if number % 3 else second.commit_transaction(30)
    first.begin_transaction()
    first.produce(name, b"open", partition=0)
    first.flush(30)
    client.wait_for_end(name, 21)
    expected = client.records(name, isolation=isolation)
    with closing(open_engine(address)) as engine:
        assert expected == everything(engine.partition(name, 0), max_bytes=max_bytes, isolation=isolation)
    first.abort_transaction(30)


@pytest.mark.java
def test_a_compacted_partition_is_read_over_its_gaps(address, client):
    """A read at an offset that compaction removed returns the next batch, even if a whole batch is missing."""
    settings = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": "1048576",
        "segment.ms": "100",
    }
    client.create_topic("gaps", settings=settings)
    for number in range(30):
        client.produce("gaps", [Outgoing(b"%d" % number, b"%d" % (number % 3)), Outgoing(b"x", b"x")])
    wait_until(lambda: compacted(client), "the broker has compacted")
    with closing(open_engine(address)) as engine:
        partition = engine.partition("gaps", 0)
        for max_bytes in (1, 1 << 20):
            expected, found = read_while_unchanged(partition, client, max_bytes)
            assert expected == found
            assert found[0].offset > 0


def compacted(client):
    """Return whether the log has gaps; also makes the broker roll a segment by time."""
    client.produce("gaps", [Outgoing(b"y", b"y")])
    return client.records("gaps")[0].offset > 0


def read_while_unchanged(partition, client, max_bytes):
    """Return a consumer's records, and the records that the partition returns from offset 0.

    If the broker compacts the log between the two reads, both are repeated.
    """
    while True:
        expected = client.records("gaps")
        partition._reader.forget()
        found = everything_from(partition, Offset(0), max_bytes)
        if client.records("gaps") == expected:
            return expected, found


def checkpointed(directory, name):
    """Return the bounds that a reader of the directory sees."""
    with closing(open_directories([directory], read_only=True)) as engine:
        return engine.partition(name, 0).offsets()[0:3:2]


@pytest.mark.java
def test_reads_are_those_of_the_log_directory(address, broker, client):
    """Reads equal the log directory byte for byte at any offset and size, and lookups by time give equal results."""
    name = "same"
    client.create_topic(name)
    client.produce(
        name,
        [Outgoing(b"%d" % number, timestamp=1000 + 10 * (number // 3)) for number in range(100)],
        batch=4,
    )
    client.delete_records(name, 6)
    wait_until(
        lambda: checkpointed(broker.log_dir, name) == (6, 100), "the broker has written its checkpoints"
    )
    with closing(open_engine(address)) as engine:
        partition = engine.partition(name, 0)
        with closing(open_directories([broker.log_dir], read_only=True)) as directories:
            log = directories.partition(name, 0)
            for offset in (6, 7, 8, 50, 99, 100):
                for max_bytes in (1, 250, 1000, 1 << 20):
                    theirs = log.read(Offset(offset), max_bytes=max_bytes)
                    partition._reader.forget()
                    ours = partition.read(Offset(offset), max_bytes=max_bytes)
                    assert bytes(theirs.data) == bytes(ours.data)
                    assert theirs.next_offset == ours.next_offset
            for timestamp in (0, 1000, 1001, 1010, 1329, 1330, 1331, 9999):
                for isolation in Isolation:
                    theirs = log.offset_for_timestamp(Timestamp(timestamp), isolation=isolation)
                    ours = partition.offset_for_timestamp(Timestamp(timestamp), isolation=isolation)
                    assert (theirs and (theirs.timestamp, theirs.offset)) == (
                        ours and (ours.timestamp, ours.offset)
                    )
            assert log.status().log_bytes == partition.status().log_bytes


@pytest.mark.java
def test_offsets_outside_are_refused_with_the_bounds(address, client):
    """The error for an offset outside the log has the current bounds, even if the engine did not know them before."""
    client.create_topic("outside")
    client.produce("outside", [Outgoing(b"a"), Outgoing(b"b"), Outgoing(b"c")], batch=1)
    with closing(open_engine(address)) as engine:
        partition = engine.partition("outside", 0)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            partition.read(Offset(4), max_bytes=1)
        assert (4, 0, 3) == (caught.value.offset, caught.value.start_offset, caught.value.end_offset)
        client.delete_records("outside", 2)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            partition.read(Offset(1), max_bytes=1)
        assert (1, 2, 3) == (caught.value.offset, caught.value.start_offset, caught.value.end_offset)
        assert 2 == partition.log_start_offset


@pytest.mark.java
def test_fetched_batches_are_read_without_waiting(address, client):
    """Fetched batches are read without waiting. Before other calls wait, they call the function set for this."""
    client.create_topic("at-hand")
    client.produce("at-hand", [Outgoing(b"a"), Outgoing(b"b")], batch=1)
    with closing(open_engine(address)) as engine:
        partition = engine.partition("at-hand", 0)
        whole = partition.read(Offset(0), max_bytes=1 << 20)

        def refuse() -> None:
            raise ThreadNeededError

        engine.call_before_waiting(refuse)
        assert whole == partition.read(Offset(0), max_bytes=1 << 20)
        assert 2 == partition.read(Offset(1), max_bytes=1).next_offset
        for call in (
            partition.status,
            lambda: partition.config,
            lambda: partition.read(Offset(2), max_bytes=1),
            lambda: engine.groups.describe("g"),
        ):
            with pytest.raises(ThreadNeededError):
                call()


@pytest.mark.java
def test_a_partition_is_read_ahead(address, client):
    """While a reader works through one window, the next window is fetched."""
    client.create_topic("ahead")
    client.produce(
        "ahead", [Outgoing(bytes(10_000), timestamp=number + 1) for number in range(300)], batch=10
    )
    with closing(open_engine(address)) as engine:
        partition = engine.partition("ahead", 0)
        found = everything(partition, max_bytes=FIRST_WINDOW_BYTES)
        assert list(range(300)) == [record.offset for record in found]
        assert partition._reader._ahead is not None


@pytest.mark.java
def test_a_reader_waits_for_no_threads_that_read_ahead_of_others(address, client):
    """If all prefetching threads wait for throttled brokers, the reader fetches its next window itself."""
    client.create_topic("not-ahead")
    client.produce("not-ahead", [Outgoing(bytes(10_000)) for _ in range(300)], batch=10)
    free = threading.Event()
    with closing(open_engine(address)) as engine, ThreadPoolExecutor(1) as reading:
        partition = engine.partition("not-ahead", 0)
        for _ in range(FETCH_AHEAD_THREADS):
            engine._windows.threads.submit(free.wait)
        read = reading.submit(everything, partition, max_bytes=FIRST_WINDOW_BYTES)
        try:
            assert 300 == len(read.result(TIMEOUT_SECONDS))
            assert partition._reader._ahead is not None
        finally:
            free.set()


@pytest.mark.java
def test_over_the_quota_reads_wait(address, broker, client, java):
    """Above the quota, reads wait and then return all records; a throttled answer without the partition is skipped."""
    client.create_topic("over-the-quota")
    client.produce("over-the-quota", [Outgoing(bytes(20_000)) for _ in range(20)], batch=1)

    def limit(*change):
        who = ("--entity-type", "clients", "--entity-name", "topicfs", "--alter")
        command = ("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap_server, *who, *change)
        subprocess.run(java.command(*command), check=True, capture_output=True)

    try:
        limit("--add-config", "consumer_byte_rate=30000")
        with closing(open_engine(address)) as engine:
            partition = engine.partition("over-the-quota", 0)
            wanted = FetchPartition(partition.name, partition.topic_id, Offset(0))

            def silent():
                answer = fetch(engine.leaders.brokers, 1, [wanted], max_bytes=1 << 20)
                return answer.throttle_ms > 0 and not answer.partitions

            wait_until(silent, "the quota is used up")
            assert 1 <= partition.read(Offset(0), max_bytes=1).next_offset
    finally:
        limit("--delete-config", "consumer_byte_rate")


def transactional(offset, value, *, control=False):
    stamp = BatchStamp(producer_id=ProducerId(7), transactional=True, control=control)
    record = Record(Offset(offset), Timestamp(0), b"\0\0\0\0" if control else None, value)
    return encode([record], stamp, base_offset=Offset(offset))


def test_an_aborted_transaction_that_has_ended_hides_nothing_after_it():
    """A part of a window that begins after an abort marker does not name the transaction that the marker ended.

    The producer's later, committed records are therefore shown.
    """
    data = transactional(0, b"a") + transactional(1, b"\0" * 6, control=True) + transactional(2, b"b")
    aborted = (AbortedTransaction(ProducerId(7), Offset(0)),)
    window = FetchedBatches(Offset(0), Offset(3), memoryview(data), aborted, Isolation.READ_COMMITTED, 0)
    assert aborted == window.part(Offset(0), 1).aborted
    assert aborted == window.part(Offset(1), 1).aborted
    assert () == window.part(Offset(2), 1).aborted


def test_parts_of_a_window_have_at_least_one_batch():
    """A part of a window has at least one batch; if it has several, they fit into the requested bytes."""
    batches = [
        bytes(encode([Record(Offset(2 * number + one), Timestamp(0), None, b"v") for one in range(2)]))
        for number in range(3)
    ]
    size = len(batches[0])
    window = FetchedBatches(Offset(1), Offset(6), memoryview(b"".join(batches)), (), None, 0)
    assert [(batches[0], 2), (batches[0], 2), (batches[0] + batches[1], 4), (b"".join(batches), 6)] == [
        (bytes(part.data), part.next_offset)
        for part in (window.part(Offset(1), most) for most in (1, 2 * size - 1, 2 * size, 9 * size))
    ]
    assert (batches[2], 6) == (bytes(window.part(Offset(5), 1).data), window.part(Offset(5), 1).next_offset)


def test_damaged_windows_do_no_harm():
    """Parts of damaged windows give batches or a known error, and never an endless loop."""
    random = Random(20261123)
    sound = b"".join(
        bytes(encode([Record(Offset(number), Timestamp(0), None, bytes(20))])) for number in range(8)
    )
    for _ in range(3000):
        data = bytearray(sound)
        for _ in range(random.randrange(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        end, last_offset = find_end(data)
        window = FetchedBatches(Offset(0), Offset(last_offset + 1), memoryview(data)[:end], (), None, 0)
        offset = 0
        while offset <= last_offset:
            try:
                part = window.part(Offset(offset), random.choice((1, 100, 1000)))
            except CorruptBatchError:
                break
            assert part.next_offset > offset
            offset = part.next_offset


class Reader:
    def __init__(self):
        self.forgotten = 0

    def forget(self):
        self.forgotten += 1


def test_the_least_recently_used_windows_are_dropped():
    """If all windows together exceed the memory limit, the least recently used windows are dropped."""
    cache = WindowCache(kept_bytes=10)
    one, two, three = Reader(), Reader(), Reader()
    for reader in (one, two, one, three):
        cache.note(reader, 4)
    assert [0, 1, 0] == [reader.forgotten for reader in (one, two, three)]
    cache.note(three, 20)
    assert [1, 1, 0] == [reader.forgotten for reader in (one, two, three)]
    cache.close()
