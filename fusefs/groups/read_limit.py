"""When the stream of an open file of a group ends, according to the file's name.

    log          never: it waits for more records
    drain        where the partitions ended when the file was opened
    next-1000    like drain, but after at most 1000 records
    next-10s     after 10 seconds; returns records that arrive meanwhile

Numbers are at least 1 and have no leading zeros: `next-0` and `next-007` do not exist.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LAST_COMMIT_SECONDS = 5.0
"""How long a reader waits for its last commit after its time limit has passed."""

_NEXT = re.compile(r"next-([1-9][0-9]*)(s?)")


class ReadLimit(NamedTuple):
    """The limits of an open file. A file without limits waits for more records."""

    drains: bool = False
    """True if the stream ends where the partitions ended when they were assigned."""
    records: int | None = None
    """Maximum number of records; None: unlimited."""
    seconds: int | None = None
    """Seconds after which the stream ends; None: never."""

    @property
    def commits_at_end(self) -> bool:
        """True if positions are committed only when the reader reaches the end."""
        return self.records is not None or self.seconds is not None


def parse_read_limit(name: str) -> ReadLimit | None:
    """Parse a name without its suffix; None if the name is not such a file."""
    if name in {"log", "drain"}:
        return ReadLimit(drains=name == "drain")
    found = _NEXT.fullmatch(name)
    if found is None:
        return None
    number = int(found[1])
    return ReadLimit(seconds=number) if found[2] else ReadLimit(drains=True, records=number)
