"""Pending signals of a program that waits in a read, which show that it is to end.

A process whose read waits inside a FUSE daemon cannot be killed until the daemon answers, and no interrupt reaches
us. So /proc is looked at: a signal that is pending and not blocked (SigPnd | ShdPnd) & ~SigBlk, or no process any
more. Signals that are news and end no program, such as that of a child's end, count only once it can go on: a shell
whose write was interrupted by one would take it for an error, although the lines are kept. Answering EINTR without such a signal would not do: awk, jq and bash's read take it for an error or the end.
"""

# ruff: noqa: PTH123, PTH208 - many small files are read in a row: os calls, without a Path for each

from __future__ import annotations

import os
from signal import SIGCHLD, SIGCONT, SIGURG, SIGWINCH
from typing import NamedTuple

from topicfs.fusefs.processes.open_descriptors import holds

_NEWS = sum(1 << number - 1 for number in (SIGCHLD, SIGCONT, SIGURG, SIGWINCH))
"""Signals that do nothing unless a program wants to hear of them (signal(7))."""
_FIELDS = (b"PPid:", b"State:", b"SigPnd:", b"ShdPnd:", b"SigBlk:", b"Uid:")


class Look(NamedTuple):
    """The fields of /proc/PID/status."""

    parent: int
    stuck: bool
    """In an uninterruptible wait: where a FUSE request stands once a signal has come."""
    pending: int
    """Mask of the signals that are pending and not blocked, without those that end no program."""
    user: int = 0
    """The real user id."""


def parse_status(status: bytes) -> Look | None:
    """Read the text of /proc/PID/status; None for a zombie, which reads nothing any more.

    Fields that are missing count as nothing.
    """
    fields = dict.fromkeys(_FIELDS, b"0")
    for line in status.split(b"\n"):
        name, _, value = line.partition(b"\t")
        if name in fields:
            fields[name] = value.strip() or b"0"
    parent, state, thread_pending, process_pending, blocked, users = (fields[name] for name in _FIELDS)
    if state[:1] in (b"Z", b"X"):
        return None
    pending = (int(thread_pending, 16) | int(process_pending, 16)) & ~int(blocked, 16) & ~_NEWS
    return Look(int(parent), state[:1] == b"D", pending, int(users.split()[0]))


def look(pid: int, *, proc: str = "/proc") -> Look | None:
    """Look at a process; None when it is gone."""
    try:
        with open(f"{proc}/{pid}/status", "rb", buffering=0) as file:
            return parse_status(file.read(4096))
    except OSError:
        return None


class DescriptorHolder(NamedTuple):
    """A process that holds a file open."""

    pid: int
    line: tuple[int, ...]
    """Its own pid and those of its ancestors, nearest first: it inherited its descriptor from one of them."""


def descriptor_holders(path: str, *, stuck: bool, proc: str = "/proc") -> list[DescriptorHolder]:
    """Processes that hold a file whose name ends in `path`; with `stuck` only those that wait and want to end."""
    found = []
    for entry in os.listdir(proc):
        if not entry.isdigit():
            continue
        seen = look(int(entry), proc=proc)
        if seen is None or (stuck and not (seen.stuck and seen.pending)):
            continue
        if holds(int(entry), path, proc=proc):
            found.append(DescriptorHolder(int(entry), (int(entry), *_ancestors(seen.parent, proc))))
    return found


def _ancestors(pid: int, proc: str) -> list[int]:
    line: list[int] = []
    while pid > 1 and pid not in line:
        line.append(pid)
        seen = look(pid, proc=proc)
        pid = 0 if seen is None else seen.parent
    return line
