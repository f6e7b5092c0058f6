"""Fetches that wait for enough records: the memory they use, what they read, and when they are answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.producing import batch
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from tests.listener.serving import Served, fetching
from topicfs.listener.limits import ListenerLimits
from topicfs.protocol.messages import FETCH
from topicfs.storage.engine import Cancel, Partition

LONG = {"maxWaitMs": 3_600_000}
PATIENT = ListenerLimits(max_wait_seconds=3600.0)


class Watched:
    """A partition that counts the bytes read from it, and its listeners."""

    def __init__(self, partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read_bytes = 0
        self.listeners = 0
        read, listen = partition.read, partition.listen

        def counted_read(offset: Any, **how: Any) -> Any:
            fetched = read(offset, **how)
            self.read_bytes += len(fetched.data)
            return fetched

        def counted_listen(listener: Callable[[], None]) -> Cancel:
            cancel = listen(listener)
            self.listeners += 1
            return cancel

        monkeypatch.setattr(partition, "read", counted_read)
        monkeypatch.setattr(partition, "listen", counted_listen)


@pytest.mark.parametrize(("directories", "times"), [(1, 1), (2, 2)])
def test_a_waiting_fetch_reads_each_byte_once(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directories: int, times: int
) -> None:
    """A fetch waits until several appends together reach minBytes, or until its maximum wait is over.

    While it waits, each byte is read once. With replicas each byte is read twice: to count the available bytes, and to
    build the answer.
    """
    places = [tmp_path / str(number) for number in range(directories)]
    served = start(*places, limits=PATIENT, replication_factor=directories)
    client = served.client()
    client.topic("t")
    partition = served.engine.partition("t", 0)
    watched = Watched(partition, monkeypatch)
    one = bytes(batch(b"x" * 1000))
    client.send(FETCH, fetching("t", minBytes=40 * len(one), **LONG), 12)
    wait_until(lambda: watched.listeners, "the request waits")
    for _ in range(40):
        partition.append(bytearray(one))
    [answer] = FETCH.response.read(client.receive(FETCH, 12), 12)["responses"]
    assert 40 * len(one) == len(answer["partitions"][0]["records"])
    assert watched.read_bytes <= times * 40 * len(one)
    assert b"" == client.fetch("t", 40, maxWaitMs=10)["records"]


@pytest.mark.parametrize("directories", [1, 2])
def test_requests_that_wait_hold_no_memory(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directories: int
) -> None:
    """However many fetches wait, a producer can use all of the memory for requests."""
    places = [tmp_path / str(number) for number in range(directories)]
    limits = ListenerLimits(max_memory_bytes=1 << 20, stall_seconds=TIMEOUT_SECONDS, max_wait_seconds=3600.0)
    served = start(*places, limits=limits, replication_factor=directories)
    clients = [served.client() for _ in range(4)]
    clients[0].topic("t")
    watched = Watched(served.engine.partition("t", 0), monkeypatch)
    served.engine.partition("t", 0).append(batch(b"a"))
    for client in clients[1:]:
        client.send(FETCH, fetching("t", minBytes=500_000, **LONG), 12)
    wait_until(lambda: 3 == watched.listeners, "all three fetches wait")
    assert 0 == clients[0].produce("t", bytes(batch(b"x" * 600_000)))["errorCode"]
    for client in clients[1:]:
        [answer] = FETCH.response.read(client.receive(FETCH, 12), 12)["responses"]
        assert 600_000 < len(answer["partitions"][0]["records"])


@pytest.mark.parametrize("directories", [1, 2])
def test_a_full_answer_is_sent_immediately(start: Any, tmp_path: Path, directories: int) -> None:
    """If the next batch does not fit, the answer is sent immediately, because waiting could not enlarge the answer."""
    places = [tmp_path / str(number) for number in range(directories)]
    served = start(*places, limits=PATIENT, replication_factor=directories)
    client = served.client()
    client.topic("t")
    for _ in range(2):
        client.produce("t", bytes(batch(b"x" * 700)))
    found = client.fetch("t", minBytes=1000, partitionMaxBytes=1000, **LONG)
    assert 700 < len(found["records"]) < 1000


def test_a_topic_that_is_deleted_while_a_request_waits(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting fetch is answered immediately when its topic is deleted."""
    served: Served = start(limits=PATIENT)
    client = served.client()
    unique = client.topic("t")["topicId"]
    watched = Watched(served.engine.partition("t", 0), monkeypatch)
    asked = fetching("t", **LONG)
    asked["topics"][0]["topicId"] = unique
    client.send(FETCH, asked, 16)
    wait_until(lambda: watched.listeners, "the request waits")
    served.engine.delete_topic("t")
    [answer] = FETCH.response.read(client.receive(FETCH, 16), 16)["responses"]
    assert 100 == answer["partitions"][0]["errorCode"]
