"""Requests to partition leaders are retried if a retry may help, always within a time limit."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from topicfs.cluster.brokers import leaders as leaders_module
from topicfs.cluster.brokers.brokers import Brokers, Leader
from topicfs.cluster.brokers.fetch import ListedOffset
from topicfs.cluster.brokers.leaders import FAILURES_GONE, Leaders
from topicfs.cluster.errors import UNKNOWN_TOPIC_OR_PARTITION, ThrottledError, UnreachableError
from topicfs.storage.checkpoints.identifiers import new_id
from topicfs.storage.errors import NoAnswerError, PartitionGoneError, PartitionOfflineError
from topicfs.storage.model import Offset, TopicPartition

pytestmark = pytest.mark.java

NOT_LEADER, DENIED = 6, 29


class Attempts:
    """Returns the given answers in order, then repeats the last answer."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.leaders = []

    def __call__(self, leader):
        self.leaders.append(leader)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return ListedOffset(answer, Offset(0))


@pytest.fixture
def topic(client, request):
    name = request.node.originalname
    return name, client.create_topic(name)


@pytest.fixture
def leaders(address, topic):
    with closing(Leaders(Brokers(address), timeout_seconds=1.0)) as leaders:
        yield leaders


def test_a_retriable_error_is_retried(leaders, topic):
    """A retriable error is retried, with new metadata before each attempt."""
    name, topic_id = topic
    before = leaders.metadata
    attempts = Attempts(NOT_LEADER, UnreachableError("gone"), 0)
    assert 0 == leaders.ask(TopicPartition(name, 0), topic_id, attempts).error
    assert [Leader(1, 0)] * 3 == attempts.leaders
    assert before is not leaders.metadata


def test_a_permanent_error_is_not_retried(leaders, topic):
    """An error that is not retriable is returned after one attempt."""
    name, topic_id = topic
    attempts = Attempts(DENIED)
    assert DENIED == leaders.ask(TopicPartition(name, 0), topic_id, attempts).error
    assert 1 == len(attempts.leaders)


def test_a_call_that_waits_for_a_leader_is_reported(leaders, topic, monkeypatch):
    """A call that waits a second for a leader is reported, with start time, leader and last error, until it ends."""
    name, topic_id = topic
    told = []

    def attempt(leader):
        told.append(leaders.waiting())
        if len(told) == 1:
            monkeypatch.setattr(leaders_module, "REPORT_AFTER_SECONDS", 0.0)
            raise UnreachableError("gone")
        return ListedOffset(0, Offset(0))

    leaders.ask(TopicPartition(name, 0), topic_id, attempt)
    server = leaders.metadata.brokers[1]
    line = f"{name}-0: no answer for 0 s (broker 1, {server}, leads it); last attempt: gone"
    assert [[], [line]] == told
    assert [] == leaders.waiting()


def test_the_search_for_a_leader_has_a_time_limit(leaders, topic, monkeypatch):
    """The search for a leader ends after a time limit, with the last reason."""
    monkeypatch.setattr(leaders_module, "ANSWERING_SECONDS", 0.1)
    name, topic_id = topic
    with pytest.raises(PartitionOfflineError, match=r"no answer within 1 s: .*NOT_LEADER_OR_FOLLOWER"):
        leaders.ask(TopicPartition(name, 0), topic_id, Attempts(NOT_LEADER))
    with pytest.raises(PartitionOfflineError, match=r"no answer within 1 s: no way"):
        leaders.ask(TopicPartition(name, 0), topic_id, Attempts(UnreachableError("no way")))


def test_an_unknown_topic_is_retried_a_few_times(leaders, topic, client):
    """An unknown topic is retried a few times, as a broker may lag; the same name with another id is another topic."""
    name, topic_id = topic
    attempts = Attempts(0)
    with pytest.raises(PartitionGoneError):
        leaders.ask(TopicPartition(name, 0), new_id(), attempts)
    assert [] == attempts.leaders
    client.delete_topics([name])
    attempts = Attempts(UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(PartitionGoneError, match="its topic was deleted"):
        leaders.ask(TopicPartition(name, 0), topic_id, attempts)
    assert FAILURES_GONE >= len(attempts.leaders)


def test_a_topic_that_a_broker_knows_by_id_is_not_deleted(leaders, topic, monkeypatch):
    """A topic is not deleted if some broker knows its id, even if a lagging leader repeatedly reports it as unknown."""
    name, topic_id = topic
    monkeypatch.setattr(leaders_module, "ANSWERING_SECONDS", 1.0)
    attempts = Attempts(UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(NoAnswerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        leaders.ask(TopicPartition(name, 0), topic_id, attempts)
    assert FAILURES_GONE < len(attempts.leaders)


def test_closing_ends_the_search_for_a_leader(leaders, topic):
    """Closing ends the search for a leader immediately in every thread."""
    name, topic_id = topic
    leaders.timeout_seconds = 60.0
    ends = []
    tried = threading.Event()

    def attempt(_leader):
        tried.set()
        raise UnreachableError("no way")

    def ask():
        try:
            leaders.ask(TopicPartition(name, 0), topic_id, attempt)
        except PartitionOfflineError as error:
            ends.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    assert tried.wait(10)
    leaders.close()
    thread.join(10)
    assert [f"{name}-0: the engine was closed"] == ends


def test_a_leader_over_the_quota_is_waited_for(leaders, topic, monkeypatch):
    """If a leader throttles a client, the client waits without a time limit: a leader over its quota still answers."""
    monkeypatch.setattr(leaders, "timeout_seconds", 0.5)
    name, topic_id = topic
    attempts = Attempts(*[ThrottledError("the quota is used up")] * 4, 0)
    assert 0 == leaders.ask(TopicPartition(name, 0), topic_id, attempts).error
