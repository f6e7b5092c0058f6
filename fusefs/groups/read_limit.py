"""The end of an open file of a group, as its name says.

    log          everything, and then it waits for more
    drain        up to where the partitions ended when it was opened
    next-1000    the same, but at most this number of records
    next-10s     what there is, and what arrives, within this number of seconds

A number is written in one way: `next-0` and `next-007` are not names.
"""

from __future__ import annotations

import re
from typing import NamedTuple

END_SECONDS = 5.0
"""Time that a reader whose time is over waits for its commit."""

_NEXT = re.compile(r"next-([1-9][0-9]*)(s?)")


class ReadLimit(NamedTuple):
    """Limits of what an open file gives; without any it waits for more."""

    drains: bool = False
    """True if it ends where the partitions ended when they were assigned."""
    records: int | None = None
    """Most records that it gives; None: any number."""
    seconds: int | None = None
    """Time after which it ends; None: any."""

    @property
    def commits_at_end(self) -> bool:
        """True if positions are committed when the end is read, and not before."""
        return self.records is not None or self.seconds is not None


def parse_read_limit(name: str) -> ReadLimit | None:
    """Read a name without its suffix; None for any other name."""
    if name in {"log", "drain"}:
        return ReadLimit(drains=name == "drain")
    found = _NEXT.fullmatch(name)
    if found is None:
        return None
    number = int(found[1])
    return ReadLimit(seconds=number) if found[2] else ReadLimit(drains=True, records=number)
