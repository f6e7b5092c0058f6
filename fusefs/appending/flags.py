"""Permission to open a file for writing: the flags of open(2) decide, before anything is kept.

Editors and rewriters (`vim`, `sort -o`) open without O_APPEND and without O_TRUNC, write the whole file again and
would double a log; so they are refused. `>`, `>>`, `tee`, `cp` and `dd` all set one of the two.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import NamedTuple

from topicfs.fusefs.errors import FileError, Refusal


class Access(NamedTuple):
    """The access that an open(2) asks for."""

    reads: bool
    writes: bool
    appends: bool
    """O_APPEND."""
    truncates: bool
    """O_TRUNC."""
    durable: bool
    """O_SYNC or O_DSYNC: every write is on disk when it returns (the kernel sends no FSYNC for them)."""
    nonblocking: bool


@lru_cache(maxsize=64)
def access_of(flags: int) -> Access:
    """Read the flags of open(2)."""
    mode = flags & os.O_ACCMODE
    return Access(
        reads=mode != os.O_WRONLY,
        writes=mode != os.O_RDONLY,
        appends=bool(flags & os.O_APPEND),
        truncates=bool(flags & os.O_TRUNC),
        durable=bool(flags & os.O_DSYNC),
        nonblocking=bool(flags & os.O_NONBLOCK),
    )


def refuse_writing(access: Access) -> None:
    """Raise FileError (EPERM) for a file that is only read."""
    if access.writes:
        raise FileError(Refusal.NOT_PERMITTED, "not to be written")


def check_append(access: Access, *, truncation_accepted: bool) -> None:
    """Raise FileError (EPERM) unless `access` is that of a program that only adds.

    `truncation_accepted` is true for `log` alone: so `cp -r` of one topic's files into another, which would open
    `log`, `log.kv` and `log.json` alike with O_TRUNC, brings each record once.
    """
    if access.appends or (access.truncates and truncation_accepted):
        return
    remedy = (
        "append with >>"
        if access.truncates
        else "append with >> (or > on log); rewriting in place would double it"
    )
    raise FileError(Refusal.NOT_PERMITTED, remedy)
