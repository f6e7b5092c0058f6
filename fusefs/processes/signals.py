"""Pending signals of a program that waits in a read: they show that the program is about to end.

A process that waits in a read of a FUSE filesystem cannot be killed until the daemon answers, and the daemon gets no
usable interrupt. So the daemon looks in /proc for a signal that is pending and not blocked, (SigPnd | ShdPnd) &
~SigBlk, or for the end of the process. Signals that do not end a program by default, such as SIGCHLD, are ignored: a
shell whose write is interrupted by such a signal would report an error although the lines were stored. Without a
pending signal, the daemon cannot answer EINTR, because awk, jq and bash's read treat EINTR as an error or as the end.
"""

# ruff: noqa: PTH123, PTH208 - many small files are read in a row: os calls, without a Path for each

import os
from signal import SIGCHLD, SIGCONT, SIGURG, SIGWINCH
from typing import NamedTuple

from topicfs.fusefs.processes.open_descriptors import holds

_NEWS = sum(1 << number - 1 for number in (SIGCHLD, SIGCONT, SIGURG, SIGWINCH))
"""Signals that are ignored by default (signal(7))."""
_FIELDS = (b"PPid:", b"State:", b"SigPnd:", b"ShdPnd:", b"SigBlk:", b"Uid:")


class Look(NamedTuple):
    """Fields of /proc/PID/status."""

    parent: int
    stuck: bool
    """True if the process is in an uninterruptible wait, as a FUSE request is after a signal has arrived."""
    pending: int
    """Mask of pending signals that are neither blocked nor ignored by default."""
    user: int = 0
    """The real user ID."""


def parse_status(status: bytes) -> Look | None:
    """Parse /proc/PID/status; None for a zombie, which no longer reads. Missing fields count as zero."""
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
    """Return the state of a process; None if it is gone."""
    try:
        with open(f"{proc}/{pid}/status", "rb", buffering=0) as file:
            return parse_status(file.read(4096))
    except OSError:
        return None


class DescriptorHolder(NamedTuple):
    """A process that holds a file open."""

    pid: int
    line: tuple[int, ...]
    """Process IDs of the holder and its ancestors, nearest first; one of them opened the descriptor."""


def descriptor_holders(path: str, *, stuck: bool, proc: str = "/proc") -> list[DescriptorHolder]:
    """Return the processes that hold a file whose path ends in `path`; `stuck`: only processes about to end."""
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
