"""Formats a lookup as text for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.text import Text

from topicfs.fusefs.times import written
from topicfs.inspection.explain import ExplainedRecord, Lookup
from topicfs.storage.log.log import Log
from topicfs.storage.messages import printable
from topicfs.storage.model import Timestamp
from topicfs.storage.segment import trace

SHOWN_NEIGHBORS = 3
"""How many segments or skipped batches are listed before and after the chosen segment or batch."""

EXPLAINED_BYTES = 60
"""The largest number of bytes of a key or value that are shown."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A name, its meaning, and the lookups for it."""

    name: str
    meaning: str
    log: Log
    lookups: tuple[tuple[str, Lookup], ...]


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Return one object: the name, the partition's bounds, and every step with its numbers."""
    offsets, segments = explanation.log.offsets(), explanation.log.segments()
    return {
        "name": explanation.name,
        "meaning": explanation.meaning,
        "topic": explanation.log.topic,
        "partition": explanation.log.number,
        "log_start_offset": offsets.log_start_offset,
        "log_end_offset": offsets.log_end_offset,
        "segments": [segment.base_offset for segment in segments],
        "lookups": [
            {
                "target": target,
                "steps": [_step_json(step) for step in lookup.steps],
                "record": _record_json(lookup.found) if lookup.found else None,
            }
            for target, lookup in explanation.lookups
        ],
    }


def as_text(explanation: Explanation) -> Iterator[Text]:
    """Yield the lines for people; styles apply only on a terminal."""
    log = explanation.log
    offsets, segments = log.offsets(), log.segments()
    held = _offsets(offsets.log_start_offset, offsets.log_end_offset - 1)
    size = sum(segment.size_bytes for segment in segments)
    yield Text.assemble(
        (printable(explanation.name), "name"),
        f": {explanation.meaning}. {log.topic}-{log.number} holds {held} "
        f"in {_count(len(segments), 'segment')}, {size:,} bytes.",
    )
    for target, lookup in explanation.lookups:
        yield Text()
        yield Text(target, style="name")
        yield from _lookup_text(lookup)


def _lookup_text(lookup: Lookup) -> Iterator[Text]:
    number = 0
    for kind, group in groupby(lookup.steps, key=type):
        steps = list(group)
        if kind is trace.RecordFound:
            continue
        if kind in (trace.BatchPassed, trace.SegmentPassed):
            number += kind is trace.SegmentPassed
            yield from _passed_text(number, steps)
            continue
        for step in steps:
            number += kind is not trace.BatchFound
            yield from _step_text(number, step)
    if lookup.found is None:
        yield _line("", Text("no record there", style="bad"))
    else:
        yield from _record_text(number + 1, lookup.found)


def _step_text(number: int, step: trace.Step) -> Iterator[Text]:
    match step:
        case trace.SegmentsSearched():
            yield _line(f"{number} segment", f"the greatest base offset not above {step.target}:")
            yield _line("", _choice(step.base_offsets, step.chosen))
        case trace.SegmentTaken():
            yield _line(
                f"{number} segment",
                _found(f"{step.base_offset}", f" reaches {_time(step.largest_timestamp)}"),
            )
        case trace.IndexSearched():
            yield from _index_text(number, step)
        case trace.ScanBegan():
            yield _line(f"{number} scan", f"{step.file}, forward from position {step.position}")
        case trace.BatchFound():
            text = f"at {step.position}: {_offsets(step.base_offset, step.last_offset)}, {step.size_bytes:,} bytes"
            yield _line("", _found("batch", f" {text}"))
        case _:
            raise AssertionError(step)


def _index_text(number: int, step: trace.IndexSearched) -> Iterator[Text]:
    by_time = step.file.endswith(".timeindex")
    key, value = ("timestamp", "offset") if by_time else ("offset", "position")
    entries = _count(step.entries, "entry", "entries")
    if not step.entries:
        yield _line(f"{number} index", f"{step.file} has no entry yet: from the start of the segment")
        return
    yield _line(f"{number} index", f"{step.file}, {entries}: binary search for {step.target}")
    # The search may visit a slot twice, but the slot is shown once.
    for probe in dict.fromkeys(step.probes):
        side = "above" if probe.key > step.target else "equal" if probe.key == step.target else "below"
        yield _line(
            "", Text(f"slot {probe.slot}: {key} {probe.key} → {value} {probe.value}  {side}", style="quiet")
        )
    if any(probe.key <= step.target for probe in step.probes):
        yield _line(
            "", _found(f"{key} {step.found_key} → {value} {step.found_value}", ", the greatest not above it")
        )
    else:
        yield _line(
            "", f"no entry is at or below it: from {value} {step.found_value}, where the segment starts"
        )


def _passed_text(number: int, steps: Sequence[trace.Step]) -> Iterator[Text]:
    """List the skipped batches or segments. If there are many, list only the first and last of them."""
    skipped = len(steps) - 2 * SHOWN_NEIGHBORS
    for index, step in enumerate(steps):
        label = f"{number} segment" if isinstance(step, trace.SegmentPassed) and not index else ""
        if skipped > 0 and index == SHOWN_NEIGHBORS:
            yield _line("", Text(f"… {skipped} more …", style="quiet"))
        if skipped <= 0 or not SHOWN_NEIGHBORS <= index < len(steps) - SHOWN_NEIGHBORS:
            yield _line(label, Text(_passed(step), style="quiet"))


def _passed(step: trace.Step) -> str:
    match step:
        case trace.SegmentPassed():
            return f"{step.base_offset} ends at time {_time(step.largest_timestamp)}: passed"
        case trace.BatchPassed():
            return f"batch at {step.position}: {_offsets(step.base_offset, step.last_offset)}, passed"
    raise AssertionError(step)


def _offsets(first_offset: int, last_offset: int) -> str:
    return (
        f"offset {first_offset}"
        if first_offset == last_offset
        else f"offsets {first_offset} to {last_offset}"
    )


def _record_text(number: int, found: ExplainedRecord) -> Iterator[Text]:
    record, batch = found.record, found.batch
    place = f"record {found.index + 1} of the {batch.record_count} records in its batch"
    yield _line(f"{number} record", _found(f"offset {record.offset}", f", {place}"))
    yield _line(
        "", f"{batch.timestamp_type.label} {_time(record.timestamp)}, leader epoch {batch.leader_epoch}"
    )
    yield _line("", f"key {_bytes(record.key)}, value {_bytes(record.value)}")
    if record.headers:
        names = ", ".join(printable(header.key.decode(errors="replace")) for header in record.headers)
        yield _line("", f"headers {names}")


def _choice(base_offsets: Sequence[int], chosen: int) -> Text:
    """List the segments around the chosen segment."""
    place = base_offsets.index(chosen)
    first, last = max(0, place - SHOWN_NEIGHBORS), place + SHOWN_NEIGHBORS + 1
    text = Text("… " if first else "")
    for base_offset in base_offsets[first:last]:
        text.append(
            f"[{base_offset}]" if base_offset == chosen else str(base_offset),
            "found" if base_offset == chosen else "quiet",
        )
        text.append("  ")
    text.append(f"… ({len(base_offsets):,} segments)" if last < len(base_offsets) or first else "")
    text.rstrip()
    return text


def _line(label: str, text: str | Text) -> Text:
    return Text.assemble("  ", (f"{label:<11}", "number"), text)


def _found(what: str, more: str) -> Text:
    return Text.assemble((what, "found"), more)


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _time(timestamp: int) -> str:
    if timestamp < 0:
        return "none"
    calendar = written(Timestamp(timestamp))
    return calendar if calendar == str(timestamp) else f"{timestamp} ({calendar})"


def _bytes(data: bytes | None) -> str:
    if data is None:
        return "null"
    shown = repr(data[:EXPLAINED_BYTES].decode("utf-8", errors="replace"))
    return f"{shown}{'…' if len(data) > EXPLAINED_BYTES else ''} ({_count(len(data), 'byte')})"


def _step_json(step: trace.Step) -> dict[str, Any]:
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in type(step).__name__)
    fields = step._asdict()
    if isinstance(step, trace.IndexSearched):
        fields["probes"] = [probe._asdict() for probe in step.probes]
    return {"step": name.removeprefix("_"), **fields}


def _record_json(found: ExplainedRecord) -> dict[str, Any]:
    return {
        "offset": found.record.offset,
        "timestamp": found.record.timestamp,
        "segment": found.segment_base_offset,
        "batch_position": found.batch.position,
        "batch_base_offset": found.batch.base_offset,
        "batch_last_offset": found.batch.last_offset,
        "batch_bytes": found.batch.size_bytes,
        "index_in_batch": found.index,
    }
