"""The daemon's log: its destination and its format.

The log is text for people, one JSON object per line for log collectors, or systemd's journal, where each entry has
the fields PRIORITY, LOGGER, CODE_FILE, CODE_LINE, TOPICFS_MOUNTPOINT and TOPICFS_TOPICS besides its MESSAGE
(systemd.journal-fields(7)). A daemon that has neither a terminal nor a log file logs to the journal, or to syslog if
there is no journal.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any

from topicfs.storage.messages import PrintableFormatter, printable

JOURNAL_TIMEOUT_SECONDS = 0.25
"""How long one entry waits for a busy journal."""
SYSLOG_SOCKET = "/dev/log"
_DAEMON = 3 << 3
"""syslog(3)'s facility for daemons."""
_TEXT = "%(asctime)s %(levelname)s %(message)s"
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""Lowest log level of each syslog(3) priority; anything lower is 7 (debug)."""


class LogFormat(Enum):
    """Formats of the daemon's log."""

    TEXT = "text"
    JSON = "json"
    JOURNAL = "journal"


def begin_log(
    chosen: LogFormat | None, file: Path | None, *, terminal: bool, debug: bool, about: Mapping[str, str]
) -> None:
    """Start logging to `file`, to standard error if `terminal`, or otherwise to the system's log. Raises OSError.

    If no format is `chosen`, the log has the journal's format if standard error goes to the journal, or if there is
    neither a file nor a terminal. In all other cases, and if no journal listens, the log is text. `about` has fields,
    such as the mountpoint, that every JSON or journal entry contains.
    """
    form = chosen or (
        LogFormat.JOURNAL if file is None and (not terminal or _leads_to_journal()) else LogFormat.TEXT
    )
    try:
        handler = _handler_of(form, file, terminal=terminal, about=about)
    except OSError:
        if chosen is not None or form is not LogFormat.JOURNAL:
            raise
        form = LogFormat.TEXT
        handler = _handler_of(form, file, terminal=terminal, about=about)
    if form is LogFormat.JSON:
        handler.setFormatter(_json_formatter(about))
    elif isinstance(handler, SyslogHandler):
        handler.setFormatter(PrintableFormatter(f"{about['mountpoint'].replace('%', '%%')}: %(message)s"))
    else:
        handler.setFormatter(PrintableFormatter("%(message)s" if form is LogFormat.JOURNAL else _TEXT))
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, handlers=[handler], force=True)
    if not debug:
        logging.getLogger("pyfuse3").setLevel(logging.WARNING)


class JournalHandler(logging.Handler):
    """Sends entries to systemd's journal in its native protocol."""

    def __init__(self, about: Mapping[str, str], socket_path: Path | None = None) -> None:
        """Find the journal's socket. Raises OSError if no journal listens."""
        super().__init__()
        from logging_journald import JournaldTransport

        self._about = {f"TOPICFS_{name.upper()}": printable(value) for name, value in about.items()}
        path = socket_path or JournaldTransport.SOCKET_PATH
        self._lost = 0
        # Do not connect: a restarted journal has a new socket at the same path.
        self._transport = JournaldTransport(path, connected=False)
        self._transport.socket.settimeout(JOURNAL_TIMEOUT_SECONDS)
        try:
            self._transport.socket.sendto(b"", str(path))  # The journal ignores an empty entry.
        except TimeoutError:
            pass  # The journal exists, but is busy.
        except OSError as error:
            self.close()
            remedy = "there is no journal; use --log-format text or json"
            raise OSError(error.errno, remedy, str(path)) from None

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {
            "MESSAGE": self.format(record),
            "PRIORITY": priority(record.levelno),
            "SYSLOG_IDENTIFIER": "topicfs",
            "LOGGER": record.name,
            "CODE_FILE": record.pathname,
            "CODE_LINE": record.lineno,
            "CODE_FUNC": record.funcName,
            **self._about,
        }
        try:
            if self._lost:
                said = f"{self._lost} entries are missing here: the journal was too slow"
                self._transport.send(
                    {**fields, "MESSAGE": said, "PRIORITY": priority(logging.WARNING)}.items()
                )
                self._lost = 0
                self._transport.socket.settimeout(JOURNAL_TIMEOUT_SECONDS)
            self._transport.send(fields.items())
        except (TimeoutError, BlockingIOError):
            # A hanging journal must not block the event loop: after a timeout, do not wait again until the
            # journal accepts an entry.
            self._lost += 1
            self._transport.socket.settimeout(0)
        except Exception:  # noqa: BLE001 - as every handler of the standard library does
            self.handleError(record)

    def close(self) -> None:
        self._transport.socket.close()
        super().close()


class SyslogHandler(logging.Handler):
    """Sends entries to syslog(3) without waiting; drops entries if syslog does not accept them."""

    def __init__(self) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def emit(self, record: logging.LogRecord) -> None:
        header = f"<{_DAEMON | priority(record.levelno)}>topicfs[{os.getpid()}]: "
        with suppress(OSError):
            text = (header + self.format(record)).encode(errors="backslashreplace")
            self._socket.sendto(text, socket.MSG_DONTWAIT, SYSLOG_SOCKET)

    def close(self) -> None:
        self._socket.close()
        super().close()


def priority(level: int) -> int:
    """Return syslog's priority for a level of `logging`."""
    return next((number for lowest, number in _PRIORITIES if level >= lowest), 7)


def _handler_of(
    form: LogFormat, file: Path | None, *, terminal: bool, about: Mapping[str, str]
) -> logging.Handler:
    if form is LogFormat.JOURNAL:
        return JournalHandler(about)
    if file is not None:
        return logging.FileHandler(file)
    return logging.StreamHandler() if terminal else SyslogHandler()


def _json_formatter(about: Mapping[str, str]) -> logging.Formatter:
    from pythonjsonlogger.json import JsonFormatter

    return JsonFormatter(
        ["levelname", "name", "message"],
        rename_fields={"levelname": "level", "name": "logger", "exc_info": "exception"},
        static_fields={**about, "pid": os.getpid()},
        timestamp="time",
    )


def _leads_to_journal() -> bool:
    """Return whether standard error is a stream to the journal: systemd.exec(5), JOURNAL_STREAM."""
    try:
        stream = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{stream.st_dev}:{stream.st_ino}"
