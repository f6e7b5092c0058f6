"""Notifications that make the kernel drop cached names. A thread sends them until the session ends."""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Callable

import pytest

from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from topicfs.fusefs.requests import notifications
from topicfs.fusefs.requests.notifications import KernelNotifications

INVALIDATE_INODE, INVALIDATE_ENTRY = 2, 3
"""Codes of notifications in <linux/fuse.h>."""


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int, bytes], None]], None]:
    """Return a function that replaces the kernel with `function(parent, name)`, called for each invalidated name."""

    def put(function: Callable[[int, bytes], None]) -> None:
        def write(_device: int, message: bytes) -> None:
            size, code, request, parent_id, name_size, flags = struct.unpack_from("=IiQQII", message)
            assert (len(message), INVALIDATE_ENTRY, 0, 0) == (size, code, request, flags)
            assert message[32:] == message[32 : 32 + name_size] + b"\0"
            function(parent_id, message[32:-1])

        monkeypatch.setattr(notifications.os, "write", write)

    return put


def test_attributes_are_forgotten_and_content_is_not():
    """`forget_attributes` sends one message, which does not invalidate content, and ignores errors of the kernel."""
    reading, writing = os.pipe()
    kernel = KernelNotifications()
    kernel.device = writing
    kernel.forget_attributes(2**33 + 7)
    assert struct.pack("=IiQQqq", 40, INVALIDATE_INODE, 0, 2**33 + 7, -1, 0) == os.read(reading, 100)
    os.close(reading)
    kernel.forget_attributes(7)  # This socket gives EPIPE; the kernel would give ENOENT.
    os.close(writing)


def test_nothing_is_written_to_the_number_of_a_closed_device():
    """After `end`, nothing is written to the device's descriptor: its number may already belong to another file."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    kernel = KernelNotifications()
    kernel.device = writing
    kernel.end()
    kernel.forget_attributes(7)
    with pytest.raises(BlockingIOError):
        os.read(reading, 100)
    os.close(reading)
    os.close(writing)


def test_names_are_forgotten_in_order_whatever_the_kernel_says(answer):
    """A thread sends the notifications of names in order; an error for one name does not stop the others."""
    told: list[tuple[int, bytes]] = []
    all_told = threading.Event()

    def invalidate(parent_id: int, name: bytes) -> None:
        assert threading.current_thread() is not threading.main_thread()
        told.append((parent_id, name))
        if name == b"last":
            all_told.set()
        raise OSError(errno.ENOENT, "unknown")

    answer(invalidate)
    kernel = KernelNotifications()
    for name in ("one", "n\udcff", "last"):
        kernel.forget_name(7, name)

    assert all_told.wait(TIMEOUT_SECONDS)
    assert [(7, b"one"), (7, b"n\xff"), (7, b"last")] == told
    kernel.end()


def test_nothing_is_reported_after_the_end(answer):
    """`end` waits for the notification that is being sent, and drops later notifications."""
    told: list[bytes] = []
    began, may_go_on = threading.Event(), threading.Event()

    def invalidate(parent_id: int, name: bytes) -> None:
        began.set()
        assert may_go_on.wait(TIMEOUT_SECONDS)
        told.append(name)

    answer(invalidate)
    kernel = KernelNotifications()
    for name in ("one", "two", "three"):
        kernel.forget_name(7, name)
    assert began.wait(TIMEOUT_SECONDS)
    ending = threading.Thread(target=kernel.end)
    ending.start()
    wait_until(lambda: kernel._ended, "`end` has begun")
    may_go_on.set()
    ending.join()

    assert [b"one"] == told
    assert "forget-names" not in [thread.name for thread in threading.enumerate()]


def test_a_thread_that_cannot_begin_is_tried_again(answer, monkeypatch):
    """If the thread cannot start, the next call of `forget_name` starts it, and both names are sent.

    `end` works without the thread.
    """
    forgotten: list[bytes] = []
    both = threading.Event()
    start = threading.Thread.start

    def invalidate(_parent_id: int, name: bytes) -> None:
        forgotten.append(name)
        if name == b"two":
            both.set()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    answer(invalidate)
    kernel = KernelNotifications()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    kernel.forget_name(7, "one")
    monkeypatch.setattr(threading.Thread, "start", start)
    kernel.forget_name(7, "two")
    assert both.wait(TIMEOUT_SECONDS)
    kernel.end()
    assert [b"one", b"two"] == forgotten
    monkeypatch.setattr(threading.Thread, "start", refuse)
    never_began = KernelNotifications()
    never_began.forget_name(7, "one")
    never_began.end()


def test_a_mount_that_forgot_nothing_ends_at_once():
    """`end` returns immediately if no name was passed to `forget_name`."""
    kernel = KernelNotifications()
    kernel.end()
    assert "forget-names" not in [thread.name for thread in threading.enumerate()]


def test_forget_name_after_the_end_starts_no_thread(answer):
    """`forget_name` after `end` starts no thread."""
    answer(lambda _parent_id, _name: pytest.fail("a notification was sent after the end"))
    kernel = KernelNotifications()
    kernel.end()
    kernel.forget_name(7, "late")
    assert "forget-names" not in [thread.name for thread in threading.enumerate()]
