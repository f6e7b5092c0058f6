"""The reason why a daemon refused a request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from topicfs.fusefs.forms import FormError
from topicfs.fusefs.times import written
from topicfs.storage.disk.native import system_clock
from topicfs.storage.errors import StorageError


@contextmanager
def explained(mountpoint: Path, name: str) -> Iterator[None]:
    """Raise the newest reason that `@status` shows for an error at the path `name`, if it came since the block began.

    If the reason names a line of the write, raise FormError. Another program's error at the same path looks the same.
    """
    began = written(system_clock())
    try:
        yield
    except OSError as error:
        text = ""
        with suppress(OSError):
            text = (mountpoint / "@status").read_text(encoding="utf-8")
        line = rf"(?m)^(\S+) error {re.escape(name)}: (?:line (\d+): )?(.*?)(?: \(\d+ times\))?$"
        told = [one.groups() for one in re.finditer(line, text) if one[1] >= began]
        if not told:
            raise
        _, number, reason = told[-1]
        raise (FormError(int(number), reason) if number else StorageError(reason)) from error
