"""Appends to a running cluster through an engine, and what a client finds there."""

from __future__ import annotations

from contextlib import closing, contextmanager

from tests.doubles.broker_away import away
from tests.doubles.waiting import wait_until
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.leaders import Leaders
from topicfs.cluster.engine import ClusterEngine
from topicfs.cluster.errors import UnreachableError
from topicfs.cluster.protocol.connection import Connection
from topicfs.protocol.messages import FETCH
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.model import Offset, Record, Timestamp

NOW = Timestamp(1_700_000_000_000)


def batch(*values, key=None, time=NOW, **stamp):
    """One record batch as the mount makes them."""
    records = [Record(Offset(number), time, key, value) for number, value in enumerate(values)]
    return bytearray(encode(records, BatchStamp(**stamp)))


def values(client, topic, partition=0):
    return [record.value for record in client.records(topic, partition=partition)]


class Unfetched(Connection):
    """A connection that fetches nothing: an engine learns only what it is told with the answers to its own appends."""

    def call(self, api, request, **how):
        if api is FETCH:
            raise UnreachableError(f"{self.server}: nothing is fetched")
        return super().call(api, request, **how)


@contextmanager
def connected(address, connection=Connection):
    """An engine with connections of its own kind."""
    with closing(ClusterEngine(Leaders(Brokers(address, connection)), read_only=False)) as engine:
        yield engine


@contextmanager
def impatient(engine, seconds):
    """A block in which an engine looks for leaders for so long; before and after it a slow machine is waited for."""
    before, engine.leaders.patience_seconds = engine.leaders.patience_seconds, seconds
    try:
        yield
    finally:
        engine.leaders.patience_seconds = before


def opened(engine, client, name, **settings):
    """Partition 0 of a new topic."""
    client.create_topic(name, settings={key.replace("_", "."): value for key, value in settings.items()})
    return found(engine, name)


def found(engine, name, number=0):
    def listed():
        engine.look()
        return name in engine.topics() and number in engine.topic(name).partitions()

    wait_until(listed, "the topic is listed")
    return engine.partition(name, number)


def move_leaders(leader, how, acknowledged):
    """Have a leader go and come back, `stopped`, `killed` or `standing still`; all append on before, meanwhile and after.

    `acknowledged` has a list for each that appends, of what is in the log.
    """

    def wait_for_more():
        before = [len(one) for one in acknowledged]
        wait_until(
            lambda: all(len(one) > had + 5 for one, had in zip(acknowledged, before, strict=True)),
            "all append",
            patience_s=120,
        )

    wait_for_more()
    with away(leader, how):
        wait_for_more()
    wait_for_more()
