"""Changes of topics: requests to the controller, repeated if an answer is lost, until the cluster shows the change.

Repeating a request is safe. If only the first answer was lost, the second answer says that the topic exists already,
or no longer exists, and this counts as success.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from topicfs.cluster import errors
from topicfs.cluster.brokers.brokers import Backoff, Leader
from topicfs.cluster.brokers.fetch import ListedOffset
from topicfs.cluster.brokers.leaders import ATTEMPT_SECONDS, FAILURES_GONE, Leaders
from topicfs.cluster.brokers.settings import TOPIC_RESOURCE
from topicfs.protocol.messages import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
)
from topicfs.protocol.notation import Api
from topicfs.storage.checkpoints.identifiers import decode_id, encode_id
from topicfs.storage.errors import ClusterError, StorageError, TopicExistsError, UnknownTopicError
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.wire import Values

AS_THE_BROKERS_SAY = -1
"""A number of partitions or replicas that makes the broker use num.partitions or default.replication.factor."""
WORK_SHARE = 0.8
"""Share of a request's time limit that is given to the broker for making the change."""

_DOUBTFUL = frozenset((errors.UNKNOWN_SERVER_ERROR, errors.REQUEST_TIMED_OUT))
"""Error codes that do not show whether the broker will make the change."""
_SET, _DELETE = 0, 1


class Outcome(NamedTuple):
    error: int
    message: str | None
    """The broker's error message."""
    doubtful: bool
    """True if an earlier answer was lost, so that an earlier attempt may have made the change."""
    answer: Values


class Admin:
    """Sends changes of topics to a cluster. Safe from any thread. Raises ClusterError if no broker answers in time."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders

    def create_topic(
        self, name: str, *, partitions: int | None, overrides: Mapping[str, str], node: int | None = None
    ) -> str:
        """Create a topic, and return its id (blocking). With `node`, each partition's only replica is on that broker.

        Raises TopicExistsError, InvalidNameError, InvalidConfigError, PolicyViolationError, NotAuthorizedError.
        """
        placed = 0 if node is None else partitions or 0
        assignments = [{"partitionIndex": number, "brokerIds": [node]} for number in range(placed)]
        request = {
            "topics": [
                {
                    "name": name,
                    "numPartitions": AS_THE_BROKERS_SAY if assignments or partitions is None else partitions,
                    "replicationFactor": AS_THE_BROKERS_SAY,
                    "assignments": assignments,
                    "configs": [{"name": each, "value": value} for each, value in overrides.items()],
                }
            ],
            "validateOnly": False,
        }
        outcome = self._change(CREATE_TOPICS, request, name, "topics")
        if outcome.error == errors.TOPIC_ALREADY_EXISTS:
            if not outcome.doubtful:
                raise TopicExistsError(f"{name}: the topic exists already")
            return self._id_of(name)
        self._check(outcome, name)
        return encode_id(outcome.answer["topicId"])

    def add_partitions(self, topic: str, *, total: int) -> None:
        """Add partitions until the topic has `total` (blocking). Raises InvalidConfigError, NotAuthorizedError."""
        request = {"topics": [{"name": topic, "count": total, "assignments": None}], "validateOnly": False}
        outcome = self._change(CREATE_PARTITIONS, request, topic, "results")
        if outcome.error == errors.INVALID_PARTITIONS:
            found = self._leaders.look().topics.get(topic)
            if found is not None and len(found.leaders) >= total:
                return
        self._check(outcome, topic)

    def delete_topic(self, name: str, topic_id: str) -> None:
        """Delete the topic `name` if its id is `topic_id` (blocking). Raises UnknownTopicError, NotAuthorizedError."""
        request = {"topics": [{"name": None, "topicId": decode_id(topic_id)}]}
        outcome = self._change(DELETE_TOPICS, request, name, "responses")
        if outcome.error == errors.UNKNOWN_TOPIC_ID:
            if not outcome.doubtful:
                raise UnknownTopicError(f"{name}: no such topic")
            return
        self._check(outcome, name)

    def alter_settings(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set a topic's settings (blocking). None resets a setting. The broker changes all of the settings or none.

        Raises InvalidConfigError, UnknownTopicError, NotAuthorizedError.
        """
        configs = [
            {"name": name, "configOperation": _DELETE if value is None else _SET, "value": value}
            for name, value in changes.items()
        ]
        request = {
            "resources": [{"resourceType": TOPIC_RESOURCE, "resourceName": topic, "configs": configs}],
            "validateOnly": False,
        }
        self._check(self._change(INCREMENTAL_ALTER_CONFIGS, request, topic, "responses"), topic)

    def wait_until(self, shown: Callable[[], bool], what: str) -> None:
        """Wait until `shown` returns True (blocking). Raises ClusterError after a time limit."""
        deadline, backoff = self._deadline(), Backoff()
        while not shown():
            pause = backoff.next()
            if time.monotonic() + pause > deadline:
                raise ClusterError(
                    f"{what}: the change was made, but the cluster does not show it within {self._leaders.timeout_seconds:g} s; it may take longer"
                )
            self._leaders.pause(pause, what)

    def _change(self, api: Api, request: Values, what: str, answers: str) -> Outcome:
        """Send a change until its outcome is final; return the outcome, which may be a permanent error.

        `answers` names the response field whose only element is the result.
        """
        deadline, backoff, doubtful = self._deadline(), Backoff(), False
        while True:
            self._leaders.pause(0, what)
            metadata, sent = self._leaders.metadata, False
            try:
                with self._leaders.brokers.connection(metadata.controller) as connection:
                    sent = True
                    said = connection.call(api, _timed(api, request), seconds=ATTEMPT_SECONDS)
            except errors.UnreachableError as unreachable:
                doubtful = doubtful or sent
                error: StorageError = unreachable
            else:
                outcome = _outcome(said, answers, what, doubtful=doubtful)
                error = errors.error_of(outcome.error, what, outcome.message)
                gone = isinstance(error, UnknownTopicError) and backoff.failures >= FAILURES_GONE
                if gone or errors.kind_of(outcome.error).retry is errors.RetryCondition.NO:
                    return outcome
                doubtful = doubtful or outcome.error in _DOUBTFUL
            pause = backoff.next()
            if time.monotonic() + pause > deadline:
                unknown = "; the change may have been made" if doubtful else ""
                raise ClusterError(
                    f"{what}: no answer within {self._leaders.timeout_seconds:g} s: {error}{unknown}"
                )
            self._leaders.pause(pause, what)
            self._leaders.look_again(metadata)

    def _id_of(self, name: str) -> str:
        """Return the id of an existing topic, waiting until the metadata has it."""
        found = ""

        def shown() -> bool:
            nonlocal found
            topic = self._leaders.look().topics.get(name)
            found = "" if topic is None or topic.error else topic.topic_id
            return bool(found)

        self.wait_until(shown, name)
        return found

    def _check(self, outcome: Outcome, what: str) -> None:
        if outcome.error:
            raise errors.error_of(outcome.error, what, outcome.message)

    def _deadline(self) -> float:
        return time.monotonic() + self._leaders.timeout_seconds


def delete_records(leaders: Leaders, partition: TopicPartition, topic_id: str, before: int) -> Offset | None:
    """Raise a partition's log start offset to `before` (-1: the high watermark); return the new log start (blocking).

    Returns None if `before` is above the high watermark. Raises PolicyViolationError, NotAuthorizedError, and the
    errors of `Leaders.ask`.
    """
    asked = {"partitionIndex": partition.partition, "offset": before}
    request = _timed(DELETE_RECORDS, {"topics": [{"name": partition.topic, "partitions": [asked]}]})

    def attempt(leader: Leader) -> ListedOffset:
        said = leaders.brokers.ask(leader.node, DELETE_RECORDS, request, seconds=ATTEMPT_SECONDS)
        for topic in said["topics"]:
            for one in topic["partitions"]:
                if one["partitionIndex"] == partition.partition:
                    return ListedOffset(one["errorCode"], Offset(one["lowWatermark"]))
        raise errors.MalformedAnswerError(f"{partition}: the answer to DeleteRecords does not mention it")

    answer = leaders.ask(partition, topic_id, attempt)
    if answer.error == errors.OFFSET_OUT_OF_RANGE:
        return None
    if answer.error:
        raise errors.error_of(answer.error, str(partition))
    return answer.offset


def _timed(api: Api, request: Values) -> Values:
    """Add the field timeoutMs to a request if its API has this field."""
    if api is INCREMENTAL_ALTER_CONFIGS:
        return request
    return {**request, "timeoutMs": int(ATTEMPT_SECONDS * WORK_SHARE * 1000)}


def _outcome(said: Values, answers: str, what: str, *, doubtful: bool) -> Outcome:
    if len(said[answers]) != 1:
        raise errors.MalformedAnswerError(f"{what}: the answer does not mention the change")
    (answer,) = said[answers]
    return Outcome(answer["errorCode"], answer["errorMessage"], doubtful, answer)
