"""The options of a write, and the columns that it takes.

The options are our own, and those of Spark's Kafka connector that apply here.

| option | default | rule |
|---|---|---|
| path | | the data directory; several, separated by commas, if they are served together |
| without | | lost directories with replicas to leave out, separated by commas |
| topic | | overrides the column `topic`; one of the two is needed |
| txnAppId, txnVersion | | the name of a write that happens once even if the job is repeated |
| failOnOtherRows | true | whether a repeated write must have the rows that were committed |
| commitTimeout | 60s | how long to wait until the directory's owner claims a write |

`includeHeaders`, and options that begin with `kafka.`, are accepted and ignored, so that a job can change the format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from topicfs.pipeline.errors import InvalidOptionError
from topicfs.pipeline.places.paths import absolute, data_directories
from topicfs.storage.disk.names import check_topic_name
from topicfs.storage.errors import InvalidNameError
from topicfs.storage.messages import did_you_mean

COLUMNS = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""The columns that are written, with the types that they may have; other columns are ignored."""

_NAMES = ("path", "without", "topic", "txnAppId", "txnVersion", "failOnOtherRows", "commitTimeout")
_LOWERED = {name.lower() for name in _NAMES}
_IGNORED_OPTIONS = frozenset({"includeheaders", "checkpointlocation", "queryname"})
_REFUSED = {
    "kafka.key.serializer": "keys are written as they are; convert them in the query",
    "kafka.value.serializer": "values are written as they are; convert them in the query",
}
"""Options, in lower case, that Spark's Kafka connector also refuses, with the reason."""
_TIMEOUT = re.compile(r"(?P<number>[0-9]+)\s*(?P<unit>ms|s|m|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 0.001}
_APPLICATION = re.compile(r"[0-9A-Za-z._-]{1,64}")
_VERSION = re.compile(r"[0-9]{1,19}", re.ASCII)
_LARGEST_VERSION = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SinkOptions:
    directories: tuple[Path, ...]
    """Data directories that are served together, absolute."""
    topic: str | None
    """Topic of every record; None: the column `topic` names it."""
    commit_timeout_seconds: float
    left_out: tuple[Path, ...] = ()
    """Lost replica directories, absolute, that the write leaves out."""
    name: tuple[str, int] | None = None
    """Application and version of the write. None: a query's micro-batch, or a write that is never repeated."""
    must_have_same_rows: bool = True
    """True if an error is raised when a write is repeated with other rows than the committed rows."""


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse and check the options of a write, with names in any case. Raises InvalidOptionError, PipelineError."""
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        if name in _REFUSED:
            raise InvalidOptionError(f"{name}: cannot be set: {_REFUSED[name]}")
        if name not in _LOWERED and name not in _IGNORED_OPTIONS and not name.startswith("kafka."):
            raise InvalidOptionError(
                f"{name}: not an option for writes to topicfs{did_you_mean(name, _NAMES)}"
            )
    path = options.get("path", "").strip()
    if not path:
        raise InvalidOptionError("path: name a data directory, e.g. option('path', '/srv/topics')")
    without = absolute(options.get("without", ""))
    topic, timeout_seconds = (
        _topic(options.get("topic")),
        _timeout_seconds(options.get("committimeout", "60s")),
    )
    same_rows = options.get("failonotherrows", "true").strip().lower()
    if same_rows not in ("true", "false"):
        raise InvalidOptionError(f"failOnOtherRows: expected true or false, got {same_rows}")
    application = _name(options.get("txnappid"), options.get("txnversion"))
    return SinkOptions(
        data_directories(path, without), topic, timeout_seconds, without, application, same_rows == "true"
    )


def check_columns(columns: Mapping[str, str], options: SinkOptions) -> None:
    """Check that a DataFrame with these columns (types by name) can be written. Raises InvalidOptionError."""
    if "value" not in columns:
        raise InvalidOptionError("a column 'value' is needed, of type binary or string")
    if options.topic is None and "topic" not in columns:
        raise InvalidOptionError("no topic to write to: give the option topic, or a column 'topic'")
    for name, kinds in COLUMNS.items():
        if name == "topic" and options.topic is not None:
            continue  # The option `topic` overrides this column.
        if columns.get(name, kinds[0]) not in kinds:
            raise InvalidOptionError(f"column '{name}' is {columns[name]}; it must be {' or '.join(kinds)}")


def _topic(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        check_topic_name(text)
    except InvalidNameError as error:
        raise InvalidOptionError(f"topic: {error}") from None
    return text


def _name(application: str | None, version: str | None) -> tuple[str, int] | None:
    if application is None and version is None:
        return None
    if application is None or version is None:
        raise InvalidOptionError("txnAppId and txnVersion: give both, or neither")
    if not _APPLICATION.fullmatch(application):
        raise InvalidOptionError(
            f"txnAppId: expected 1 to 64 letters, digits, dots, underscores and dashes, got {application!r}"
        )
    if not _VERSION.fullmatch(version) or int(version) > _LARGEST_VERSION:
        raise InvalidOptionError(
            f"txnVersion: expected a number from 0 to {_LARGEST_VERSION}, got {version!r}"
        )
    return application, int(version)


def _timeout_seconds(text: str) -> float:
    match = _TIMEOUT.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidOptionError(f"commitTimeout: expected e.g. 60s, 2m or 500ms, got {text}")
    return int(match["number"]) * _SECONDS[match["unit"]]
