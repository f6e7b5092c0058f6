"""The three places where the same file operations are measured, and what each of them says it was given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.frame.machine import filesystem_type
from benchmarks.frame.question import Conditions, Side, WrongResultError
from benchmarks.in_memory import directory_in_memory
from benchmarks.mount.mounts import Mount, empty_filesystem, topicfs


@dataclass(frozen=True, slots=True)
class Place:
    """A file that takes appends, and how many bytes it was given so far by its own account."""

    side: str
    log: Path
    written: Callable[[], int]

    def checked(self, size: int, seconds: Callable[[], float]) -> float:
        """Run what appends `size` bytes; its seconds. Raises WrongResultError where they did not arrive."""
        before = self.written()
        elapsed = seconds()
        arrived = self.written() - before
        if arrived != size:
            raise WrongResultError(f"{self.log}: {arrived} bytes arrived of {size}")
        return elapsed


@dataclass(frozen=True, slots=True)
class Places:
    """All three."""

    ours: Place
    empty: Place
    native: Place

    def sides(self, measure: Callable[[Place], float]) -> tuple[Side, ...]:
        """Measure the same at each of them."""
        return tuple(
            Side(place.side, lambda place=place: measure(place))  # type: ignore[misc] # the default binds the loop's place
            for place in (self.ours, self.empty, self.native)
        )


@contextmanager
def append_places(conditions: Conditions, written_bytes: int) -> Iterator[Places]:
    """A new topic with one partition, the empty filesystem, and a plain file beside the topic's segments.

    In memory, where `written_bytes` find room: the empty filesystem has no disk to wait for either.
    """
    with ExitStack() as stack:
        directory = stack.enter_context(directory_in_memory(conditions, 2 * written_bytes))
        ours = stack.enter_context(topicfs(directory, directory / "data"))
        (ours.path / "bench").mkdir()
        empty = stack.enter_context(empty_filesystem(directory, like=ours))
        native = directory / "native"
        native.touch()
        yield Places(
            _logged(ours),
            Place(empty.side, empty.partition() / "log", _counted(empty)),
            Place(filesystem_type(directory), native, lambda: native.stat().st_size),
        )


def _logged(mount: Mount) -> Place:
    """What every reader of the log may see from now on: its exact size."""
    log = mount.partition() / "log"
    return Place(mount.side, log, lambda: log.stat().st_size)


def _counted(mount: Mount) -> Callable[[], int]:
    written = mount.partition() / "written"
    return lambda: int(written.read_text())
