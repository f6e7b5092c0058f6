"""The reason why a daemon refused a write."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from topicfs.fusefs.times import written
from topicfs.storage.disk.native import system_clock
from topicfs.storage.errors import StorageError

_TOLD = frozenset({errno.EINVAL, errno.EMSGSIZE, errno.EIO, errno.EAGAIN, errno.EPERM})
"""Errors of which `@status` has the reason."""


@contextmanager
def explained(mountpoint: Path, name: str) -> Iterator[None]:
    """Raise the reason that `@status` has for an error at the file `name`, where it has one of this moment."""
    began = written(system_clock())
    try:
        yield
    except OSError as error:
        lines: list[str] = []
        if error.errno in _TOLD:
            with suppress(OSError):
                lines = (mountpoint / "@status").read_text(encoding="utf-8").splitlines()
        told = [line.partition(f" error {name}: ")[2] for line in lines if line[: len(began)] >= began]
        reason = next(filter(None, reversed(told)), None)
        if reason is None:
            raise
        raise StorageError(re.sub(r" \(\d+ times\)$", "", reason)) from error
