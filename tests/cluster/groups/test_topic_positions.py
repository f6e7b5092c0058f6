"""Tests of requests for the positions of many groups in a topic, with every kind of answer by a coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from topicfs.cluster.groups import requests
from topicfs.cluster.groups.requests import fetch_positions
from topicfs.coordination.membership import CommittedPosition
from topicfs.storage.model import Offset, TopicPartition


class Answering:
    """A broker that answers from a table with an error code or an offset for each group."""

    def __init__(self, offsets: Mapping[str, int], codes: Mapping[str, int], *, old: bool = False) -> None:
        self.requests: list[list[str]] = []
        self._offsets = offsets
        self._codes = codes
        self._old = old

    def ask(self, node: int, api: object, request: Any) -> dict[str, Any]:
        del node, api
        names = [one["groupId"] for one in request["groups"]]
        self.requests.append(names)
        if self._old:
            return {"topics": [], "errorCode": 0}
        return {"groups": [self._answer(one) for one in names]}

    def _answer(self, group: str) -> dict[str, Any]:
        offset = self._offsets.get(group, -1)
        partition = {
            "partitionIndex": 0,
            "committedOffset": offset,
            "committedLeaderEpoch": 5,
            "metadata": None,
            "errorCode": 0,
        }
        topics = [{"name": "t", "partitions": [partition]}]
        return {"groupId": group, "topics": topics, "errorCode": self._codes.get(group, 0)}


def asked(broker: Answering, groups: Sequence[str]) -> tuple[dict[str, object], list[str]]:
    found: dict[str, object] = {}
    unanswered: list[str] = []
    for told in fetch_positions(broker, 1, groups, "t", {0}):  # type: ignore[arg-type]
        found |= told.found
        unanswered += told.unanswered
    return found, unanswered


def test_a_group_that_moved_is_asked_for_alone() -> None:
    """Only groups that have moved to another coordinator, or are still loading, are requested again.

    Groups that are missing or that the user may not read are not requested again.
    """
    codes = {"moved": 16, "loading": 14, "secret": 30, "gone": 69}
    broker = Answering({"at-7": 7}, codes)
    found, unanswered = asked(broker, ["at-7", "nowhere", *codes])

    assert {"at-7": {TopicPartition("t", 0): CommittedPosition(Offset(7), 5, "")}} == found
    assert ["moved", "loading"] == unanswered


def test_an_older_broker_is_asked_for_each() -> None:
    """A broker older than Kafka 3.0 gets one request per group."""
    assert ({}, ["a", "b"]) == asked(Answering({}, {}, old=True), ["a", "b"])


def test_requests_have_a_limited_number_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request has a limited number of groups; if there are no groups, no request is sent."""
    monkeypatch.setattr(requests, "MAX_GROUPS_PER_REQUEST", 2)
    broker = Answering({}, {})
    asked(broker, ["a", "b", "c"])
    asked(broker, [])
    assert [["a", "b"], ["c"]] == broker.requests
