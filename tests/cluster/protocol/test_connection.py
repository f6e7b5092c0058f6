"""Tests of connections: version negotiation, and errors for peers that are no Kafka brokers or send wrong answers."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from itertools import pairwise
from typing import Any

import pytest

from tests.doubles.servers import nobody_listens
from topicfs.cluster.errors import (
    MalformedAnswerError,
    NotKafkaError,
    UnreachableError,
    UnsupportedVersionError,
)
from topicfs.cluster.place import Server
from topicfs.cluster.protocol.connection import Connection, Throttle
from topicfs.protocol.messages import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, PRODUCE
from topicfs.protocol.notation import Api

EVERYTHING = {"topics": None, "allowAutoTopicCreation": False}


@pytest.fixture
def connect():
    """Returns a function that connects to servers; the connections are closed at the end."""
    with ExitStack() as stack:
        yield lambda server: stack.enter_context(closing(Connection(server)))


def frame(body):
    return struct.pack(">i", len(body)) + body


def received(connection):
    """Return the numbers in a request's header, and the bytes after the header."""
    size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
    data = connection.recv(size, socket.MSG_WAITALL)
    return *struct.unpack_from(">hhi", data), data[8:]


def answered(api: Api, version: int, correlation: int, values: Mapping[str, Any]) -> bytes:
    """Return the frame of an answer."""
    head = struct.pack(">i", correlation) + b"\0" * api.is_flexible(version)
    return frame(head + api.response.write(values, version))


def versions_answer(correlation, keys, *, version=4):
    values = {
        "errorCode": 0,
        "apiKeys": [dict(zip(("apiKey", "minVersion", "maxVersion"), key, strict=True)) for key in keys],
    }
    return frame(struct.pack(">i", correlation) + API_VERSIONS.response.write(values, version))


def agreeing(then, keys=((3, 0, 13), (1, 4, 18))):
    """A server that negotiates versions, then calls `then` with the header of each request and the connection."""

    def serve(connection):
        _, version, correlation, _ = received(connection)
        connection.sendall(versions_answer(correlation, keys, version=version))
        while True:
            then(connection, *received(connection))

    return serve


@pytest.mark.java
def test_a_broker_answers_in_the_newest_version_that_both_know(address, connect):
    """A broker of Kafka 4.3 answers in the newest version that both sides know."""
    connection = connect(address.servers[0])
    assert (13, 18) == (connection.version(METADATA), connection.version(FETCH))
    answer = connection.call(METADATA, EVERYTHING)
    assert [address.servers[0]] == [Server(one["host"], one["port"]) for one in answer["brokers"]]
    oldest = connection.call(METADATA, EVERYTHING, version=10)
    assert answer["clusterId"] == oldest["clusterId"]


def test_an_old_broker_is_asked_again_in_the_oldest_form(served, connect):
    """An old broker that rejects the newest ApiVersions with UNSUPPORTED_VERSION is asked again with version 0."""

    def serve(connection):
        _, version, correlation, _ = received(connection)
        assert 4 == version
        refusal = {"errorCode": 35, "apiKeys": []}
        connection.sendall(frame(struct.pack(">i", correlation) + API_VERSIONS.response.write(refusal, 0)))
        _, version, correlation, _ = received(connection)
        assert 0 == version
        connection.sendall(versions_answer(correlation, [(3, 0, 11)], version=0))
        received(connection)

    connection = connect(served(serve))
    assert 11 == connection.version(METADATA)
    with pytest.raises(UnsupportedVersionError, match="supports Fetch not at all, topicfs supports 12 to 18"):
        connection.version(FETCH)


@pytest.mark.parametrize(
    ("low", "high", "remedy"),
    [(0, 9, "it needs Kafka 2.8 or newer"), (14, 20, "this topicfs is too old for it")],
)
def test_a_broker_that_is_too_old_or_too_new_is_refused(served, connect, low, high, remedy):
    """A broker that is too old or too new is refused, and the error has the versions of client and broker."""
    connection = connect(served(agreeing(lambda *_: None, [(3, low, high)])))
    with pytest.raises(UnsupportedVersionError) as caught:
        connection.call(METADATA, EVERYTHING)
    assert f"supports Metadata in versions {low} to {high}, topicfs supports 10 to 13: {remedy}" in str(
        caught.value
    )


NO_KAFKA = "the server there is not a Kafka broker"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", NO_KAFKA, id="HTTP"),
        pytest.param(b"220 mail.example ESMTP\r\n", NO_KAFKA, id="SMTP"),
        pytest.param(b"\0\0\0\4\0\0\0\7", NO_KAFKA, id="another framed protocol"),
        pytest.param(b"\0\0\0\x08\0\0\0\1junk", NO_KAFKA, id="junk in a frame"),
        pytest.param(b"\xff\xff\xff\xff", NO_KAFKA, id="random bytes"),
        pytest.param(
            b"\x15\x03\x03\x00\x02\x02\x50", "it speaks TLS: give --client-config FILE", id="TLS alert"
        ),
    ],
)
def test_servers_of_other_protocols_are_recognized(served, connect, words, said):
    """The error says that a server of another protocol is not a Kafka broker, or that a listener requires TLS."""

    def serve(connection):
        received(connection)
        connection.sendall(words)

    with pytest.raises(NotKafkaError, match=said):
        connect(served(serve))


def test_nobody_listens_or_nobody_answers(served, connect):
    """A closed port, a connection closed by the peer and a silent peer give different errors."""
    with nobody_listens() as server, pytest.raises(UnreachableError, match="Connection refused"):
        connect(server)
    with pytest.raises(UnreachableError, match="the broker closed the connection"):
        connect(served(received))
    connection = connect(served(agreeing(lambda *_: None)))
    with pytest.raises(UnreachableError, match="Metadata: no answer in time"):
        connection.call(METADATA, EVERYTHING, seconds=0.05)
    assert not connection.usable


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda correlation: struct.pack(">i", 2**31 - 1), "an answer to Metadata of 2,147,483,647 bytes"),
        (lambda correlation: struct.pack(">i", -5), "an answer to Metadata of -5 bytes"),
        (lambda correlation: struct.pack(">i", 3), "an answer to Metadata of 3 bytes"),
        (
            lambda correlation: frame(struct.pack(">i", correlation + 1) + b"\0"),
            "not the answer to this request",
        ),
        (lambda correlation: frame(struct.pack(">i", correlation) + b"\0\0"), "the message ends too early"),
        (lambda correlation: frame(struct.pack(">i", correlation)), "not the answer to this request"),
    ],
)
def test_a_malformed_answer_ends_the_connection(served, connect, answer, said):
    """An answer that has a wrong size, belongs to another request or is truncated ends the connection."""

    def then(connection, _key, _version, correlation, _rest):
        connection.sendall(answer(correlation))

    connection = connect(served(agreeing(then)))
    with pytest.raises(MalformedAnswerError) as caught:
        connection.call(METADATA, EVERYTHING)
    assert said in str(caught.value)
    assert not connection.usable
    with pytest.raises(UnreachableError, match="broken, or belongs to another process"):
        connection.call(METADATA, EVERYTHING)


def offsets_answer(correlation, *, name="t", version=7):
    values = {"topics": [{"name": name, "partitions": []}]}
    return answered(LIST_OFFSETS, version, correlation, values)


@pytest.mark.parametrize("pieces", [1, 2, 3, 7])
def test_answers_may_come_in_any_pieces(served, connect, pieces):
    """Answers are read whether they arrive together, byte by byte, or in small and large pieces."""
    waiting = []

    def then(connection, _key, _version, correlation, _rest):
        waiting.append(correlation)
        if len(waiting) < 3:
            return
        sizes = (10, 100_000, 0)
        answers = [offsets_answer(one, name="t" * size) for one, size in zip(waiting, sizes, strict=True)]
        waiting.clear()
        data = b"".join(answers)
        step = -(-len(data) // pieces)
        cuts = [0, 1, 3, 4, 5, *range(step, len(data), step), len(data)]
        for start, end in pairwise(sorted(cuts)):
            connection.sendall(data[start:end])
            # The pause makes the pieces arrive separately. Without the pause the test passes too, but proves less.
            time.sleep(0.001)

    connection = connect(served(agreeing(then, [(2, 1, 7)])))
    for _ in range(2):
        asked = {"replicaId": -1, "topics": []}
        first, later = connection.call_all(*[(LIST_OFFSETS, asked)] * 3)
        assert [10, 100_000, 0] == [len(one["topics"][0]["name"]) for one in (first, *later)]


@pytest.mark.parametrize("together", [1, 40])
def test_the_time_limit_is_for_the_whole_answer(served, connect, together):
    """The time limit covers the whole answer, so a broker that sends single bytes slowly cannot extend it."""
    ended = threading.Event()

    def then(connection, _key, _version, correlation, _rest):
        answer = offsets_answer(correlation, name="t" * 100)
        for start in range(len(answer)):
            if start >= together:
                ended.wait(0.02)
            connection.sendall(answer[start : start + 1])

    connection = connect(served(agreeing(then, [(2, 1, 7)])))
    with pytest.raises(UnreachableError, match="ListOffsets: no answer in time"):
        connection.call(LIST_OFFSETS, {"replicaId": -1, "topics": []}, seconds=0.2)
    ended.set()
    assert not connection.usable


def test_an_answer_over_a_slow_link_gets_more_time(served, connect):
    """A large answer gets the extra time that it needs at 128 KiB/s; the next answer has the caller's limit again."""
    pieces = 8
    ended = threading.Event()

    def then(connection, key, version, correlation, _rest):
        records = {"responses": [{"partitions": [{"records": memoryview(bytes(pieces << 18))}]}]}
        answer = answered(FETCH, version, correlation, records)
        for start in range(0, len(answer), 1 << 18):
            connection.sendall(answer[start : start + (1 << 18)])
            ended.wait(0.2)

    connection = connect(served(agreeing(then)))
    asked = {"maxWaitMs": 0, "minBytes": 0, "maxBytes": 0, "isolationLevel": 0, "topics": []}
    for _ in range(2):
        answer = connection.call(FETCH, asked, seconds=1)
        assert pieces << 18 == len(answer["responses"][0]["partitions"][0]["records"])
    assert 1 == connection._patience
    ended.set()


def test_sending_to_a_broker_that_does_not_read_ends(served, connect):
    """If the broker does not read, sending a request larger than the system's buffers ends at the time limit."""
    ended = threading.Event()

    def serve(connection):
        _, version, correlation, _ = received(connection)
        connection.sendall(versions_answer(correlation, [(0, 3, 13)], version=version))
        ended.wait(30)

    connection = connect(served(serve))
    partition = {"index": 0, "records": memoryview(bytes(32 << 20))}
    asked = {"acks": 1, "timeoutMs": 1, "topicData": [{"partitionData": [partition]}]}
    with pytest.raises(UnreachableError, match="Produce: no answer in time"):
        connection.call(PRODUCE, asked, seconds=0.1)
    ended.set()
    assert not connection.usable


def test_a_number_too_large_for_a_request_is_blamed_on_an_answer(served, connect):
    """If a number is too large for a request, the error blames an earlier answer. The connection stays usable."""
    connection = connect(served(agreeing(lambda *_: None)))
    asked = {
        "topics": [],
        "maxWaitMs": 2**63,
        "minBytes": 0,
        "maxBytes": 0,
        "isolationLevel": 0,
        "replicaId": -1,
    }
    for ask in (connection.call, lambda *asked: connection.call_all(asked)):
        with pytest.raises(
            MalformedAnswerError, match="Fetch cannot be sent: an earlier answer had an impossible number"
        ):
            ask(FETCH, asked)
    assert connection.usable


def test_a_connection_is_not_used_in_a_process_that_was_forked_off(served, connect):
    """A forked process does not use its parent's connection, because both processes would read from one socket."""
    connection = connect(served(agreeing(lambda *_: None)))
    assert connection.usable
    child = os.fork()
    if not child:
        os._exit(connection.usable)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_demanded_pause_extends_the_time_limit(served, connect):
    """A demanded pause extends the time limit, because the broker reads the next request only after the pause."""
    ended, waiting = threading.Event(), []

    def then(connection, key, version, correlation, _rest):
        waiting.append(correlation)
        ended.wait(0.3 * (len(waiting) % 2 == 0))
        values = {"throttleTimeMs": 600_000 * (len(waiting) == 3), "topics": []}
        connection.sendall(answered(LIST_OFFSETS, version, correlation, values))

    asked = {"replicaId": -1, "topics": []}
    connection = connect(served(agreeing(then, [(2, 1, 7)])))
    connection.throttle.note({"throttleTimeMs": 10_000})
    first, later = connection.call_all(*[(LIST_OFFSETS, asked)] * 2, seconds=10.1)
    assert [0, 0] == [one["throttleTimeMs"] for one in (first, *later)]
    connection.throttle = Throttle()
    sent = [connection.begin(LIST_OFFSETS, asked, seconds=0.1) for _ in range(2)]
    assert [600_000, 0] == [connection.end(one)["throttleTimeMs"] for one in sent]
    assert not connection.ready
    ended.set()


def test_every_answer_of_a_round_trip_can_demand_a_pause(served, connect):
    """Each of several pipelined answers can demand a pause.

    If the pause is too long, the client reads no later answer.
    """
    waiting = []

    def then(connection, key, version, correlation, _rest):
        waiting.append(correlation)
        values = {"throttleTimeMs": 600_000 * (len(waiting) == 2), "topics": []}
        connection.sendall(answered(LIST_OFFSETS, version, correlation, values))

    connection = connect(served(agreeing(then, [(2, 1, 7)])))
    asked = {"replicaId": -1, "topics": []}
    _, (second, third) = connection.call_all(*[(LIST_OFFSETS, asked)] * 3, seconds=10)
    assert (600_000, None) == (second["throttleTimeMs"], third)
    assert connection.throttle.left() > 0


@pytest.mark.parametrize(("demanded_ms", "longest"), [(2**31 - 1, 600), (30_000, 30), (-(2**31), 0)])
def test_a_pause_has_a_bound(demanded_ms, longest):
    """A pause is at most ten minutes, so that a wrong number cannot stop requests for weeks; negative means 0."""
    throttle = Throttle()
    throttle.note({"throttleTimeMs": demanded_ms})
    assert longest - 10 <= throttle.left() <= longest
