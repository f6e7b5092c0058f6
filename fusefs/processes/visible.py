"""The processes whose open files this user may see. Root sees all processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


class VisibleProcess:
    """A process, by its directory in /proc. Methods raise OSError if it has ended or belongs to another user."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.pid = directory.name

    @property
    def program(self) -> str:
        """The name of the process's program, such as `cat`. Bytes that are not UTF-8 are escaped."""
        return (self._directory / "comm").read_text("utf-8", errors="backslashreplace").strip()

    def __str__(self) -> str:
        """Return program and process ID, such as `cat (4711)`."""
        return f"{self.program} ({self.pid})"

    def open_files(self) -> Iterator[tuple[str, str]]:
        """Yield the number and the path of each descriptor."""
        for descriptor in (self._directory / "fd").iterdir():
            with suppress(OSError):  # The descriptor was closed since it was listed.
                yield descriptor.name, str(descriptor.readlink())

    def flags(self, descriptor: str) -> int:
        lines = (self._directory / "fdinfo" / descriptor).read_text().splitlines()
        return next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))

    def is_inside(self, directory: str) -> bool:
        """Return whether `directory` contains the process's working directory or one of its open files."""
        places = [str((self._directory / "cwd").readlink()), *(path for _, path in self.open_files())]
        return any(f"{place}/".startswith(f"{directory}/") for place in places)


def processes(proc: Path = PROC) -> Iterator[VisibleProcess]:
    yield from (VisibleProcess(one) for one in proc.iterdir() if one.name.isdecimal())
