"""Tests of a cluster's quotas: a client waits as long as the broker demands, and no record is lost."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from tests.doubles.kafka_tools import run_tool
from tests.doubles.producing import batch, found, impatient, opened, values
from tests.doubles.waiting import wait_until
from topicfs.cluster.engine import open_engine
from topicfs.cluster.errors import ThrottledError
from topicfs.protocol.messages import METADATA, PRODUCE
from topicfs.storage.errors import PartitionOfflineError
from topicfs.storage.model import Offset

pytestmark = pytest.mark.java

RATE, WINDOW_SECONDS = 1_000_000, 11
"""The quota in bytes per second, and the seconds over which a broker averages it (`quota.window.num`)."""


@contextmanager
def quota_of_everybody(java, broker, setting):
    """Set a quota for each client of each user during the block."""
    where = ("--bootstrap-server", broker.bootstrap_server, "--alter", "--entity-type", "clients")
    tool = (java, "kafka.admin.ConfigCommand", *where, "--entity-default")
    run_tool(*tool, "--add-config", f"{setting}={RATE}")
    try:
        yield
    finally:
        run_tool(*tool, "--delete-config", setting)


def test_appends_take_as_long_as_their_bytes_at_the_quota(java, broker, client, address):
    """An append of many bytes takes at least the time that the quota demands, minus the broker's averaging window."""
    data, count = batch(bytes(900_000)), 18
    with closing(open_engine(address)) as engine:
        partition = opened(engine, client, "slowed-appends")
        with quota_of_everybody(java, broker, "producer_byte_rate"):
            began = time.monotonic()
            for _ in range(count):
                partition.append(bytearray(data), durable=True)
            took = time.monotonic() - began
    assert took >= (count - 1) * len(data) / RATE - WINDOW_SECONDS
    assert [900_000] * count == [len(value) for value in values(client, "slowed-appends")]


@pytest.mark.parametrize("begun", [False, True])
def test_an_append_over_the_quota_succeeds_and_the_next_waits(relayed, client, relay, begun):
    """The throttled append succeeds; later requests to that broker wait until the engine closes."""
    name = f"next-waits-{begun}".lower()
    partition = opened(relayed, client, name)
    partition.append(batch(b"a"), durable=True)
    other = opened(relayed, client, f"{name}-other")
    relay.do(PRODUCE, lambda said: {**said, "throttleTimeMs": 600_000})

    def begin(one, value):
        return one.begin_append(batch(value), durable=True, encoded_here=False, unless=lambda: False)

    if begun:
        assert 1 == begin(partition, b"b").end().base_offset
    else:
        assert 1 == partition.append(batch(b"b"), durable=True).base_offset
    with pytest.raises(ThrottledError):
        relayed.leaders.brokers.ask(1, METADATA, {"topics": [], "allowAutoTopicCreation": False})
    refused = []

    def append():
        with pytest.raises(PartitionOfflineError, match="the engine was closed") as caught:
            begin(other, b"c").end() if begun else other.append(batch(b"c"), durable=True)
        refused.append(caught.value)

    thread = threading.Thread(target=append)
    thread.start()
    wait_until(relayed.leaders._asking.values, "the append waits")
    relayed.close()
    thread.join()
    assert 1 == len(refused)
    assert [b"a", b"b"] == values(client, name)
    assert [] == values(client, f"{name}-other")


def test_queued_appends_wait_for_the_quota(relayed, client, relay):
    """Queued appends wait for the quota without a time limit.

    The time limit for an unreachable leader does not apply to this wait.
    """
    partition = opened(relayed, client, "take-turns")
    partition.append(batch(b"0"), durable=True)
    relay.do(PRODUCE, lambda said: {**said, "throttleTimeMs": 2000})
    partition.append(batch(b"1"), durable=True)
    with impatient(relayed, 0.1), ThreadPoolExecutor(3) as threads:
        appended = threads.map(lambda value: partition.append(batch(value), durable=True), (b"2", b"3", b"4"))
        assert [2, 3, 4] == sorted(one.base_offset for one in appended)


def test_an_append_continues_after_the_pause(relayed, client, relay):
    """After the pause, appends, reads and following of the partition continue."""
    partition = opened(relayed, client, "goes-on")
    relay.do(PRODUCE, *[lambda said: {**said, "throttleTimeMs": 20}] * 3)
    for number in range(6):
        assert number == partition.append(batch(b"%d" % number)).base_offset
    assert partition.read(Offset(0), max_bytes=1 << 20).data
    assert found(relayed, "goes-on") is partition
