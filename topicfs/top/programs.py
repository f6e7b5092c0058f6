"""The programs that have files of a mount open, as far as this user may see them: of a root's top everybody's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROCESSES = Path("/proc")
GROUPS = ("@groups", "@queues")


class OpenFile(NamedTuple):
    """A file of a mount that a program has open."""

    program: str
    """Its name and process id, as `cat (4711)`."""
    topics: tuple[str, ...]
    writes: bool


def open_files(mountpoint: Path, processes: Path = PROCESSES) -> Iterator[OpenFile]:
    """Yield the open files of topics under a mount; a program that has one open twice comes twice."""
    prefix = f"{mountpoint}/"
    for process in processes.iterdir():
        if not process.name.isdecimal():
            continue
        with suppress(OSError):  # It has ended, or is another user's.
            for descriptor in (process / "fd").iterdir():
                with suppress(OSError):
                    path = str(descriptor.readlink())
                    if path.startswith(prefix):
                        yield from _opened(process, descriptor.name, path[len(prefix) :])


def _opened(process: Path, descriptor: str, path: str) -> Iterator[OpenFile]:
    names = path.split("/")
    of_group = names[0] in GROUPS and len(names) > 3
    topics = tuple(names[2].split(",")) if of_group else (names[0],)
    if topics[0].startswith("@") or len(names) < 2:
        return
    name = (process / "comm").read_text(errors="backslashreplace").strip()
    flags = next(
        int(line.split()[1], 8)
        for line in (process / "fdinfo" / descriptor).read_text().splitlines()
        if line.startswith("flags:")
    )
    writes = not of_group and flags & os.O_ACCMODE != os.O_RDONLY
    yield OpenFile(f"{name} ({process.name})", topics, writes)
