"""Where reading begins and ends, as users write it.

42  "42"                                  an offset
-10  "-10"                                the newest ten records
"@2026-11-21T03:00"  "@yesterday"  "-10m"  datetime(…, tzinfo=…)      the first record at or after a time
"earliest"  "latest"
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypeAlias

from topicfs.api.records import milliseconds
from topicfs.formats.records import RecordRange
from topicfs.fusefs.selectors import AtTime, LastN, SelectorError, Single, parse
from topicfs.fusefs.times import TimeError, parse_time
from topicfs.fusefs.views.records import first_offset_at, last_records_start
from topicfs.storage.engine import Partition
from topicfs.storage.errors import OffsetOutOfRangeError
from topicfs.storage.model import Isolation, Offset, Timestamp

Where: TypeAlias = int | str | datetime | None
_EARLIEST, _LATEST = "earliest", "latest"
PLACES = "write 42, '-10', '-10m', '@yesterday', '@2026-11-21T03:00', 'earliest' or 'latest'"
ParsedBound: TypeAlias = Single | LastN | AtTime | str


def ranges_of(
    partitions: Iterable[Partition], start: Where, stop: Where, isolation: Isolation
) -> list[RecordRange]:
    """Return the current records of each partition from `start` up to, but excluding, `stop`.

    A start below the log start means the log start, and a stop beyond the end means the end. Raises
    OffsetOutOfRangeError for a start beyond the end, and ValueError for an invalid start or stop.
    """
    first, last, found = parsed(start), parsed(stop), list(partitions)
    if len(found) > 1 and any(isinstance(place, Single | LastN) for place in (first, last)):
        raise ValueError("an offset applies to one partition: use topic[0].records(start=42)")
    ranges = []
    for partition in found:
        partition.find_bounds()
        end_offset = partition.visible_end(isolation)
        begin = offset_of(partition, first, isolation)
        end = end_offset if last is None else offset_of(partition, last, isolation, clip=True)
        ranges.append(RecordRange(partition, begin, Offset(min(end, end_offset))))
    return ranges


def parsed(where: Where) -> ParsedBound | None:
    """Parse a start or stop. Raises ValueError, TypeError."""
    if where is None or where in (_EARLIEST, _LATEST):
        return None if where is None else str(where)
    if isinstance(where, datetime):
        return AtTime(milliseconds(where))
    if isinstance(where, int) and not isinstance(where, bool):
        return Single(Offset(where)) if where >= 0 else LastN(-where)
    if not isinstance(where, str):
        raise TypeError(f"{where!r}: a place is an offset, a time or a text such as '@yesterday'")
    try:
        if where.startswith("-") and not where[1:].isdecimal():
            return AtTime(parse_time(where[1:]))
        selector = parse(where)
    except (SelectorError, TimeError) as error:
        reason = str(error) if where.startswith(("@", "-")) else f"{where}: not a place; {PLACES}"
        raise ValueError(reason) from None
    if not isinstance(selector, Single | LastN | AtTime) or selector.suffix:
        raise ValueError(f"{where}: not a single place but a range, or a record with a suffix; {PLACES}")
    return selector


def level_of(isolation: str) -> Isolation:
    """Return the isolation level with that name. Raises ValueError."""
    try:
        return Isolation(isolation)
    except ValueError:
        raise ValueError(f"{isolation!r}: isolation is 'read_committed' or 'read_uncommitted'") from None


def offset_of(
    partition: Partition, place: ParsedBound | None, isolation: Isolation, *, clip: bool = False
) -> Offset:
    """Return the offset of `place`; None means the log start.

    An offset beyond the visible end becomes the end if `clip`, and raises OffsetOutOfRangeError otherwise.
    """
    start, end = partition.log_start_offset, partition.visible_end(isolation)
    match place:
        case Single(offset):
            if offset > end and not clip:
                error = OffsetOutOfRangeError(offset, start, end, f"{partition.topic}-{partition.number}")
                error.args = (f"{error}; start at 'latest' for the records that come next",)
                raise error
            return Offset(min(max(offset, start), max(end, start)))
        case LastN(records):
            return last_records_start(partition, records, end, isolation=isolation)
        case AtTime(timestamp):
            found = first_offset_at(partition, max(timestamp, Timestamp(0)), isolation)
            return end if found is None else found
    return end if place == _LATEST else start
