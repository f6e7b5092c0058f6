"""Tests of a data directory's bell, a socket: a Spark job rings it to wake the owner, and waits for the owner."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from topicfs.storage.staging.bell import LOOK_PAUSE_SECONDS, Bell, ring

TIMEOUT_SECONDS = 250.0


def test_a_job_that_rings_returns_when_the_owner_has_worked(tmp_path: Path) -> None:
    """`ring` returns after the owner has worked, even if the job names the directory by a symbolic link."""
    worked = []
    bell = Bell(tmp_path, lambda: worked.append(1))
    (tmp_path.parent / "link").symlink_to(tmp_path)
    try:
        for rounds, path in enumerate((tmp_path, tmp_path.parent / "link"), 1):
            ring(path, TIMEOUT_SECONDS)
            assert rounds <= len(worked)
    finally:
        bell.close()


def test_all_who_ring_meanwhile_are_answered(tmp_path: Path) -> None:
    """The owner answers a caller only after finishing work that it began after the caller's message.

    So this work includes each write that was submitted before the message.
    """
    begun, go_on, looks = Event(), Event(), []

    def work() -> None:
        looks.append(1)
        begun.set()
        assert go_on.wait(TIMEOUT_SECONDS)

    bell = Bell(tmp_path, work)
    jobs = [Thread(target=ring, args=(tmp_path, TIMEOUT_SECONDS)) for _ in range(6)]
    jobs[0].start()
    assert begun.wait(TIMEOUT_SECONDS)
    for job in jobs[1:]:
        job.start()
    go_on.set()
    for job in jobs:
        job.join(TIMEOUT_SECONDS)
    bell.close()
    assert not any(job.is_alive() for job in jobs)
    assert len(looks) >= 2


def test_without_an_owner_a_job_waits_as_long_as_it_says(tmp_path: Path) -> None:
    """If there is no owner or directory, `ring` waits for the given time, and does not return early."""
    Bell(tmp_path, lambda: None).close()
    for directory in (tmp_path, tmp_path / "gone"):
        begun = time.monotonic()
        ring(directory, LOOK_PAUSE_SECONDS)
        assert time.monotonic() - begun >= LOOK_PAUSE_SECONDS


def test_a_second_bell_of_a_directory_is_an_error(tmp_path: Path) -> None:
    """A second bell for a directory raises OSError. Closing the first bell frees the name."""
    first = Bell(tmp_path, lambda: None)
    with pytest.raises(OSError, match="in use"):
        Bell(tmp_path, lambda: None)
    first.close()
    Bell(tmp_path, lambda: None).close()


def test_callers_who_do_not_listen_do_not_hold_the_owner(tmp_path: Path) -> None:
    """Callers that have no address or never read answers do not block the owner."""
    looks = []
    bell = Bell(tmp_path, lambda: looks.append(1))
    address = address_of(tmp_path)
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as nameless,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf,
    ):
        deaf.bind(f"\0topicfs-test-{os.getpid()}")
        for _ in range(700):  # More answers than a socket's queue can store.
            nameless.sendto(b"x" * 100, address)
            deaf.sendto(b"x", address)
        ring(tmp_path, TIMEOUT_SECONDS)
    bell.close()
    assert looks


def test_a_close_does_not_wait_for_callers_who_read_no_answers(tmp_path: Path) -> None:
    """`close` does not wait for callers that read no answers and fill the owner's socket."""
    bell = Bell(tmp_path, lambda: None)
    address = address_of(tmp_path)
    with ExitStack() as stack:
        for _ in range(60):
            deaf = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            deaf.bind("")
            for _ in range(10):
                deaf.sendto(b"x", address)
        closing = Thread(target=bell.close, daemon=True)
        closing.start()
        closing.join(TIMEOUT_SECONDS / 10)
        assert not closing.is_alive()


def test_endless_rings_cost_one_check_per_round(tmp_path: Path) -> None:
    """The owner works once for all messages that wait, and then pauses for at least LOOK_PAUSE_SECONDS."""
    begun, looks = time.monotonic(), []
    bell = Bell(tmp_path, lambda: looks.append(1))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as nameless:
        for _ in range(300):
            nameless.sendto(b"x", address_of(tmp_path))
            assert len(looks) <= 2 + (time.monotonic() - begun) / LOOK_PAUSE_SECONDS
    bell.close()


def test_a_job_waits_if_another_user_has_taken_the_bells_name(tmp_path: Path) -> None:
    """If another user has taken the bell's name, a job waits for the given time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(address_of(tmp_path))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as caller, suppress(BlockingIOError):
            while True:
                caller.sendto(b"x", socket.MSG_DONTWAIT, address_of(tmp_path))
        begun = time.monotonic()
        ring(tmp_path, LOOK_PAUSE_SECONDS)
        assert time.monotonic() - begun >= LOOK_PAUSE_SECONDS


def address_of(directory: Path) -> str:
    found = directory.stat()
    return f"\0topicfs-{found.st_dev:x}-{found.st_ino:x}"
