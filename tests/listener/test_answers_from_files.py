"""The kernel sends fetch answers from a segment's file; the answers are right even if the file changes."""

from __future__ import annotations

import os
import resource
import socket
from random import Random
from typing import Any

import pytest

from tests.doubles.producing import batch
from tests.listener.serving import RawClient, Served, fetching
from topicfs.listener.limits import ListenerLimits
from topicfs.protocol.messages import FETCH
from topicfs.storage.codec.batch import scan
from topicfs.storage.log.log import Log
from topicfs.storage.model import Isolation, Offset

LARGE = 8 << 20


def log_of(served: Served, **overrides: str) -> Log:
    """Return the log of a new topic `t`."""
    names = {name.replace("_", "."): value for name, value in overrides.items()}
    served.engine.create_topic("t", partitions=1, overrides=names)
    found = served.engine.partition("t", 0)
    assert isinstance(found, Log)
    return found


def fill(log: Log, count: int, size: int) -> bytes:
    """Append `count` batches, and return the bytes of the log."""
    random = Random(7)
    for _ in range(count):
        log.append(batch(random.randbytes(size)))
    return content(log)


def content(log: Log) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(log.directory.glob("*.log")))


def begin(served: Served) -> tuple[RawClient, bytes]:
    """Fetch more than the socket buffers hold; return the client and the first bytes of the answer."""
    client = served.client()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    client.send(FETCH, fetching("t", maxBytes=LARGE, partitionMaxBytes=LARGE), 12)
    return client, client.socket.recv(1 << 10)


def rest(client: RawClient, begun: bytes) -> bytes:
    """Return an answer's records, given that `begun` are the answer's first bytes."""
    size = int.from_bytes(begun[:4], "big")
    frame = begun[4:] + client._exactly(size + 4 - len(begun))
    [topic] = FETCH.response.read(frame[5:], 12)["responses"]
    return bytes(topic["partitions"][0]["records"])


@pytest.mark.parametrize("size", [10, 100, 3000, 5000, 70_000])
def test_spans_are_the_batches_that_are_read(served: Served, size: int) -> None:
    """A span at any offset and of any size has the same whole batches as a read."""
    log = log_of(served, segment_bytes="1048576", index_interval_bytes="4096")
    fill(log, min(300, (2 << 20) // size), size)
    end = log.offsets().log_end_offset
    random = Random(size)
    spans = 0
    for _ in range(300):
        offset, most = Offset(random.randrange(end)), random.choice((1, 500, 5000, 50_000, 1 << 20, 1 << 24))
        span = log.find_span(offset, max_bytes=most, isolation=Isolation.READ_COMMITTED)
        fetched = log.read(offset, max_bytes=most)
        if span is None:
            continue
        spans += 1
        data = os.pread(span.file.fileno(), span.size, span.position)
        batches = scan(data)
        assert (span.size, None) == (batches.stop, batches.problem)
        assert (fetched.position, batches[-1].last_offset + 1) == (span.position, span.next_offset)
        assert span.size <= most
        assert data[: len(fetched.data)] == fetched.data[: len(data)]
    assert spans > 50
    last = log.find_span(Offset(end), max_bytes=1 << 20, isolation=Isolation.READ_COMMITTED)
    assert last is None


def test_nothing_of_an_open_transaction(served: Served) -> None:
    """A read_committed fetch ends before an open transaction; a read_uncommitted fetch includes it."""
    log = log_of(served)
    before = fill(log, 2, 100_000)
    open_batch = batch(b"x" * 100_000, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    log.append(open_batch)
    fill(log, 1, 100_000)
    for level, expected in ((1, before), (0, content(log))):
        found = served.client().fetch("t", isolationLevel=level)
        assert expected == found["records"]


def test_more_than_a_read_answer_may_have(served: Served) -> None:
    """The limit for bytes that are read into memory does not limit answers that are sent from files."""
    log = log_of(served)
    whole = fill(log, 12, 500_000)
    found = served.client().fetch("t", maxBytes=LARGE, partitionMaxBytes=LARGE)
    assert whole == found["records"]
    assert len(whole) == log.parts.counts.reads.size_bytes


def test_many_partitions_are_bounded_together(start: Any) -> None:
    """All partitions of an answer share the limit max_fetch_bytes. Only the first batch may exceed the limit."""
    served = start(limits=ListenerLimits(max_fetch_bytes=300_000))
    served.engine.create_topic("t", partitions=4)
    for number in range(4):
        served.engine.partition("t", number).append(batch(b"x" * 140_000))
    asked = fetching("t", maxBytes=LARGE)
    [topic] = asked["topics"]
    topic["partitions"] = [{**topic["partitions"][0], "partition": number} for number in range(4)]
    [answer] = served.client().ask(FETCH, asked, 12)["responses"]
    assert [True, True, False, False] == [bool(one["records"]) for one in answer["partitions"]]


@pytest.mark.parametrize("change", ["records", "topic", "compacted"])
def test_a_file_that_goes_while_it_is_sent(served: Served, change: str) -> None:
    """If the file is deleted or replaced during the send, the client still gets the original batches."""
    log = log_of(served, segment_bytes="16000000")
    whole = fill(log, 14, 500_000)
    client, begun = begin(served)
    if change == "records":
        log.append(batch(b"y" * 10))
        log.delete_records(Offset(14))
    elif change == "topic":
        served.engine.delete_topic("t")
    else:
        for path in log.directory.glob("*.log"):
            other = path.with_suffix(".other")
            other.write_bytes(b"\0" * len(whole))
            other.replace(path)
    assert whole == rest(client, begun)


def test_a_file_that_is_cut_while_it_is_sent(served: Served) -> None:
    """If the file is truncated during the send, the connection ends, and no filler bytes are sent."""
    log = log_of(served)
    whole = fill(log, 14, 500_000)
    client, begun = begin(served)
    [path] = log.directory.glob("*.log")
    os.truncate(path, len(whole) - (64 << 10))
    with pytest.raises(EOFError):
        rest(client, begun)


def test_a_file_that_is_shorter_than_it_was(served: Served) -> None:
    """If the file no longer has all of its batches before the send, the answer reports the damage."""
    log = log_of(served)
    whole = fill(log, 3, 100_000)
    [path] = log.directory.glob("*.log")
    os.truncate(path, len(whole) // 2)
    assert 2 == served.client().fetch("t", offset=2)["errorCode"]


def test_more_partitions_than_files_may_be_open(start: Any) -> None:
    """A fetch may name more partitions than the process may have open files.

    An answer keeps only a few files open at a time.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Earlier tests left some descriptors open, and the engine itself needs some.
    highest = max(int(one) for one in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(highest + 480, hard), hard))
    try:
        served = start()
        count = 400
        served.engine.create_topic("t", partitions=count)
        for number in range(count):
            served.engine.partition("t", number).append(batch(b"x" * 70_000))
        asked = fetching("t", maxBytes=64 << 20)
        [topic] = asked["topics"]
        topic["partitions"] = [{**topic["partitions"][0], "partition": number} for number in range(count)]
        [answer] = served.client().ask(FETCH, asked, 12)["responses"]
        assert {0} == {one["errorCode"] for one in answer["partitions"]}
        assert 16 <= sum(bool(one["records"]) for one in answer["partitions"]) < 50
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
