"""Tests of a cluster's brokers: metadata, reuse of connections, and errors if no broker answers."""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import Future
from contextlib import closing
from itertools import count

import pytest

from tests.cluster.protocol.test_connection import agreeing, answered
from tests.doubles.servers import nobody_listens
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from topicfs.cluster.brokers.brokers import LONGEST_PAUSE_SECONDS, Backoff, Brokers, Leader
from topicfs.cluster.errors import (
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    ThrottledError,
    UnreachableError,
)
from topicfs.cluster.place import ClusterAddress, Server, cluster_address
from topicfs.cluster.protocol.connection import Connection
from topicfs.protocol.messages import METADATA
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.errors import ClusterError
from topicfs.storage.model import TopicPartition

pytestmark = pytest.mark.java

DENIED = "p6Cf5Rw-Q96cv_t2aweLcg"
"""The id of a topic that the user may not describe."""
EVERYTHING = {"topics": None, "allowAutoTopicCreation": False}


@pytest.fixture
def brokers(address):
    with closing(Brokers(address)) as brokers:
        yield brokers


def test_metadata_names_topics_by_id_with_their_leaders(brokers, client, address):
    """The metadata have the topic ids and leaders that another client sees."""
    topic_id = client.create_topic("described", partitions=3)
    metadata = brokers.metadata()
    topic = metadata.topics["described"]
    assert (topic_id, False, [0, 1, 2]) == (topic.topic_id, topic.internal, list(topic.leaders))
    assert {1: address.servers[0]} == metadata.brokers
    assert Leader(1, 0) == metadata.leader(TopicPartition("described", 2))
    assert Leader(-1, -1) == metadata.leader(TopicPartition("described", 3))
    assert Leader(-1, -1) == metadata.leader(TopicPartition("unknown", 0))


def test_a_recreated_topic_has_another_id(brokers, client):
    """A recreated topic has another id than the deleted one."""
    first = client.create_topic("again")
    assert first == brokers.metadata().topics["again"].topic_id
    client.delete_topics(["again"])
    second = client.create_topic("again")
    assert first != second
    assert second == brokers.metadata().topics["again"].topic_id


def test_equal_metadata_share_the_topics_object(brokers, client):
    """Equal answers give new metadata with the same topics object, so that callers need not compare partitions."""
    client.create_topic("unchanged")
    wait_until(lambda: "unchanged" in brokers.metadata().topics, "the topic is known")
    wait_until(lambda: brokers.metadata().topics is brokers.metadata().topics, "the metadata do not change")
    assert brokers.metadata() is not brokers.metadata()
    first = brokers.metadata()
    client.create_topic("changing")
    wait_until(lambda: "changing" in brokers.metadata().topics, "the topic is known")
    assert first.topics == {
        name: topic for name, topic in brokers.metadata().topics.items() if name != "changing"
    }


def test_new_brokers_are_noticed_even_if_the_topics_are_unchanged(address, relay):
    """A new controller or broker is noticed even if the topics are unchanged; an error in any answer is raised."""
    moved = {"nodeId": 7, "host": "127.0.0.1", "port": 1, "rack": None}
    relay.do(
        METADATA,
        lambda said: {**said, "controllerId": 3},
        lambda said: {**said, "controllerId": 7, "brokers": [*said["brokers"], moved]},
        lambda said: {**said, "errorCode": 58},
        lambda said: {**said, "errorCode": 58},
    )
    with closing(Brokers(address, relay.connect)) as brokers:
        first, second = brokers.metadata(), brokers.metadata()
        assert (3, 7) == (first.controller, second.controller)
        assert {**first.brokers, 7: Server("127.0.0.1", 1)} == second.brokers
        assert first.topics is second.topics
        for _ in range(2):
            with pytest.raises(ClusterError):
                brokers.metadata()
        assert second.topics == brokers.metadata().topics


def test_every_throttle_time_counts(address, relay):
    """The client obeys the throttle time of each answer, even if the topics in the answer are the same as before."""
    relay.do(METADATA, dict, dict, lambda said: {**said, "throttleTimeMs": 600_000})
    with closing(Brokers(address, relay.connect)) as brokers:
        for _ in range(3):
            brokers.metadata()
        with pytest.raises(ThrottledError, match="the quota of this client is used up"):
            brokers.metadata()
        assert 3 == relay.requests["Metadata"]


def test_connections_are_used_again(address):
    """Requests sent one after the other share a connection; two requests at the same time use two connections."""
    made = count()
    brokers = Brokers(address, lambda server, **how: (next(made), Connection(server, **how))[1])
    for _ in range(3):
        brokers.metadata()
    with brokers.connection(1), brokers.connection(1):
        pass
    brokers.ask(1, METADATA, EVERYTHING)
    assert 2 == next(made)
    brokers.close()


def test_a_broken_connection_is_replaced(address):
    """After a connection breaks, idle connections that were opened at the same time are replaced, too."""
    brokers = Brokers(address)
    brokers.metadata()
    with brokers.connection(1) as first, brokers.connection(1) as second:
        pass
    for one in (first, second):
        one._socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(UnreachableError):
        brokers.ask(1, METADATA, EVERYTHING)
    assert brokers.ask(1, METADATA, EVERYTHING)
    brokers.close()


class Throttling:
    """A server that answers Metadata; the first answers demand the given pauses, in milliseconds."""

    def __init__(self, served, *pauses_ms, brokers=()):
        self.pauses_ms, self.brokers = list(pauses_ms), brokers
        self.times = []
        """Times of each request's arrival and of each answer."""
        self.server = served(agreeing(self._answer))

    def _answer(self, connection, _key, version, correlation, _rest):
        came = time.monotonic()
        pause_ms = self.pauses_ms.pop(0) if self.pauses_ms else 0
        known = [
            {"nodeId": node, "host": one.host, "port": one.port, "rack": None}
            for node, one in enumerate(self.brokers)
        ]
        answer = {"throttleTimeMs": pause_ms, "brokers": known, "topics": []}
        self.times.append((came, time.monotonic()))
        connection.sendall(answered(METADATA, version, correlation, answer))


def test_a_broker_over_the_quota_gets_no_request_before_its_time(served):
    """A throttled broker gets no request before its pause ends, over any connection."""
    broker = Throttling(served, 50)
    with closing(Brokers(ClusterAddress((broker.server,)))) as brokers:
        for _ in range(2):
            brokers.metadata()
    (_, answered), (came, _) = broker.times
    assert came - answered >= 0.05


def test_a_longer_pause_than_a_caller_waits_is_an_error(served):
    """If a pause is longer than the caller waits, the call fails and nothing is sent.

    A later, shorter pause does not shorten the first one.
    """
    broker = Throttling(served, 600_000, 1)
    with closing(Brokers(ClusterAddress((broker.server,)))) as brokers:
        with brokers._lent(broker.server, 1) as first, brokers._lent(broker.server, 1) as second:
            for one in (first, second):
                one.call(METADATA, EVERYTHING)
        with pytest.raises(ThrottledError, match=f"{broker.server}: the quota of this client is used up"):
            brokers.metadata()
    assert 2 == len(broker.times)


def test_a_pause_of_one_broker_does_not_delay_other_brokers(served):
    """Each broker has its own pause, so requests that any broker can answer go to a broker without a pause."""
    other = Throttling(served)
    first = Throttling(served, 600_000)
    first.brokers = other.brokers = (first.server, other.server)
    with closing(Brokers(ClusterAddress((first.server,)))) as brokers:
        for _ in range(3):
            brokers.metadata()
        brokers.ask(1, METADATA, EVERYTHING)
        with pytest.raises(ThrottledError):
            brokers.ask(0, METADATA, EVERYTHING)
    assert (1, 3) == (len(first.times), len(other.times))


def test_requests_to_a_coordinator_have_a_pause_of_their_own(served):
    """A pause after a fetch does not delay requests to a coordinator, as in Kafka's consumer: heartbeats must go on."""
    broker = Throttling(served, 600_000, 600_000)
    broker.brokers = (broker.server,)
    with closing(Brokers(ClusterAddress((broker.server,)))) as brokers:
        brokers.metadata()
        brokers.ask(0, METADATA, EVERYTHING, coordinator=True)
        for coordinator in (False, True):
            with pytest.raises(ThrottledError):
                brokers.ask(0, METADATA, EVERYTHING, coordinator=coordinator)
    assert 2 == len(broker.times)


def test_the_end_of_a_client_ends_the_wait_for_a_quota(served):
    """Closing the client ends a wait for a quota, however long the wait is."""
    broker = Throttling(served, 600_000)
    ended = Future()
    with closing(Brokers(ClusterAddress((broker.server,)))) as brokers:
        brokers.metadata()

        def wait():
            with pytest.raises(ThrottledError) as caught:
                brokers.metadata(seconds=700)
            ended.set_result(caught.value)

        thread = threading.Thread(target=wait)
        thread.start()
        brokers.break_off()
        assert isinstance(ended.result(TIMEOUT_SECONDS), ThrottledError)
        thread.join()


def test_a_forked_process_opens_new_connections(brokers):
    """A forked process opens new connections, so parent and child never read each other's answers."""
    brokers.metadata()
    child = os.fork()
    if not child:
        try:
            os._exit(0 if brokers.metadata().brokers else 1)
        finally:
            os._exit(2)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert brokers.metadata().brokers


def test_one_reachable_broker_is_enough(address):
    """One reachable broker of the address is enough; if no broker is reachable, the error gives the reason for each."""
    with nobody_listens() as down:
        with closing(Brokers(ClusterAddress((down, *address.servers)))) as brokers:
            assert brokers.metadata().brokers
        with pytest.raises(UnreachableError) as caught:
            Brokers(ClusterAddress((down, down._replace(host="localhost")))).metadata()
    assert f"no broker answers ({down}: Connection refused; localhost:{down.port}: " in str(caught.value)
    with pytest.raises(UnreachableError, match="broker 7 is not known"):
        Brokers(address).ask(7, METADATA, EVERYTHING)


def test_a_silent_server_does_not_delay_requests(address, served):
    """If a server does not answer, the next server is tried before the time limit of the first one ends.

    Later requests try the silent server last.
    """
    came, given_up = [], threading.Event()

    def say_nothing(connection):
        came.append(connection)
        while connection.recv(4096):
            pass
        given_up.set()

    hung = served(say_nothing)
    with closing(Brokers(ClusterAddress((hung, *address.servers)))) as brokers:
        for _ in range(3):
            assert hung not in brokers.metadata().brokers.values()
        assert (1, False) == (len(came), given_up.is_set())


def test_a_connection_that_opens_late_is_kept(address):
    """If a connection opens only after the next server was asked, it is kept for requests to its own server."""
    slow, begun, lets = address.servers[0]._replace(host="localhost"), threading.Event(), threading.Event()

    def connect(server, **how):
        if server == slow:
            begun.set()
            assert lets.wait(TIMEOUT_SECONDS)
        return Connection(server, **how)

    with closing(Brokers(ClusterAddress((slow, *address.servers)), connect)) as brokers:
        assert brokers.metadata().brokers
        assert begun.is_set()
        lets.set()
        wait_until(lambda: brokers._pool(slow).idle, "the slow connection is open")


def test_old_brokers_get_no_requests_by_topic_id(served):
    """Brokers of Kafka 2.8.0 get no requests by topic id.

    If all brokers are that old, a topic that is missing from the metadata counts as deleted.
    """
    asked = []
    refusal = {"topics": [{"errorCode": 29, "topicId": decode_id(DENIED)}]}

    def refuse(connection, _key, version, correlation, _rest):
        connection.sendall(answered(METADATA, version, correlation, refusal))

    old = served(agreeing(lambda *request: asked.append(request), [(METADATA.key, 0, 11)]))
    new = served(agreeing(refuse, [(METADATA.key, 0, 12)]))
    for addresses, code in (((old,), UNKNOWN_TOPIC_ID), ((old, new), TOPIC_AUTHORIZATION_FAILED)):
        with closing(Brokers(ClusterAddress(addresses))) as brokers:
            assert {"hidden": code} == brokers.answers_by_id({"hidden": DENIED}, seconds=5)
    assert [] == asked


@pytest.mark.parametrize(("throttled", "error"), [(True, ThrottledError), (False, UnreachableError)])
def test_a_topic_is_unknown_while_only_old_brokers_answer(served, throttled, error):
    """While only an old broker answers, a missing topic is unknown, not deleted.

    An old broker cannot look up topic ids.
    """
    old = served(agreeing(lambda *_: None, [(METADATA.key, 0, 11)]))
    with nobody_listens() as away, closing(Brokers(ClusterAddress((old,)))) as brokers:
        brokers._known = {1: old, 2: away}
        if throttled:
            brokers._pool(away).throttle.note({"throttleTimeMs": 600_000})
        with pytest.raises(error):
            brokers.answers_by_id({"hidden": DENIED}, seconds=0.5)


def test_a_controllers_port(broker):
    """A controller's listener speaks Kafka's protocol, but does not support the APIs that clients need."""
    address = cluster_address(f"kafka://127.0.0.1:{broker.controller_port}")
    with (
        closing(Brokers(address)) as brokers,
        pytest.raises(UnreachableError, match="port of a listener for clients"),
    ):
        brokers.metadata()


def test_pauses_grow_up_to_a_bound():
    """Pauses between attempts grow only up to a limit: no thread spins, and no caller waits for minutes."""
    backoff = Backoff()
    pauses = [backoff.next() for _ in range(10)]
    assert [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0] == pauses
    assert LONGEST_PAUSE_SECONDS == pauses[-1]
