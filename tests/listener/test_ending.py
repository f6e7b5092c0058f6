"""Closing the listener: requests in progress are answered, and no client delays the close for long."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.doubles.producing import batch
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from tests.listener.serving import RawClient, Served, fetching
from topicfs.listener import listener
from topicfs.listener.limits import ListenerLimits, Memory
from topicfs.protocol.group_messages import JOIN_GROUP
from topicfs.protocol.messages import FETCH, PRODUCE


def send_produce(client: RawClient, records: bytes) -> None:
    data = [{"name": "t", "partitionData": [{"index": 0, "records": records}]}]
    client.send(PRODUCE, {"acks": 1, "timeoutMs": 1000, "topicData": data, "transactionalId": None}, 9)


def hold_appends(served: Served, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Return two events. The first event is set when an append to `t` begins.

    The append then waits until the test sets the second event.
    """
    begun, let_go = threading.Event(), threading.Event()
    log = served.engine.partition("t", 0)
    append = log.append

    def held(batches: bytearray, **how: Any) -> Any:
        begun.set()
        assert let_go.wait(TIMEOUT_SECONDS)
        return append(batches, **how)

    monkeypatch.setattr(log, "append", held)
    return begun, let_go


def serving_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name in ("connection", "listener")]


def test_an_append_that_is_being_made_is_answered(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client gets the answer to an append that is in progress at the close, and need not repeat the append.

    No later request is begun.
    """
    client, idle = served.client(), served.client()
    client.topic("t")
    begun, let_go = hold_appends(served, monkeypatch)
    for value in (b"a", b"b"):
        send_produce(client, bytes(batch(value)))
    assert begun.wait(TIMEOUT_SECONDS)
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(served.listener.close)
        assert idle.is_closed()
        let_go.set()
        [answer] = PRODUCE.response.read(client.receive_frame()[5:], 9)["responses"]
        assert 0 == answer["partitionResponses"][0]["errorCode"]
        ending.result(TIMEOUT_SECONDS)
    assert 1 == served.engine.partition("t", 0).offsets().log_end_offset
    assert client.is_closed()
    assert [] == serving_threads()


def test_requests_that_wait_for_their_turn_are_not_begun(
    start: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`close` waits only for the request in progress. Requests that wait for a free slot end without a warning."""
    served = start(limits=ListenerLimits(max_handled=1))
    client, other = served.client(), served.client()
    client.topic("t")
    begun, let_go = hold_appends(served, monkeypatch)
    send_produce(client, bytes(batch(b"a")))
    assert begun.wait(TIMEOUT_SECONDS)
    send_produce(other, bytes(batch(b"b")))
    with ThreadPoolExecutor(1) as pool:
        idle = served.client()
        ending = pool.submit(served.listener.close)
        assert idle.is_closed()
        let_go.set()
        ending.result(TIMEOUT_SECONDS)
    assert 1 == served.engine.partition("t", 0).offsets().log_end_offset
    assert [] == [record.getMessage() for record in caplog.records]


def test_waiting_clients_are_no_reason_for_warnings(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """`close` logs no warnings about clients that wait for records or for the other members of their group."""
    fetcher, one, two = served.client(), served.client(), served.client()
    fetcher.topic("t")
    fetcher.send(FETCH, fetching("t", maxWaitMs=60_000), 12)
    assert 0 == one.ask(JOIN_GROUP, joining("one"))["errorCode"]
    two.send(JOIN_GROUP, joining("two"), 9)
    wait_until(lambda: 2 == len(served.engine.groups.describe("g").members), "the second one waits")
    served.listener.close()
    assert [] == [record.getMessage() for record in caplog.records]


def joining(instance: str) -> dict[str, Any]:
    """Return the fields of a join by a new static member."""
    asked = {"groupId": "g", "memberId": "", "groupInstanceId": instance, "protocolType": "consumer"}
    asked |= {"sessionTimeoutMs": 1_800_000, "rebalanceTimeoutMs": 1_800_000, "reason": None}
    return {**asked, "protocols": [{"name": "range", "metadata": b""}]}


def test_close_disconnects_a_client_that_reads_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`close` disconnects a client that does not read its answer."""
    monkeypatch.setattr(listener, "ANSWER_SECONDS", 0.2)
    client = served.client()
    client.topic("t")
    client.produce("t", bytes(batch(b"x" * 900_000)))
    for _ in range(50):
        client.send(FETCH, fetching("t"), 12)
    wait_until(lambda: client.socket.recv(1 << 16), "an answer begins")
    served.listener.close()
    assert [] == serving_threads()


def test_requests_that_wait_for_memory_end() -> None:
    """`end` ends the requests that wait for memory, even if no memory becomes free."""
    memory = Memory(ListenerLimits(max_memory_bytes=1 << 20, stall_seconds=3600.0))

    def wait() -> None:
        with memory.lent(1 << 20):
            pass

    with ThreadPoolExecutor(1) as pool, memory.lent(1 << 20):
        waiting = pool.submit(wait)
        wait_until(waiting.running, "the other request waits")
        memory.end()
        with pytest.raises(ConnectionAbortedError, match="the listener is closing"):
            waiting.result(TIMEOUT_SECONDS)
    with pytest.raises(ConnectionAbortedError, match="the listener is closing"):
        wait()
