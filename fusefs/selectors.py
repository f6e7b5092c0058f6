"""Selectors: file names that select records by offset or by time, and what they select in a partition.

    42  42-99  42-  -10                  the byte-range grammar of RFC 9110 over offsets, first and last inclusive
    @T  @T1-@T2  @T1-                    T: a time as `fusefs/times.py` reads it
    each with .kv, .json, .avro.json, .proto.json, .jsonschema.json, .batch, or without suffix

The suffix is removed first. Then a name that begins with `@` is split at `-@` (or at a final `-`), any other name at
`-`. `007` and non-ASCII digits are not offsets, so that a record has only one name. Parsing needs only the clock, for
relative times. Resolving reads the partition. Parsing and resolving raise SelectorError if the name selects nothing.
"""

import re
from typing import NamedTuple, TypeAlias

from topicfs.fusefs.forms import SUFFIXES
from topicfs.fusefs.times import TimeError, is_relative, parse_time
from topicfs.fusefs.views.records import find_record, first_offset_at, first_record_at, last_records_start
from topicfs.storage.codec.records import FoundRecord
from topicfs.storage.disk.native import system_clock
from topicfs.storage.engine import Partition
from topicfs.storage.model import Isolation, Offset, PartitionOffsets, Timestamp

MAX_NAME_LENGTH = 255
"""Maximum number of characters in a file name."""
_OFFSET_DIGITS = 19
"""A number with fewer digits than this always fits in a 64-bit offset."""
_BEGINNING = Timestamp(0)
"""Time 0. Records without a timestamp (-1) have no time, so a time before 1970 is clamped to 0."""

_NUMBER = r"(0|[1-9][0-9]*)"
_SINGLE = re.compile(_NUMBER)
_RANGE = re.compile(f"{_NUMBER}-{_NUMBER}?")
_LAST = re.compile(r"-([1-9][0-9]*)")


class SelectorError(LookupError):
    """The name is not a selector, or selects nothing; the message names the existing range."""


class Single(NamedTuple):
    """`42`: one record by its offset."""

    offset: Offset
    suffix: str = ""


class Range(NamedTuple):
    """`42-99`, `42-`: offsets from first to last, both inclusive. A range without a last offset grows with the log."""

    first_offset: Offset
    last_offset: Offset | None
    suffix: str = ""


class LastN(NamedTuple):
    """`-10`: the newest 10 records."""

    records: int
    suffix: str = ""


class AtTime(NamedTuple):
    """`@T`: the first record at or after a time."""

    timestamp: Timestamp
    suffix: str = ""
    relative: bool = False
    """True if the name is relative to the current time, such as `@10m`."""


class TimeRange(NamedTuple):
    """`@T1-@T2`, `@T1-`: from the first record at or after T1 up to, but excluding, the first record at or after T2."""

    start_timestamp: Timestamp
    end_timestamp: Timestamp | None
    suffix: str = ""
    relative: bool = False
    """True if the name is relative to the current time, such as `@10m-`."""


Selector: TypeAlias = Single | Range | LastN | AtTime | TimeRange


class SelectedRange(NamedTuple):
    """A range within the visible log; empty if both ends are equal."""

    start_offset: Offset
    end_offset: Offset | None
    """Exclusive end offset; None: the range grows with the log."""


Selected: TypeAlias = Offset | SelectedRange
"""The offset of a record, or a range."""


def parse(name: str) -> Selector:
    """Parse a file name. Raises SelectorError if it is not a selector."""
    if name.isdecimal() and name.isascii() and len(name) < _OFFSET_DIGITS and (name[0] != "0" or name == "0"):
        return Single(Offset(int(name)))  # The most common kind.
    if len(name) > MAX_NAME_LENGTH:
        raise _no_selector(name[:16] + "…")
    suffix = "" if "." not in name else next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
    stem = name.removesuffix(suffix)
    if stem.startswith("@"):
        return _parse_times(name, stem, suffix)
    if single := _SINGLE.fullmatch(stem):
        return Single(Offset(int(single[1])), suffix)
    if last := _LAST.fullmatch(stem):
        return LastN(int(last[1]), suffix)
    if bounds := _RANGE.fullmatch(stem):
        first, last_offset = int(bounds[1]), int(bounds[2]) if bounds[2] else None
        if last_offset is not None and last_offset < first:
            raise SelectorError(f"{name}: the range is reversed; write the lower offset first")
        return Range(Offset(first), None if last_offset is None else Offset(last_offset), suffix)
    raise _no_selector(name)


def _parse_times(name: str, stem: str, suffix: str) -> AtTime | TimeRange:
    start, split, end = stem[1:].partition("-@")
    try:
        if split:
            now = system_clock()  # Both times use the same clock reading.
            start_timestamp, end_timestamp = parse_time(start, lambda: now), parse_time(end, lambda: now)
            if end_timestamp < start_timestamp:
                raise SelectorError(f"{name}: the range is reversed; write the earlier time first")
            return TimeRange(start_timestamp, end_timestamp, suffix, is_relative(start) or is_relative(end))
        if start.endswith("-"):
            since = start.removesuffix("-")
            return TimeRange(parse_time(since, system_clock), None, suffix, is_relative(since))
        return AtTime(parse_time(start, system_clock), suffix, is_relative(start))
    except TimeError as error:
        raise SelectorError(str(error)) from None


def _no_selector(name: str) -> SelectorError:
    return SelectorError(
        f"{name}: not a selector; selectors are 42, 42-99, 42-, -10, @TIME, @TIME-@TIME and @TIME-"
    )


def find_one(selector: Selector, partition: Partition, isolation: Isolation) -> FoundRecord | None:
    """Return the record of a selector; None if the selector is a range, or selects nothing: then call `resolve`.

    Raises CorruptionError.
    """
    match selector:
        case Single(offset):
            return find_record(partition, offset, isolation=isolation)
        case AtTime(timestamp):
            return first_record_at(partition, max(timestamp, _BEGINNING), isolation)
    return None


def resolve(
    selector: Selector, partition: Partition, *, isolation: Isolation = Isolation.READ_COMMITTED
) -> Selected:
    """Return what a selector names now, without a scan from the log start. Raises SelectorError, CorruptionError."""
    offsets = partition.offsets()
    match selector:
        case Single(offset):
            return _resolve_single(offset, partition, offsets, isolation)
        case Range(first_offset, last_offset):
            return _resolve_range(first_offset, last_offset, partition, offsets, isolation=isolation)
        case LastN(records):
            visible_end = offsets.visible_end(isolation)
            return SelectedRange(
                last_records_start(partition, records, visible_end, isolation=isolation), visible_end
            )
        case AtTime(timestamp):
            found = _offset_at(partition, timestamp, isolation)
            if found is None:
                raise SelectorError(
                    f"{_name(partition)}: no record at or after {timestamp}; {_existing(offsets, isolation)}"
                )
            return found
        case TimeRange(start_timestamp, end_timestamp):
            return _resolve_times(start_timestamp, end_timestamp, partition, isolation)


def _resolve_single(
    offset: Offset, partition: Partition, offsets: PartitionOffsets, isolation: Isolation
) -> Offset:
    if not offsets.log_start_offset <= offset < offsets.visible_end(isolation):
        raise SelectorError(f"{_name(partition)}: no offset {offset}; {_existing(offsets, isolation)}")
    if find_record(partition, offset, isolation=isolation) is None:
        raise SelectorError(
            f"{_name(partition)}: offset {offset} has no record (compacted away, or a transaction marker); "
            f"{_existing(offsets, isolation)}"
        )
    return offset


def _resolve_range(
    first_offset: Offset,
    last_offset: Offset | None,
    partition: Partition,
    offsets: PartitionOffsets,
    *,
    isolation: Isolation,
) -> SelectedRange:
    """Clip a range to the log. Raises SelectorError if the whole range is outside the log (HTTP: not satisfiable)."""
    visible_end = offsets.visible_end(isolation)
    start_offset = max(first_offset, offsets.log_start_offset)
    if first_offset > visible_end or (last_offset is not None and last_offset < offsets.log_start_offset):
        name = f"{first_offset}-" if last_offset is None else f"{first_offset}-{last_offset}"
        raise SelectorError(f"{_name(partition)}: no offsets {name}; {_existing(offsets, isolation)}")
    if last_offset is None:
        return SelectedRange(start_offset, None)
    return SelectedRange(start_offset, max(start_offset, Offset(min(last_offset + 1, visible_end))))


def _resolve_times(
    start_timestamp: Timestamp, end_timestamp: Timestamp | None, partition: Partition, isolation: Isolation
) -> SelectedRange:
    """Return the range of offsets; empty at the visible end if no record is at or after the start time."""
    visible_end = partition.visible_end(isolation)
    found = _offset_at(partition, start_timestamp, isolation)
    start_offset = visible_end if found is None else found
    if end_timestamp is None:
        return SelectedRange(start_offset, None)
    end_offset = _offset_at(partition, end_timestamp, isolation)
    return SelectedRange(start_offset, max(start_offset, visible_end if end_offset is None else end_offset))


def _offset_at(partition: Partition, timestamp: Timestamp, isolation: Isolation) -> Offset | None:
    return first_offset_at(partition, max(timestamp, _BEGINNING), isolation)


def _existing(offsets: PartitionOffsets, isolation: Isolation) -> str:
    start_offset, end_offset = offsets.log_start_offset, offsets.visible_end(isolation)
    if start_offset >= end_offset:
        return f"the log is empty, its next offset is {end_offset}"
    return f"offsets {start_offset} to {end_offset - 1} exist"


def _name(partition: Partition) -> str:
    return f"{partition.topic}-{partition.number}"
