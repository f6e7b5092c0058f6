"""The options of a read: those of Spark's Kafka connector with its names and rules, and a few of our own.

| option | default | rule |
|---|---|---|
| path | | data directories: one, several separated by commas, or a glob; `~` and `file:` as in a shell and in Spark |
| paths | | the same as a JSON list, into which `load([…])` turns its argument |
| without | | lost directories with replicas to leave out, separated by commas |
| assign, subscribe, subscribePattern | | exactly one |
| startingTimestamp, startingOffsetsByTimestamp, startingOffsets | earliest; in streams latest | the first given counts |
| startingOffsetsByTimestampStrategy | error | or latest: what to do if no record is as late |
| endingTimestamp, endingOffsetsByTimestamp, endingOffsets | latest | as above; not in streams |
| failOnDataLoss | true | |
| minPartitions, maxRecordsPerPartition | none | how ranges are split into tasks |
| maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay | none, none, 15m | of streams |
| includeHeaders | false | |
| isolation.level, kafka.isolation.level | read_uncommitted | or read_committed |
| corruptBatches | fail | or skip |

Other options that begin with `kafka.` are for network clients. They are ignored, so that a job can change the format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from topicfs.pipeline.errors import InvalidOptionError
from topicfs.pipeline.places.paths import absolute, data_directories, with_replica_hint
from topicfs.pipeline.source.query import offsets
from topicfs.storage.messages import did_you_mean
from topicfs.storage.model import Isolation, TopicPartition

SELECTIONS = ("assign", "subscribe", "subscribePattern")
KNOWN = (
    "path",
    "paths",
    "without",
    *SELECTIONS,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "isolation.level",
    "corruptBatches",
)
IGNORED_OPTIONS = frozenset(
    {
        "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "groupidprefix",
        "consumercachecapacity",
    }
)
"""Options, in lower case, that are ignored: the connector's options for its network clients."""

REFUSED = {
    "kafka.auto.offset.reset": "startingOffsets says where to begin, and the checkpoint where to continue",
    "kafka.key.deserializer": "keys are bytes; convert them in the query",
    "kafka.value.deserializer": "values are bytes; convert them in the query",
    "kafka.enable.auto.commit": "the checkpoint stores how far a query has read",
    "kafka.interceptor.classes": "topicfs does not run interceptors",
}
"""Options, in lower case, that Spark's Kafka connector also refuses, with the reason."""

_UNITS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]+)([a-z]*)")
_WHOLE = re.compile(r"-?[0-9]+")
_LOWERED = {name.lower() for name in KNOWN}


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions to read; exactly one field is set."""

    assigned: frozenset[TopicPartition] | None = None
    topics: tuple[str, ...] | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a read. The module's table has their defaults, which `parse_source_options` sets."""

    directories: tuple[Path, ...]
    """Data directories, absolute because tasks have working directories of their own."""
    selection: Selection
    starting: offsets.Bound
    ending: offsets.Bound
    starting_strategy_latest: bool
    """True to begin at the latest offset if no record is as late as the requested time; False to raise an error."""
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    include_headers: bool
    isolation: Isolation
    skip_corrupt_batches: bool
    left_out: tuple[Path, ...] = ()
    """Lost replica directories, absolute, that the read leaves out."""


def parse_source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parse options of a batch or streaming read, names in any case. Raises InvalidOptionError, PipelineError."""
    options = {name.lower(): value for name, value in given.items()}
    _check_names(options)
    most = _positive(options, "maxOffsetsPerTrigger")
    least = _positive(options, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise InvalidOptionError(f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}")
    without = absolute(options.get("without", ""))
    with with_replica_hint():
        directories = data_directories(_path(options), without)
    return SourceOptions(
        directories=directories,
        selection=_selection(options),
        starting=_starting(options, streaming=streaming),
        ending=_ending(options, streaming=streaming),
        starting_strategy_latest=_choice(
            options, "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, "error"
        ),
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        min_partitions=_positive(options, "minPartitions"),
        max_records_per_partition=_positive(options, "maxRecordsPerPartition"),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_duration_ms(options.get("maxtriggerdelay", "15m")),
        include_headers=includes_headers(options),
        isolation=_isolation(options),
        skip_corrupt_batches=_choice(options, "corruptBatches", {"fail": False, "skip": True}, "fail"),
        left_out=without,
    )


def includes_headers(given: Mapping[str, str]) -> bool:
    """Return whether the read has the column `headers`. Raises InvalidOptionError."""
    return _flag({name.lower(): value for name, value in given.items()}, "includeHeaders", default=False)


def _check_names(options: Mapping[str, str]) -> None:
    for name in options:
        if name in REFUSED:
            raise InvalidOptionError(f"{name}: cannot be set: {REFUSED[name]}")
        if name in _LOWERED or name in IGNORED_OPTIONS or name.startswith("kafka."):
            continue
        raise InvalidOptionError(f"{name}: not an option of topicfs{did_you_mean(name, KNOWN)}")


def _path(options: Mapping[str, str]) -> str:
    path = options.get("path", "").strip()
    if "paths" in options:
        path = ",".join([*([path] if path else []), *_listed(options["paths"])])
    if not path:
        raise InvalidOptionError("path: name a data directory, e.g. option('path', '/srv/topics')")
    return path


def _listed(text: str) -> list[str]:
    try:
        listed = json.loads(text)
        if all(isinstance(one, str) and one.strip() and "," not in one for one in listed):
            return list(listed)
    except (ValueError, TypeError):
        pass
    raise InvalidOptionError(
        f"paths: expected a JSON list of data directories without commas in them, got {text}"
    )


def _selection(options: Mapping[str, str]) -> Selection:
    chosen = [name for name in SELECTIONS if name.lower() in options]
    if len(chosen) != 1:
        found = " and ".join(chosen) if chosen else "none"
        raise InvalidOptionError(f"exactly one of {', '.join(SELECTIONS)} is needed; given: {found}")
    text = options[chosen[0].lower()].strip()
    if chosen[0] == "assign":
        return Selection(assigned=offsets.parse_assignment(text))
    if chosen[0] == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        if not topics:
            raise InvalidOptionError("subscribe: names no topic")
        return Selection(topics=topics)
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidOptionError(f"subscribePattern: {text!r} is not a valid pattern: {error}") from None
    if not text:
        raise InvalidOptionError("subscribePattern: the pattern is empty")
    return Selection(pattern=text)


def _starting(options: Mapping[str, str], *, streaming: bool) -> offsets.Bound:
    default = offsets.Everywhere(offsets.LATEST if streaming else offsets.EARLIEST)
    bound = _bound(options, "starting", default)
    if streaming:
        return bound
    if isinstance(bound, offsets.Everywhere) and bound.offset == offsets.LATEST:
        raise InvalidOptionError("startingOffsets: latest leaves a batch query nothing to read")
    if isinstance(bound, offsets.AtOffsets):
        for partition, offset in bound.offsets.items():
            if offset == offsets.LATEST:
                raise InvalidOptionError(
                    f"startingOffsets: {partition} begins at latest (-1), which leaves a batch query nothing to read"
                )
    return bound


def _ending(options: Mapping[str, str], *, streaming: bool) -> offsets.Bound:
    if streaming:
        for name in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
            if name.lower() in options:
                raise InvalidOptionError(f"{name}: a stream has no end")
    bound = _bound(options, "ending", offsets.Everywhere(offsets.LATEST))
    if isinstance(bound, offsets.Everywhere) and bound.offset == offsets.EARLIEST:
        raise InvalidOptionError("endingOffsets: earliest leaves nothing to read")
    if isinstance(bound, offsets.AtOffsets):
        for partition, offset in bound.offsets.items():
            if offset == offsets.EARLIEST:
                raise InvalidOptionError(
                    f"endingOffsets: {partition} ends at earliest (-2), which leaves nothing to read"
                )
    return bound


def _bound(options: Mapping[str, str], end: str, default: offsets.Bound) -> offsets.Bound:
    """Parse the bound `end` (`starting` or `ending`). The first option that is given counts.

    The order is: one time for all partitions, a time for each partition, offsets.
    """
    timestamp = options.get(f"{end}timestamp")
    if timestamp is not None:
        if _WHOLE.fullmatch(timestamp.strip()) is None or int(timestamp) < offsets.EARLIEST:
            raise InvalidOptionError(f"{end}Timestamp: expected milliseconds since 1970, got {timestamp}")
        return offsets.AtTimestamp(int(timestamp))
    timestamps = options.get(f"{end}offsetsbytimestamp")
    if timestamps is not None:
        option = f"{end}OffsetsByTimestamp"
        times = offsets.parse_partition_numbers(timestamps, option=option)
        _check_numbers(times, option, "time")
        return offsets.AtTimestamps(times)
    text = options.get(f"{end}offsets")
    if text is None:
        return default
    text = text.strip()
    if text.lower() in {"earliest", "latest"}:
        return offsets.Everywhere(offsets.EARLIEST if text.lower() == "earliest" else offsets.LATEST)
    numbers = offsets.parse_partition_numbers(text, option=f"{end}Offsets")
    _check_numbers(numbers, f"{end}Offsets", "offset")
    return offsets.AtOffsets(numbers)


def _check_numbers(numbers: Mapping[TopicPartition, int], option: str, what: str) -> None:
    """Raise InvalidOptionError if an offset or time is below EARLIEST."""
    for partition, number in numbers.items():
        if number < offsets.EARLIEST:
            raise InvalidOptionError(f"{option}: {partition} has the invalid {what} {number}")


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if _WHOLE.fullmatch(text) is None or int(text) < 1:
        raise InvalidOptionError(f"{name}: expected a positive number, got {text}")
    return int(text)


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    return _choice(options, name, {"true": True, "false": False}, "true" if default else "false")


def _choice(options: Mapping[str, str], name: str, values: Mapping[str, bool], default: str) -> bool:
    text = options.get(name.lower(), default).strip().lower()
    if text not in values:
        raise InvalidOptionError(f"{name}: expected {' or '.join(values)}, got {text}")
    return values[text]


def _isolation(options: Mapping[str, str]) -> Isolation:
    text = options.get("isolation.level", options.get("kafka.isolation.level", "read_uncommitted"))
    try:
        return Isolation(text)
    except ValueError:
        raise InvalidOptionError(
            f"isolation.level: expected read_uncommitted or read_committed, got {text}"
        ) from None


def _duration_ms(text: str) -> int:
    """Parse a duration as Spark writes it: a number and a unit, by default milliseconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or (match[2] or "ms") not in _UNITS:
        raise InvalidOptionError(f"maxTriggerDelay: expected e.g. 15m, 30s or 500ms, got {text}")
    return int(int(match[1]) * _UNITS[match[2] or "ms"])
