"""A file system on the machine's disk, whose calls fail as a control file says."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

from topicfs.storage.disk.native import NativeFileSystem


class FaultyFile:
    """A file whose calls fail while a line of the control file, such as `pwrite .log ENOSPC`, matches.

    A number instead of an errno delays the calls by that many seconds; `hangs` blocks them for as long as the control
    file exists. A line that ends with a directory (`pwrite .log EIO /disk1/data`) applies only to files in that
    directory.
    """

    def __init__(self, file: Any, control: Path) -> None:
        self._file = file
        self._control = control

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def _fail(self, call: str) -> None:
        try:
            lines = self._control.read_text().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            wanted, suffix, fault, *directory = line.split(" ")
            path = self._file.path
            if wanted != call or not path.name.endswith(suffix):
                continue
            if directory and Path(*directory) not in path.parents:
                continue
            if fault == "hangs":
                while self._control.exists():
                    time.sleep(0.02)  # Behave like a disk that does not answer.
                continue
            if not fault.startswith("E"):
                time.sleep(float(fault))
                continue
            raise OSError(getattr(errno, fault), f"{call} fails for this test")

    def pwrite(self, *arguments: Any) -> None:
        self._fail("pwrite")
        self._file.pwrite(*arguments)

    def append(self, *arguments: Any) -> None:
        self._fail("pwrite")
        self._file.append(*arguments)

    def sync(self) -> None:
        self._fail("sync")
        self._file.sync()


class FaultyFileSystem(NativeFileSystem):
    """The machine's file system, with the faults of the control file."""

    def __init__(self, control: Path) -> None:
        super().__init__()
        self._control = control

    def open(self, path: Path, **options: Any) -> Any:
        return FaultyFile(super().open(path, **options), self._control)
