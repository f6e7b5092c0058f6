"""Tests of the table of Kafka's error codes."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from topicfs.cluster.errors import ERRORS, error_of
from topicfs.storage.errors import ClusterError, NotAuthorizedError, StorageError, UnknownTopicError

RENAMED = {
    "MESSAGE_TOO_LARGE": "MSG_SIZE_TOO_LARGE",
    "UNKNOWN_SERVER_ERROR": "UNKNOWN",
    "CORRUPT_MESSAGE": "INVALID_MSG",
    "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN_TOPIC_OR_PART",
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "INVALID_TOPIC_EXCEPTION": "TOPIC_EXCEPTION",
}
"""librdkafka's names of the errors for which Kafka has another name, by Kafka's name."""
UNKNOWN_THERE = {"INCONSISTENT_TOPIC_ID"}


def test_the_codes_are_kafkas():
    """Each error code has the same number as in librdkafka."""
    others = {
        getattr(KafkaError, name): name
        for name in dir(KafkaError)
        if isinstance(getattr(KafkaError, name), int)
    }
    ours = {
        code: RENAMED.get(kind.name, kind.name)
        for code, kind in ERRORS.items()
        if kind.name not in UNKNOWN_THERE
    }
    assert {code: others.get(code) for code in ours} == ours


@pytest.mark.parametrize("code", [*ERRORS, 9999])
def test_every_code_is_an_error_with_its_thing_and_name(code):
    """Every code, even an unknown one, becomes an error that names the subject and the code."""
    error = error_of(code, "orders-0", "in the broker's words")
    assert isinstance(error, StorageError)
    name = ERRORS[code].name if code in ERRORS else "error 9999"
    assert str(error).startswith(f"orders-0: the cluster answers {name}: in the broker's words")


def test_the_type_of_an_error_says_what_to_do():
    """The error's type distinguishes an unknown topic, a missing right (with its remedy) and other errors."""
    assert UnknownTopicError is type(error_of(3, "orders"))
    denied = error_of(29, "orders")
    assert isinstance(denied, NotAuthorizedError)
    assert "orders: the cluster answers TOPIC_AUTHORIZATION_FAILED; ask for an ACL" in str(denied)
    assert ClusterError is type(error_of(7, "orders"))
