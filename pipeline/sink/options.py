"""The options of a write: those of Spark's Kafka connector that mean something here, and our own.

| option | default | rule |
|---|---|---|
| path | | the data directory; several, after commas, are those that serve together |
| topic | | overrides the column `topic`; one of the two is needed |
| commitTimeout | 60s | how long to wait until the directory's owner has appended a write |

`includeHeaders` and options that begin with `kafka.` are taken and passed over, so that a job moves between the two.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import InvalidOptionError
from pipeline.paths import data_directories
from storage.disk.names import check_topic_name
from storage.errors import InvalidNameError

_SPELLING = {name.lower(): name for name in ("path", "topic", "commitTimeout")}
_PASSED_OVER = frozenset({"includeheaders", "checkpointlocation", "queryname"})
_TIMEOUT = re.compile(r"(?P<number>[0-9]+)\s*(?P<unit>ms|s|m|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 0.001}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a write was asked for."""

    directories: tuple[Path, ...]
    """That serve together, absolute."""
    topic: str | None
    """Where every record goes; None: where its column says."""
    commit_timeout_s: float


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check the options of a write; their names in any case. InvalidOptionError, PipelineError."""
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        if name not in _SPELLING and name not in _PASSED_OVER and not name.startswith("kafka."):
            near = difflib.get_close_matches(name, _SPELLING, n=1)
            hint = f"; did you mean {_SPELLING[near[0]]}?" if near else ""
            raise InvalidOptionError(f"{name}: no option of writing to topicfs{hint}")
    path = options.get("path", "").strip()
    if not path:
        raise InvalidOptionError("path: name a data directory, e.g. option('path', '/srv/topics')")
    return SinkOptions(
        data_directories(path), _topic(options.get("topic")), _timeout_s(options.get("committimeout", "60s"))
    )


def _topic(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        check_topic_name(text)
    except InvalidNameError as error:
        raise InvalidOptionError(f"topic: {error}") from None
    return text


def _timeout_s(text: str) -> float:
    match = _TIMEOUT.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidOptionError(f"commitTimeout: expected e.g. 60s, 2m or 500ms, got {text}")
    return int(match["number"]) * _SECONDS[match["unit"]]
