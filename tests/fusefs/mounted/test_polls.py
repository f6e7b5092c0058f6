"""poll(2) and epoll(7) of the files that wait for records: who waits is woken, whoever else polls or reads."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.doubles.waiting import PATIENCE_S
from tests.fusefs.mounted.conftest import Mount

pytestmark = pytest.mark.fuse

ROUNDS = 20
"""Tries of what an unlucky order of two events would break."""


kinds = pytest.mark.parametrize("waiting", ["follow", "log", "take"], indirect=True)


@pytest.fixture
def waiting(request: pytest.FixtureRequest, topic: Path, shared_mount: Mount) -> Path:
    """A file whose reads wait: of a partition, of a group, of a queue."""
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
def test_an_epoll_is_woken_whoever_polls_meanwhile(waiting: Path, topic: Path):
    """Another poll that sees the record first takes no notification away."""
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
                assert [(descriptor, select.EPOLLIN)] == epoll.poll(PATIENCE_S)
                writer.join()
            assert b"a\n" == os.read(descriptor, 100)


@kinds
def test_an_edge_triggered_epoll_is_told_of_each_record(waiting: Path, topic: Path):
    """Its program reads until EAGAIN, and polls no more before it is notified."""
    with opened(waiting) as descriptor, select.epoll() as epoll:
        epoll.register(descriptor, select.EPOLLIN | select.EPOLLET)
        for _ in range(3):
            append(topic)
            assert [(descriptor, select.EPOLLIN)] == epoll.poll(PATIENCE_S)
            assert b"a\n" == os.read(descriptor, 100)
            with pytest.raises(BlockingIOError):
                os.read(descriptor, 100)


@kinds
def test_an_epoll_is_told_that_the_topic_was_deleted(waiting: Path, topic: Path):
    """The read that follows says so."""
    with opened(waiting) as descriptor, select.epoll() as epoll:
        epoll.register(descriptor, select.EPOLLIN)
        topic.rmdir()
        assert [(descriptor, select.EPOLLIN)] == epoll.poll(PATIENCE_S)
        with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
            os.read(descriptor, 100)
