"""The programs that have files of a mount open, as far as this user may see them: of a root's top everybody's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from topicfs.fusefs.processes.visible import PROC, VisibleProcess, processes

GROUPS = ("@groups", "@queues")


class OpenFile(NamedTuple):
    """A file of a mount that a program has open."""

    program: str
    """Its name and process id, as `cat (4711)`."""
    topics: tuple[str, ...]
    writes: bool


def open_files(mountpoint: Path, proc: Path = PROC) -> Iterator[OpenFile]:
    """Yield the open files of topics under a mount; a program that has one open twice comes twice."""
    prefix = f"{mountpoint}/"
    for process in processes(proc):
        with suppress(OSError):
            for descriptor, path in process.open_files():
                if path.startswith(prefix):
                    with suppress(OSError):
                        yield from _opened(process, descriptor, path[len(prefix) :])


def _opened(process: VisibleProcess, descriptor: str, path: str) -> Iterator[OpenFile]:
    names = path.split("/")
    of_group = names[0] in GROUPS and len(names) > 3
    topics = tuple(names[2].split(",")) if of_group else (names[0],)
    if topics[0].startswith("@") or len(names) < 2:
        return
    writes = not of_group and process.flags(descriptor) & os.O_ACCMODE != os.O_RDONLY
    yield OpenFile(str(process), topics, writes)
