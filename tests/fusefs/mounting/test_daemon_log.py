"""The log of a daemon: as text, as JSON, and as entries of systemd's journal."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from topicfs.fusefs.mounting import daemon_log
from topicfs.fusefs.mounting.daemon_log import JournalHandler, LogFormat, SyslogHandler, begin_log, priority

ABOUT = {"mountpoint": "/srv/orders", "topics": "/data"}


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[logging.Logger]:
    """The root logger of the process, whose state is restored at the end."""
    root = logging.getLogger()
    handlers, level, of_pyfuse3 = root.handlers[:], root.level, logging.getLogger("pyfuse3").level
    root.handlers[:] = []
    yield root
    for one in root.handlers:
        one.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("pyfuse3").setLevel(of_pyfuse3)


def said(tmp_path: Path, form: LogFormat | None, message: str = "7 \x1b[31m records") -> str:
    file = tmp_path / "log"
    begin_log(form, file, terminal=True, debug=False, about=ABOUT)
    logging.getLogger("topicfs").debug("not asked for")
    try:
        int("bad\nvalue")
    except ValueError:
        logging.getLogger("topicfs").exception("failed: %s", message)
    return file.read_text()


def test_text_is_one_line_a_message(tmp_path: Path):
    """A text message is one line with time, level and escaped control characters. A traceback follows on more lines."""
    first, *traceback = said(tmp_path, None).splitlines()
    assert first.endswith(r" ERROR failed: 7 \x1b[31m records")
    assert "Traceback (most recent call last):" == traceback[0]


def test_json_is_one_object_a_line(tmp_path: Path):
    """A JSON message is one object on one line, with the fields of the mount and the traceback."""
    (line,) = said(tmp_path, LogFormat.JSON).splitlines()
    found = json.loads(line)
    assert {"time", "level", "logger", "message", "exception", "mountpoint", "topics", "pid"} == found.keys()
    assert ("ERROR", "topicfs", "failed: 7 \x1b[31m records") == (
        found["level"],
        found["logger"],
        found["message"],
    )
    assert ("/srv/orders", "/data", os.getpid()) == (found["mountpoint"], found["topics"], found["pid"])
    assert "ValueError: invalid literal" in found["exception"]
    assert "+00:00" in found["time"]


def test_names_that_are_no_text_are_json_all_the_same(tmp_path: Path):
    """Bytes of a file's name that are not UTF-8 are escaped in JSON."""
    assert "\udc80" in json.loads(said(tmp_path, LogFormat.JSON, "\udc80"))["message"]


def test_an_entry_of_the_journal_has_fields(listening: socket.socket, root_logger: logging.Logger):
    """An entry of the journal has the fields that journalctl shows and by which it filters."""
    handler = JournalHandler(ABOUT, Path(listening.getsockname()))
    handler.setFormatter(logging.Formatter("%(message)s"))
    root_logger.addHandler(handler)
    logging.getLogger("topicfs").warning("slow: %d ms", 7)
    assert b"" == listening.recv(65536)
    fields = dict(line.split("=", 1) for line in listening.recv(65536).decode().splitlines())
    assert {
        "MESSAGE": "slow: 7 ms",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "topicfs",
        "LOGGER": "topicfs",
        "TOPICFS_MOUNTPOINT": "/srv/orders",
        "TOPICFS_TOPICS": "/data",
    }.items() <= fields.items()
    assert {"CODE_FILE", "CODE_LINE", "CODE_FUNC"} <= fields.keys()


@pytest.mark.parametrize(
    ("level", "number"),
    [
        (logging.DEBUG, 7),
        (logging.INFO, 6),
        (logging.WARNING, 4),
        (logging.ERROR, 3),
        (logging.CRITICAL, 2),
        (25, 6),
    ],
)
def test_priorities_are_syslogs(level: int, number: int):
    """If a log level is between two standard levels, its syslog priority is that of the lower standard level."""
    assert number == priority(level)


def test_a_journal_that_does_not_listen_is_named():
    """If no journal listens, the error has the path of its socket and the remedy."""
    with pytest.raises(OSError, match="there is no journal; use --log-format text or json") as raised:
        JournalHandler(ABOUT, Path("/nowhere/journal"))
    assert "/nowhere/journal" == raised.value.filename


def log(handler: logging.Handler, message: str) -> None:
    handler.handle(logging.makeLogRecord({"msg": message, "levelno": logging.WARNING}))


def log_too_much(handler: logging.Handler) -> None:
    """Log more entries than the queue of any socket holds."""
    for number in range(5000):
        log(handler, f"entry {number}")


def drain(listening: socket.socket) -> int:
    """Receive everything that a socket has, without waiting then or later, and return the number of datagrams."""
    listening.settimeout(0)
    taken = 0
    with suppress(BlockingIOError):
        while listening.recv(65536) is not None:
            taken += 1
    return taken


def test_a_journal_that_hangs_blocks_nobody(listening: socket.socket, monkeypatch: pytest.MonkeyPatch):
    """If the journal hangs, the handler waits once, then drops entries, and later logs how many it has dropped."""
    monkeypatch.setattr(daemon_log, "JOURNAL_TIMEOUT_SECONDS", 0.01)
    handler = JournalHandler({}, Path(listening.getsockname()))
    log_too_much(handler)
    taken = drain(listening)
    log(handler, "last")
    said, last = (listening.recv(65536).decode() for _ in range(2))
    assert f"MESSAGE={5001 - taken} entries are missing here: the journal was too slow\n" in said
    assert "MESSAGE=last\n" in last
    handler.close()


def test_a_stream_of_the_journal_without_its_socket_is_text(
    root_logger: logging.Logger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """If the journal's socket is missing, as in a chroot, a mount logs text, unless it was told to use the journal."""
    monkeypatch.setattr("logging_journald.JournaldTransport.SOCKET_PATH", tmp_path / "none")
    monkeypatch.setattr(daemon_log, "_leads_to_journal", lambda: True)
    begin_log(None, None, terminal=True, debug=False, about=ABOUT)
    assert [logging.StreamHandler] == [type(one) for one in root_logger.handlers]
    with pytest.raises(OSError, match="there is no journal"):
        begin_log(LogFormat.JOURNAL, None, terminal=True, debug=False, about=ABOUT)


@pytest.mark.parametrize("form", [None, LogFormat.TEXT, LogFormat.JSON])
def test_a_daemon_without_a_terminal_logs_to_syslog(
    listening: socket.socket, form: LogFormat | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """If no journal listens, a daemon logs to syslog with priority, process ID and mountpoint."""
    monkeypatch.setattr("logging_journald.JournaldTransport.SOCKET_PATH", tmp_path / "none")
    monkeypatch.setattr(daemon_log, "SYSLOG_SOCKET", listening.getsockname())
    begin_log(form, None, terminal=False, debug=False, about={**ABOUT, "mountpoint": "/srv/50%s"})
    logging.getLogger("topicfs").warning("slow: %d ms, \x1b[31m", 7)
    header, message = listening.recv(65536).decode().split(": ", 1)
    assert f"<28>topicfs[{os.getpid()}]" == header
    if form is LogFormat.JSON:
        assert {"message": "slow: 7 ms, \x1b[31m", "mountpoint": "/srv/50%s"}.items() <= json.loads(
            message
        ).items()
    else:
        assert r"/srv/50%s: slow: 7 ms, \x1b[31m" == message


def test_syslog_blocks_nobody(listening: socket.socket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """If syslog hangs or is missing, entries are lost without a wait; afterwards, syslog gets later entries."""
    monkeypatch.setattr(daemon_log, "SYSLOG_SOCKET", listening.getsockname())
    handler = SyslogHandler()
    log_too_much(handler)
    drain(listening)
    log(handler, "read again")
    assert listening.recv(65536).endswith(b": read again")
    Path(listening.getsockname()).rename(tmp_path / "gone")
    log_too_much(handler)
    (tmp_path / "gone").rename(listening.getsockname())
    log(handler, "started again")
    assert listening.recv(65536).endswith(b": started again")
    handler.close()


def test_a_daemon_without_a_terminal_logs_to_the_journal(
    listening: socket.socket, root_logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
):
    """If a journal listens, a daemon without a terminal logs to it."""
    monkeypatch.setattr("logging_journald.JournaldTransport.SOCKET_PATH", Path(listening.getsockname()))
    begin_log(None, None, terminal=False, debug=False, about=ABOUT)
    assert [JournalHandler] == [type(one) for one in root_logger.handlers]
