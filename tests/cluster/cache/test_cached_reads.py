"""The second read of a cluster's records comes from disk and equals what the leader returns."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import pytest

from testing.broker.client import Client, Outgoing
from tests.doubles.broker_away import back_again
from tests.doubles.cluster_mount import bash, mounted_cluster
from tests.doubles.small_disk import small_disk
from tests.doubles.waiting import wait_until
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.leaders import Leaders
from topicfs.cluster.cache.cache import Cache
from topicfs.cluster.engine import CacheSettings, ClusterEngine, open_engine
from topicfs.cluster.errors import CacheError
from topicfs.cluster.place import cluster_address
from topicfs.storage.errors import OffsetOutOfRangeError
from topicfs.storage.messages import WarningBook
from topicfs.storage.model import Isolation, Offset, Timestamp

pytestmark = pytest.mark.java

MIB = 1 << 20


@pytest.fixture
def opened(address, relay, tmp_path):
    """Open the cluster through the relay, with a cache."""

    @contextmanager
    def engine(max_bytes=64 * MIB):
        leaders = Leaders(Brokers(address, relay.connect))
        place = CacheSettings(tmp_path / "cache", max_bytes)
        with closing(ClusterEngine(leaders, read_only=True, cache=place)) as engine:
            yield engine

    return engine


@pytest.fixture
def client_of_three(three_brokers):
    return Client(three_brokers[1].bootstrap_server)


def found(engine, name, number=0):
    wait_until(
        lambda: name in engine.topics() and number in engine.topic(name).partitions(), "the topic is known"
    )
    return engine.partition(name, number)


def through(partition, start=0, *, max_bytes=MIB, isolation=Isolation.READ_COMMITTED):
    """Read a partition to its end. Return its batches and the aborted transactions that the reads named."""
    offset, data, aborted = max(Offset(start), partition.log_start_offset), [], set()
    while offset < partition.visible_end(isolation):
        part = partition.read(offset, max_bytes=max_bytes, isolation=isolation)
        data.append(bytes(part.data))
        aborted.update((one.producer_id, one.first_offset) for one in part.aborted)
        offset = part.next_offset
    return b"".join(data), aborted


def loaded(partition):
    """Wait until the cached part of a partition has been compared with its leader; return the partition."""
    wait_until(
        lambda: partition.available_end(partition.log_start_offset) > 0, "the cached records can be read"
    )
    return partition


def kept(partition, end):
    """Wait until the whole partition is read from cache files.

    Batches that arrive because a reader follows the partition stay in memory and enter no file.
    """

    def read_through():
        partition._reader.forget()
        through(partition)
        return end == partition.available_end(partition.log_start_offset)

    wait_until(read_through, "all records are in the cache")


def several(client, name, count=400, size=2000, **how):
    client.create_topic(name, **how)
    for first in range(0, count, 100):
        client.produce(
            name,
            [Outgoing(b"%d " % number + bytes(size)) for number in range(first, first + 100)],
            batch=10,
            compression_type=("none", "zstd", "lz4", "gzip")[first // 100 % 4],
        )


def test_a_second_read_sends_no_request(opened, relay, client):
    """A second read, in pieces of any size or in an engine opened later, sends no request and returns equal bytes."""
    several(client, "read-again")
    with opened() as engine:
        partition = found(engine, "read-again")
        expected = through(partition)
        partition._reader.forget()
        before = relay.requests["Fetch"]
        assert expected == through(partition)
        assert partition.visible_end(Isolation.READ_COMMITTED) == partition.available_end(Offset(0))
    for pieces in (1, 5000, MIB):
        with opened() as engine:
            partition = loaded(found(engine, "read-again"))
            before = {offset: bytes(partition.read(offset, max_bytes=1).data) for offset in (0, 7, 399)}
            assert expected[0] == through(partition, max_bytes=pieces)[0]
            assert all(data in expected[0] for data in before.values())
            assert {"read-again"} == {partition.topic}
    assert 3 <= relay.requests["OffsetForLeaderEpoch"] <= 6


def test_single_reads_in_any_order_fill_the_cache(opened, client):
    """The cache joins the pieces that were read in random order; later reads return what the leader returns."""
    several(client, "at-random", count=300, size=20_000)
    chance = random.Random(5)
    with opened() as engine:
        partition = found(engine, "at-random")
        for _ in range(200):
            offset = Offset(chance.randrange(300))
            partition._reader.forget()
            part = partition.read(offset, max_bytes=chance.choice((1, 50_000, 500_000)))
            assert part.next_offset > offset
        expected = through(partition)[0]
    with opened() as engine:
        assert expected == through(loaded(found(engine, "at-random")))[0]


def test_aborted_transactions_stay_hidden(opened, client):
    """With a cache, readers of both isolation levels get the same records as without one: aborted ones stay hidden."""
    client.create_topic("undone")
    producer = client.producer(transactional_id="undone")
    producer.init_transactions(30)
    for number in range(20):
        with client.transaction(producer, commit=number % 3 != 0):
            for each in range(5):
                producer.produce("undone", b"%d-%d" % (number, each) + bytes(3000), partition=0)
        client.produce("undone", [Outgoing(b"plain %d" % number)])
    wait_until(lambda: 20 * 7 == client.offset_for("undone"), "the last marker is written")
    with opened() as engine:
        expected = {
            isolation: through(found(engine, "undone"), isolation=isolation) for isolation in Isolation
        }
    for pieces in (1, 10_000, MIB):
        with opened() as engine:
            partition = loaded(found(engine, "undone"))
            for isolation in Isolation:
                assert expected[isolation] == through(partition, max_bytes=pieces, isolation=isolation)
    assert 7 == len(expected[Isolation.READ_COMMITTED][1])


def test_transactions_are_fetched_again_after_a_crash(opened, client, tmp_path):
    """After a crash, transactional batches are fetched again.

    The list of aborted transactions may not have reached the disk before the crash.
    """
    client.create_topic("crashed")
    producer = client.producer(transactional_id="crashed")
    producer.init_transactions(30)
    with client.transaction(producer, commit=False):
        producer.produce("crashed", b"undone", partition=0)
    with client.transaction(producer):
        producer.produce("crashed", b"done", partition=0)
    wait_until(lambda: 4 == client.offset_for("crashed"), "the last marker is written")
    with opened() as engine:
        expected = through(found(engine, "crashed"))
    (tmp_path / "cache" / "topicfs.clean").unlink()
    [aborted] = (tmp_path / "cache").glob("*/*/*.aborted")
    aborted.unlink()
    with opened() as engine:
        assert expected == through(found(engine, "crashed"))
        assert expected[1]


def test_the_bound_is_kept(opened, client, tmp_path):
    """While others read, the cache stays within its size limit by deleting the least recently used files."""
    names = [f"bounded-{number}" for number in range(4)]
    for name in names:
        several(client, name, count=200, size=30_000, settings={"compression.type": "uncompressed"})
    with opened(max_bytes=8 * MIB) as engine:
        expected = {name: through(found(engine, name))[0] for name in names}
        with ThreadPoolExecutor(len(names)) as threads:
            for _ in range(3):
                again = threads.map(lambda name: through(found(engine, name))[0], names)
                assert list(expected.values()) == list(again)
        files = sum(path.stat().st_size for path in (tmp_path / "cache").glob("*/*/*.log"))
        assert files == engine._cache.bytes
        assert 1 * MIB < files <= 8 * MIB


def test_deleted_records_are_not_read(opened, client, tmp_path):
    """Reads below the log start are out of range. The next write to the cache deletes the files of these records."""
    several(client, "shortened", count=200, size=30_000)
    with opened(max_bytes=16 * MIB) as engine:
        through(found(engine, "shortened"))
    before = set((tmp_path / "cache").glob("*/*/*.log"))
    client.delete_records("shortened", 190)
    with opened(max_bytes=16 * MIB) as engine:
        partition = found(engine, "shortened")
        wait_until(lambda: 190 == partition.log_start_offset, "the engine knows the log start")
        with pytest.raises(OffsetOutOfRangeError):
            partition.read(Offset(100), max_bytes=1)
        client.produce("shortened", [Outgoing(b"new")])
        wait_until(
            lambda: 201 == partition.visible_end(Isolation.READ_COMMITTED), "the engine knows the visible end"
        )
        through(partition, 190)
        assert set((tmp_path / "cache").glob("*/*/*.log")) < before or len(before) == 1


def test_a_topic_that_is_deleted_is_forgotten(opened, client, tmp_path):
    """A deleted topic's files are deleted, even if no engine was open; a new topic of that name does not use them."""
    for name in ("forgotten-now", "forgotten-later"):
        several(client, name, count=100)
    with opened() as engine:
        for name in ("forgotten-now", "forgotten-later"):
            through(found(engine, name))
        assert 2 == len(list((tmp_path / "cache").glob("*/*/*.log")))
        client.delete_topics(["forgotten-now"])
        wait_until(lambda: "forgotten-now" not in engine.topics(), "the topic is gone")
        wait_until(
            lambda: 1 == len(list((tmp_path / "cache").glob("*/*/*.log"))), "the topic's files are gone"
        )
    client.delete_topics(["forgotten-later"])
    client.create_topic("forgotten-later")
    client.produce("forgotten-later", [Outgoing(b"new")])
    with opened() as engine:
        assert b"new" in through(found(engine, "forgotten-later"))[0]
        assert 1 == len(list((tmp_path / "cache").glob("*/*/*.log")))


def test_a_compacted_topic_is_not_kept(opened, client, tmp_path):
    """A compacted topic is not cached, because compaction can change batches that were read."""
    client.create_topic("by-key", settings={"cleanup.policy": "compact"})
    client.produce("by-key", [Outgoing(b"a", b"k"), Outgoing(b"b", b"k")])
    with opened() as engine:
        through(found(engine, "by-key"))
    assert [] == list((tmp_path / "cache").glob("*/*/*.log"))


def test_a_topic_that_becomes_compacted_leaves_the_cache(opened, client, tmp_path):
    """A topic that becomes compacted leaves the cache within a minute, which is how long its policy is cached."""
    several(client, "by-key-now", count=100)
    with opened() as engine:
        partition = found(engine, "by-key-now")
        through(partition)
        client.set_setting("by-key-now", "cleanup.policy", "compact")
        assert 1 == len(list((tmp_path / "cache").glob("*/*/*.log")))
    with opened() as engine:
        partition = found(engine, "by-key-now")
        partition.read(Offset(0), max_bytes=1)
        assert [] == list((tmp_path / "cache").glob("*/*/*.log"))


def test_damaged_files_are_fetched_again(opened, client, tmp_path):
    """Damaged files are fetched again with one warning, and no reader gets wrong data."""
    several(client, "damaged")
    with opened() as engine:
        expected = through(found(engine, "damaged"))
    [path] = (tmp_path / "cache").glob("*/*/*.log")
    good = path.read_bytes()
    for at in (10, len(good) // 2, len(good) - 3):
        path.write_bytes(good[:at] + bytes([good[at] ^ 255]) + good[at + 1 :])
        with opened() as engine:
            assert expected == through(found(engine, "damaged"))
    with opened() as engine:
        assert expected == through(found(engine, "damaged"))
    with opened() as engine:
        partition = loaded(found(engine, "damaged"))
        for path in (tmp_path / "cache").glob("*/*/*.log"):
            path.write_bytes(bytes(path.stat().st_size))
        assert expected == through(partition)
        assert any("removed from the cache" in line for line in engine.warnings)


def test_a_cache_belongs_to_one_process(opened, address, tmp_path):
    """A second process that opens a cache gets a one-line error. A cache directory with other files is also refused."""
    with opened():
        with pytest.raises(CacheError, match=r"--cache") as refused:
            Cache(tmp_path / "cache", MIB, WarningBook(lambda: Timestamp(0)))
        assert "\n" not in str(refused.value)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(CacheError, match=r"not a cache: contains letter\.txt.*name an empty directory"):
        open_engine(address, cache=CacheSettings(tmp_path / "other", MIB))
    assert ["letter.txt"] == [path.name for path in (tmp_path / "other").iterdir()]


@pytest.mark.parametrize("meanwhile", ["open", "closed"])
def test_what_a_leader_loses_is_gone(client_of_three, three_brokers, relay, tmp_path, meanwhile):
    """After an unclean election the cache is truncated to the new leader's bounds.

    The truncated records stay absent when the cache is opened again.
    """
    client, name = client_of_three, f"lost-kept-{meanwhile}"
    second, third = three_brokers[2], three_brokers[3]
    settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    client.create_topic(name, replicas=(2, 3), settings=settings)
    client.produce(name, [Outgoing(b"a"), Outgoing(b"b")], batch=1)
    address = cluster_address(f"kafka://{three_brokers[1].bootstrap_server}")
    place = CacheSettings(tmp_path / "cache", 64 * MIB)
    with back_again(second, third), ExitStack() as stack:
        engine = stack.enter_context(closing(open_engine(address, read_only=True, cache=place)))
        assert b"b" in through(found(engine, name))[0]
        third.kill()
        client.produce(name, [Outgoing(b"gone c"), Outgoing(b"gone d")], batch=1)
        partition = found(engine, name)
        partition.listen(lambda: None)
        wait_until(lambda: 4 == partition.visible_end(Isolation.READ_COMMITTED), "the records are visible")
        kept(partition, 4)
        assert b"gone d" in through(partition)[0]
        if meanwhile == "closed":
            stack.close()
        second.kill()
        third.start()
        client.produce(name, [Outgoing(b"new")] * 9)
        if meanwhile == "closed":
            engine = stack.enter_context(closing(open_engine(address, read_only=True, cache=place)))
            partition = found(engine, name)
        wait_until(lambda: 11 == partition.visible_end(Isolation.READ_COMMITTED), "the log has grown again")
        data = through(partition)[0]
        assert b"gone" not in data
        assert b"new" in data


@pytest.mark.root
def test_a_full_disk_stops_only_caching(address, client, tmp_path):
    """A full disk stops only caching, with one warning; reads go to the cluster, and cached records stay in use."""
    several(client, "too-much-to-keep", count=400, size=30_000, settings={"compression.type": "uncompressed"})
    with small_disk(tmp_path, kind="tmpfs", size_mb=4) as disk:
        place = CacheSettings(disk / "cache", 64 * MIB)
        for _ in range(2):
            with closing(open_engine(address, read_only=True, cache=place)) as engine:
                data = through(found(engine, "too-much-to-keep"))[0]
                assert data.count(bytes(30_000)) >= 400
                lines = [line for line in engine.warnings if "nothing more is cached" in line]
                assert 1 == len(lines), engine.warnings
                assert "No space left" in lines[0]


@pytest.mark.fuse
def test_a_mount_with_a_cache_knows_sizes(address, client, tmp_path):
    """After one `cat`, this mount and later mounts give `stat`, `tail -c` and `wc -c` the exact size of a log."""
    lines = [b"%06d some text" % number for number in range(50_000)]
    client.create_topic("sized-at-once")
    client.produce("sized-at-once", [Outgoing(line) for line in lines], batch=100)
    whole = b"".join(line + b"\n" for line in lines)
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        options = ("--cache", str(tmp_path / "cache"), "--cache-bytes", str(32 * MIB))
        with mounted_cluster(address, tmp_path / str(number), *options) as mountpoint:
            log = mountpoint / "sized-at-once/0/log"
            wait_until(log.exists, "the topic is known")
            if not number:
                assert whole == log.read_bytes()
            wait_until(lambda: len(whole) == log.stat().st_size, "the size of the log is known")  # noqa: B023 (at once)
            tail = bash(log.parent, "tail -c 20 log; tail -n 1 log; wc -c < log")
            assert "49999 some text" in tail.output
            assert str(len(whole)) == tail.output.split()[-1]
            assert whole[-20:].decode() == tail.output[:20]
