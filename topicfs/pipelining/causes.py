"""Spark's errors are pages of traces: the one line of them that says what is wrong."""

from __future__ import annotations

from storage.errors import StorageError

_OWN = ("pipeline.errors.", "storage.errors.", "storage.staging.")
"""Where errors are raised that say all in their first line."""


class JobFailedError(StorageError):
    """Spark gave up: with the line that tells why."""


def cause(text: str) -> str:
    """The line of Spark's error that says what is wrong: that of our own error in a traceback, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(_OWN)]
    return own[-1].partition(": ")[2] if own else lines[0]
