"""Messages to a service manager, sent over a real socket with its protocol."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from threading import Thread

import pytest

from tests.doubles.waiting import TIMEOUT_SECONDS
from topicfs.fusefs.mounting.service_manager import ServiceManager


def told(listening: socket.socket) -> list[str]:
    return listening.recv(4096).decode().splitlines()


def test_the_manager_hears_each_state(listening: socket.socket) -> None:
    """The manager gets one datagram for each state, with a line of text for people."""
    environment = {"NOTIFY_SOCKET": listening.getsockname(), "OTHER": "stays"}
    manager = ServiceManager.of_environment(environment)
    assert {"OTHER": "stays"} == environment
    manager.ready("data at mnt")
    manager.alive()
    manager.stopping("SIGTERM")
    assert ["READY=1", "STATUS=data at mnt"] == told(listening)
    assert ["WATCHDOG=1"] == told(listening)
    assert ["STOPPING=1", "STATUS=SIGTERM"] == told(listening)


def test_the_manager_hears_of_settings_being_read_again(listening: socket.socket) -> None:
    """The manager is told when a reload of the settings begins, and gets READY at its end, even if it fails."""
    manager = ServiceManager.of_environment({"NOTIFY_SOCKET": listening.getsockname()})
    with suppress(ValueError), manager.reloading():
        reloading, since = told(listening)
        raise ValueError
    assert "RELOADING=1" == reloading
    assert since.removeprefix("MONOTONIC_USEC=").isdecimal()
    assert ["READY=1"] == told(listening)


def test_an_abstract_address_begins_with_an_at_sign() -> None:
    """An address that begins with `@` is an abstract socket, for which no file exists."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0topicfs-test-{os.getpid()}")
        listening.settimeout(TIMEOUT_SECONDS)
        ServiceManager.of_environment({"NOTIFY_SOCKET": f"@topicfs-test-{os.getpid()}"}).alive()
        assert ["WATCHDOG=1"] == told(listening)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"WATCHDOG_USEC": "1500000"}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_asked_for_by_the_environment(
    environment: dict[str, str], expected: float | None
) -> None:
    """WATCHDOG_USEC sets the time of the watchdog in microseconds, unless WATCHDOG_PID is another process."""
    assert expected == ServiceManager.of_environment(environment).watchdog_seconds
    assert {} == environment


def test_the_watchdog_is_fed_while_everything_is_put_on_disk(listening: socket.socket) -> None:
    """Inside its block, `send_watchdog` sends the watchdog messages in place of the event loop.

    After the block, `send_watchdog` sends no more messages.
    """
    watched = {"NOTIFY_SOCKET": listening.getsockname(), "WATCHDOG_USEC": "20000"}
    with ServiceManager.of_environment(watched).send_watchdog():
        assert [["WATCHDOG=1"]] * 3 == [told(listening) for _ in range(3)]
    listening.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            listening.recv(4096)
    with ServiceManager().send_watchdog(), pytest.raises(BlockingIOError):
        listening.recv(4096)


def test_a_manager_that_reads_nothing_blocks_nobody(listening: socket.socket) -> None:
    """A manager that never reads does not block the sender, which is the event loop."""
    manager = ServiceManager.of_environment({"NOTIFY_SOCKET": listening.getsockname()})
    telling = Thread(target=lambda: [manager.alive() for _ in range(1000)], daemon=True)
    telling.start()
    telling.join(TIMEOUT_SECONDS)
    assert not telling.is_alive()


def test_a_manager_that_does_not_listen_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """If the manager does not listen, the daemon logs this, and the mount continues."""
    ServiceManager.of_environment({"NOTIFY_SOCKET": "/nowhere/notify"}).ready("stands")
    assert ["the service manager did not get READY: [Errno 2] No such file or directory"] == caplog.messages
    ServiceManager.of_environment({}).ready("nobody asked")
    assert 1 == len(caplog.messages)
