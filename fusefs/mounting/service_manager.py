"""The service manager of a daemon in the foreground: sd_notify(3), systemd's protocol.

Sends datagrams of `NAME=value` lines to the socket in NOTIFY_SOCKET: READY=1 when the mount is ready, STATUS,
WATCHDOG=1 twice per WATCHDOG_USEC, RELOADING=1 while settings are reloaded, STOPPING=1 when the daemon begins to end.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from threading import Event, Thread

_LOGGER = logging.getLogger("topicfs")

_MICROSECONDS_A_SECOND = 1_000_000
_NANOSECONDS_A_MICROSECOND = 1_000


class ServiceManager:
    """Sends notifications to the service manager, if there is one."""

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        self.watchdog_seconds = watchdog_seconds
        """The manager kills the service after this many seconds without a ping; None: no watchdog."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    @property
    def is_there(self) -> bool:
        """True if a service manager started this daemon."""
        return bool(self._address)

    @classmethod
    def of_environment(cls, environment: MutableMapping[str, str] = os.environ) -> ServiceManager:
        """Return the manager, and remove its variables from the environment: child programs must not notify it."""
        address = environment.pop("NOTIFY_SOCKET", "")
        period, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        watched = period.isdecimal() and int(period) > 0 and pid in ("", str(os.getpid()))
        return cls(address, int(period) / _MICROSECONDS_A_SECOND if watched else None)

    def ready(self, status: str) -> None:
        """Report that the mount is ready."""
        self._tell(f"READY=1\nSTATUS={status}")

    def alive(self) -> None:
        """Report that the event loop runs. Never waits for a manager that has not read earlier messages."""
        self._tell("WATCHDOG=1", socket.MSG_DONTWAIT)

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Report that settings are being reloaded inside the block, with the timestamp that sd_notify(3) requires."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // _NANOSECONDS_A_MICROSECOND
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={now}")
        try:
            yield
        finally:
            self._tell("READY=1")

    def stopping(self, status: str) -> None:
        """Report that the daemon is ending and flushes to disk."""
        self._tell(f"STOPPING=1\nSTATUS={status}")

    @contextmanager
    def send_watchdog(self) -> Iterator[None]:
        """Send watchdog pings from a thread inside the block, where no event loop runs and the last flush may take long."""
        period, done = self.watchdog_seconds, Event()
        if period is None:
            yield
            return

        def tell() -> None:
            self.alive()
            while not done.wait(period / 2):
                self.alive()

        thread = Thread(target=tell, name="service manager", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _tell(self, text: str, flags: int = 0) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
                manager.connect(self._address)
                manager.sendall(text.encode(), flags)
        except BlockingIOError:
            _LOGGER.debug("the service manager has not read the last message")
        except OSError as error:
            _LOGGER.warning("the service manager did not get %s: %s", text.partition("=")[0], error)
