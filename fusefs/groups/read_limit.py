"""When an open file of a group ends, according to its name.

    log          never: it waits for more records
    drain        where the partitions ended when it was opened
    next-1000    the same, but after at most this many records
    next-10s     after this many seconds; returns records that arrive meanwhile

Numbers have no leading zeros: `next-0` and `next-007` are not names.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LAST_COMMIT_SECONDS = 5.0
"""How long a reader whose time is over waits for its commit."""

_NEXT = re.compile(r"next-([1-9][0-9]*)(s?)")


class ReadLimit(NamedTuple):
    """The limits of an open file; without any it waits for more records."""

    drains: bool = False
    """True if it ends where the partitions ended when they were assigned."""
    records: int | None = None
    """Maximum number of records; None: unlimited."""
    seconds: int | None = None
    """Seconds after which it ends; None: never."""

    @property
    def commits_at_end(self) -> bool:
        """True if positions are committed only when the reader reaches the end."""
        return self.records is not None or self.seconds is not None


def parse_read_limit(name: str) -> ReadLimit | None:
    """Parse a name without its suffix; None for any other name."""
    if name in {"log", "drain"}:
        return ReadLimit(drains=name == "drain")
    found = _NEXT.fullmatch(name)
    if found is None:
        return None
    number = int(found[1])
    return ReadLimit(seconds=number) if found[2] else ReadLimit(drains=True, records=number)
