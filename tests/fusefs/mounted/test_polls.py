"""poll(2) and epoll(7) of files that wait for records: a waiting program is woken, whatever others do."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.doubles.waiting import TIMEOUT_SECONDS
from tests.fusefs.mounted.conftest import Mount

pytestmark = pytest.mark.fuse

ROUNDS = 20
"""The number of attempts to produce an unfavorable order of two events."""


kinds = pytest.mark.parametrize("waiting", ["follow", "log", "take"], indirect=True)


@pytest.fixture
def waiting(request: pytest.FixtureRequest, topic: Path, shared_mount: Mount) -> Path:
    """A file whose reads wait: of a partition, of a group or of a queue."""
    if request.param == "follow":
        return topic / "0" / "follow"
    kind = "@queues" if request.param == "take" else "@groups"
    group = shared_mount.path / kind / f"{topic.name}-polls"
    group.mkdir()
    return group / topic.name / request.param


@contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def append(topic: Path) -> None:
    (topic / "0" / "log").write_text("a\n")


@kinds
def test_a_file_is_readable_only_with_a_record(waiting: Path, topic: Path):
    """poll(2), select(2) and epoll(7) find the file readable only with a record; without one, a read gives EAGAIN."""
    with opened(waiting) as descriptor, select.epoll() as epoll:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        epoll.register(descriptor, select.EPOLLIN)
        for _ in range(3):
            assert [] == poll.poll(0)
            assert [] == epoll.poll(0)
            assert [] == select.select([descriptor], [], [], 0)[0]
            with pytest.raises(BlockingIOError):
                os.read(descriptor, 100)
            append(topic)
            assert [(descriptor, select.POLLIN)] == poll.poll(TIMEOUT_SECONDS * 1000)
            assert [(descriptor, select.EPOLLIN)] == epoll.poll(TIMEOUT_SECONDS)
            assert [descriptor] == select.select([descriptor], [], [], TIMEOUT_SECONDS)[0]
            assert b"a\n" == os.read(descriptor, 100)


@kinds
def test_an_epoll_is_woken_whoever_polls_meanwhile(waiting: Path, topic: Path):
    """A waiting epoll(7) is woken even if another poll(2) sees the record first."""
    with opened(waiting) as descriptor:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        for _ in range(ROUNDS):
            with select.epoll() as epoll:
                epoll.register(descriptor, select.EPOLLIN)
                writer = threading.Thread(target=append, args=(topic,))
                writer.start()
                while not poll.poll(0):
                    pass
                assert [(descriptor, select.EPOLLIN)] == epoll.poll(TIMEOUT_SECONDS)
                writer.join()
            assert b"a\n" == os.read(descriptor, 100)


@kinds
def test_an_edge_triggered_epoll_is_notified_of_each_record(waiting: Path, topic: Path):
    """An edge-triggered epoll(7), whose program reads until EAGAIN, is notified of each record."""
    with opened(waiting) as descriptor, select.epoll() as epoll:
        epoll.register(descriptor, select.EPOLLIN | select.EPOLLET)
        for _ in range(3):
            append(topic)
            assert [(descriptor, select.EPOLLIN)] == epoll.poll(TIMEOUT_SECONDS)
            assert b"a\n" == os.read(descriptor, 100)
            with pytest.raises(BlockingIOError):
                os.read(descriptor, 100)


@kinds
def test_an_epoll_is_woken_when_the_topic_is_deleted(waiting: Path, topic: Path):
    """When the topic is deleted, a waiting epoll(7) is woken, and the next read gives ESTALE."""
    with opened(waiting) as descriptor, select.epoll() as epoll:
        epoll.register(descriptor, select.EPOLLIN)
        topic.rmdir()
        assert [(descriptor, select.EPOLLIN)] == epoll.poll(TIMEOUT_SECONDS)
        with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
            os.read(descriptor, 100)
