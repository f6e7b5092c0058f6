"""Which flags of open(2) allow writing; checked before anything is stored.

Editors and rewriters (`vim`, `sort -o`) open without O_APPEND and O_TRUNC and write the whole file again. The mount
refuses this, because the log would have every record twice. `>`, `>>`, `tee`, `cp` and `dd` set O_APPEND or O_TRUNC.
"""

import os
from functools import lru_cache
from typing import NamedTuple

from topicfs.fusefs.errors import FileError, Refusal


class Access(NamedTuple):
    """The access that an open(2) requests."""

    reads: bool
    writes: bool
    appends: bool
    """True for O_APPEND."""
    truncates: bool
    """True for O_TRUNC."""
    durable: bool
    """True for O_SYNC or O_DSYNC: every write is on disk when it returns (the kernel sends no FSYNC for these flags)."""
    nonblocking: bool


@lru_cache(maxsize=64)
def access_of(flags: int) -> Access:
    """Parse the flags of open(2)."""
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
    """Raise FileError (EPERM) if `access` includes writing, because the file is read-only."""
    if access.writes:
        raise FileError(Refusal.NOT_PERMITTED, "the file is read-only")


def check_append(access: Access, *, truncation_accepted: bool) -> None:
    """Raise FileError (EPERM) unless `access` only appends.

    `truncation_accepted` allows O_TRUNC. It is true only for `log`, not for `log.kv` and `log.json`. So `cp -r` of a
    topic into another topic, which opens all three files with O_TRUNC, appends each record once.
    """
    if access.appends or (access.truncates and truncation_accepted):
        return
    remedy = (
        "append with >>"
        if access.truncates
        else "append with >> (or > on log); rewriting in place would double it"
    )
    raise FileError(Refusal.NOT_PERMITTED, remedy)
