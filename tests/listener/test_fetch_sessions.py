"""Fetch sessions: refused requests, and requests that exchange partitions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doubles.producing import batch
from tests.listener.serving import RawClient, Served, fetching
from topicfs.listener.requests import fetch_sessions
from topicfs.protocol.messages import FETCH


def ask(
    client: RawClient,
    session: int,
    epoch: int,
    *partitions: int,
    forget: tuple[int, ...] = (),
    version: int = 12,
) -> Any:
    """Send a Fetch of partitions of topic `t` in a session; return the answer."""
    asked = fetching("t", sessionId=session, sessionEpoch=epoch)
    [topic] = asked["topics"]
    [first] = topic["partitions"]
    topic["partitions"] = [{**first, "partition": number} for number in partitions]
    topic["topicId"] = client.topic("t")["topicId"]
    asked["forgottenTopicsData"] = [{"topic": "t", "partitions": list(forget)}] if forget else []
    return client.ask(FETCH, asked, version)


def numbers(answer: Any) -> list[int]:
    return [one["partitionIndex"] for topic in answer["responses"] for one in topic["partitions"]]


def test_a_refused_request_changes_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused request changes neither the session's epoch nor its partitions.

    If the request would have replaced the session, the session stays.
    """
    monkeypatch.setattr(fetch_sessions, "_MAX_SESSION_PARTITIONS", 2)
    served.engine.create_topic("t", partitions=4)
    client = served.client()
    session = ask(client, 0, 0, 0)["sessionId"]
    assert 42 == ask(client, session, 1, 1, 2, forget=(9,))["errorCode"]
    assert 42 == ask(client, session, 0, 1, 2, 3)["errorCode"]
    for number in range(4):
        served.engine.partition("t", number).append(batch(b"a"))
    continued = ask(client, session, 1)
    assert (0, session, [0]) == (continued["errorCode"], continued["sessionId"], numbers(continued))


def test_a_request_may_exchange_all_partitions(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may replace all partitions of a session; a partition that is both added and removed is removed."""
    monkeypatch.setattr(fetch_sessions, "_MAX_SESSION_PARTITIONS", 2)
    served.engine.create_topic("t", partitions=4)
    client = served.client()
    session = ask(client, 0, 0, 0, 1)["sessionId"]
    exchanged = ask(client, session, 1, 2, 3, 0, forget=(0, 1))
    assert (0, [2, 3]) == (exchanged["errorCode"], numbers(exchanged))


@pytest.mark.parametrize(("first", "then"), [(12, 13), (13, 12)])
def test_names_and_ids_are_not_mixed(served: Served, first: int, then: int) -> None:
    """A session that began with topic names takes no topic ids, and vice versa.

    Such a request is refused as a broker refuses it, and the session stays. The client then begins a new session.
    """
    served.engine.create_topic("t", partitions=2)
    client = served.client()
    session = ask(client, 0, 0, 0, version=first)["sessionId"]
    refused = ask(client, session, 1, 1, version=then)
    assert (106, 0, []) == (refused["errorCode"], refused["sessionId"], refused["responses"])
    assert 106 == ask(client, session, 1, version=then)["errorCode"]
    for number in range(2):
        served.engine.partition("t", number).append(batch(b"a"))
    assert [0] == numbers(ask(client, session, 1, version=first))
    assert [0, 1] == numbers(ask(client, session, 0, 0, 1, version=then))
