"""Appends to a running cluster through an engine, and reads of the cluster's records through a client."""

from __future__ import annotations

from contextlib import closing, contextmanager
from threading import Event, Thread

from testing.broker.client import Client
from tests.doubles.broker_away import away
from tests.doubles.waiting import wait_until
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.leaders import Leaders
from topicfs.cluster.engine import ClusterEngine
from topicfs.cluster.errors import UnreachableError
from topicfs.cluster.place import cluster_address
from topicfs.cluster.protocol.connection import Connection
from topicfs.protocol.messages import FETCH
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.model import Offset, Record, Timestamp

NOW = Timestamp(1_700_000_000_000)


def batch(*values, key=None, time=NOW, **stamp):
    """Return one record batch as the mount encodes it."""
    records = [Record(Offset(number), time, key, value) for number, value in enumerate(values)]
    return bytearray(encode(records, BatchStamp(**stamp)))


def values(client, topic, partition=0):
    return [record.value for record in client.records(topic, partition=partition)]


class Unfetched(Connection):
    """A connection on which every fetch fails, so that an engine learns offsets only from answers to its appends."""

    def call(self, api, request, **how):
        if api is FETCH:
            raise UnreachableError(f"{self.server}: nothing is fetched")
        return super().call(api, request, **how)


@contextmanager
def connected(address, connection=Connection):
    """Connect an engine whose connections are of the class `connection`."""
    with closing(ClusterEngine(Leaders(Brokers(address, connection)), read_only=False)) as engine:
        yield engine


@contextmanager
def impatient(engine, seconds):
    """During the block, let the engine search for leaders for `seconds` only, instead of its longer usual timeout."""
    before, engine.leaders.timeout_seconds = engine.leaders.timeout_seconds, seconds
    try:
        yield
    finally:
        engine.leaders.timeout_seconds = before


def opened(engine, client, name, **settings):
    """Create a topic and return its partition 0."""
    client.create_topic(name, settings={key.replace("_", "."): value for key, value in settings.items()})
    return found(engine, name)


def found(engine, name, number=0):
    def listed():
        engine.look()
        return name in engine.topics() and number in engine.topic(name).partitions()

    wait_until(listed, "the topic is listed")
    return engine.partition(name, number)


def check_appends_while_leaders_move(brokers, how, topic, append, threads):
    """Check that appends are stored once and in order while a leader is stopped, killed or paused, as `how` says.

    Each of `threads` threads calls `append(partition, mine, number, stop)`. Until `stop` is set, this function
    appends values that begin with its number, and adds the appended values to its list `mine`.
    """
    client = Client(brokers[1].bootstrap_server)
    client.create_topic(topic, replicas=(2, 3, 1), settings={"min.insync.replicas": "2"})
    acknowledged = [[] for _ in range(threads)]
    stop = Event()

    def wait_for_more():
        before = [len(one) for one in acknowledged]
        wait_until(
            lambda: all(len(one) > had + 5 for one, had in zip(acknowledged, before, strict=True)),
            "all producers append",
            timeout_seconds=120,
        )

    with connected(cluster_address(f"kafka://{client.bootstrap_server}")) as engine:
        partition = found(engine, topic)
        running = [
            Thread(target=append, args=(partition, mine, number, stop))
            for number, mine in enumerate(acknowledged)
        ]
        for one in running:
            one.start()
        try:
            wait_for_more()
            with away(brokers[2], how):
                wait_for_more()
            wait_for_more()
        finally:
            stop.set()
            for one in running:
                one.join()
    written = values(client, topic)
    for number, mine in enumerate(acknowledged):
        assert mine == [value for value in written if value.startswith(b"%d " % number)]
