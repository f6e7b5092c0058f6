"""Spark's errors are pages of traces: the one line of them that says what is wrong."""

from __future__ import annotations

import re

from storage.errors import StorageError

_OWN = ("pipeline.errors.", "storage.errors.", "storage.staging.")
"""Where errors are raised that say all in their first line."""


class JobFailedError(StorageError):
    """Spark gave up: with the line that tells why."""


_KAFKA = re.compile(r"\borg\.apache\.kafka\.[\w.]*?(?P<name>\w+): (?P<said>.*?)(?: SQLSTATE: \w+)?$")
"""An error of Kafka's own clients, in whatever line of whatever trace."""
_TOPIC_MISSING = "UnknownTopicOrPartitionException"


def cause(text: str) -> str:
    """The line of Spark's error that says what is wrong: our own error's in a traceback, or Kafka's, else the first.

    What Java threw comes behind a line that says only which call failed.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(_OWN)]
    if own:
        return own[-1].partition(": ")[2]
    kafka = next(filter(None, map(_KAFKA.search, lines)), None)
    if kafka is not None:
        known = "the cluster does not have a topic that was named" if kafka["name"] == _TOPIC_MISSING else ""
        return f"Kafka: {known or kafka['said']} ({kafka['name']})"
    thrown = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return (thrown or lines)[0]
