"""The logs on which the same file operations are measured: ours, the empty filesystem's, and a plain file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.frame.machine import filesystem_type
from benchmarks.frame.question import Case, Conditions, Goal, Side, Unit, WrongResultError
from benchmarks.frame.rounds import SharedRounds
from benchmarks.in_memory import directory_in_memory, touch_memory
from benchmarks.mount.setup.cpu_time import Timing, all_processors, timed
from benchmarks.mount.setup.mounts import (
    EMPTY,
    Mount,
    empty_filesystem,
    empty_filesystem_in_c,
    request_loop_of,
    topicfs,
)


@dataclass(frozen=True, slots=True)
class MeasuredLog:
    """A log, or a plain file in its place."""

    side: str
    path: Path
    size: Callable[[], int]
    """Bytes that it holds or was given, as it reports itself."""
    daemon: int | None = None
    """The process that serves it; None for plain files, which the kernel serves."""
    kept_in: Path | None = None
    """The directory where what is appended is kept in the end; None where nothing is appended, or nothing kept."""

    def appended(self, size: int, work: Callable[[], float]) -> Timing:
        """Time of appending `size` bytes. Raises WrongResultError where they did not arrive."""
        before = self.size()
        if self.kept_in is not None:
            touch_memory(self.kept_in, 2 * size)
        took = timed(work, self.daemon)
        arrived = self.size() - before
        if arrived != size:
            raise WrongResultError(f"{self.path}: {arrived} bytes arrived of {size}")
        return took


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLogs:
    """All of them."""

    ours: MeasuredLog
    empty: MeasuredLog
    native: MeasuredLog
    others: tuple[MeasuredLog, ...] = ()
    """Other empty filesystems: one in C, and one with pyfuse3's own request loop, where topicfs has another."""
    stores: bool = False
    """True if the work stores bytes, which the empty filesystem never does: the least time to move and keep them is that of
    the empty filesystem and of plain files, one after the other."""

    def cases(
        self,
        work: Callable[[MeasuredLog], Timing],
        shown: Display,
        *,
        target: float | None = None,
        floor: float | None = None,
    ) -> Iterator[Case]:
        """Elapsed and processor time of the same work, with the same target as a share of the empty filesystem's.

        With a target follows elapsed time once more, of programs that the scheduler puts where it wants. The floor is only for processor
        time: others on the machine disturb it least. Where bytes are stored it is a share of what moving and storing them
        takes: memory that a virtual machine touches first may cost more than all else.
        """
        least = EMPTY
        shared = {
            log.side: SharedRounds(partial(work, log))
            for log in (self.ours, self.empty, *self.others, self.native)
        }
        beside = tuple(Goal(of=other.side) for other in self.others)
        goal = Goal(of=EMPTY, target=target)
        if self.stores:
            least = f"empty, then {self.native.side}"
            shared[least] = SharedRounds(lambda: work(self.empty).plus(work(self.native)))
        yield Case(
            name=shown.name,
            unit=shown.unit,
            sides=tuple(Side(side, rounds.measure(shown.elapsed)) for side, rounds in shared.items()),
            goals=(goal, *beside),
        )
        yield Case(
            name=shown.name,
            unit=shown.processor_unit,
            sides=tuple(Side(side, rounds.reuse(shown.cpu)) for side, rounds in shared.items()),
            goals=(
                (goal, Goal(of=least, floor=floor), *beside)
                if self.stores
                else (Goal(of=EMPTY, target=target, floor=floor), *beside)
            ),
        )
        if target is None:
            return
        yield Case(
            name=f"{shown.name}, not pinned",
            unit=shown.unit,
            sides=tuple(
                Side(log.side, SharedRounds(partial(_not_pinned, work, log)).measure(shown.elapsed))
                for log in (self.ours, self.empty, *self.others)
            ),
            goals=(Goal(of=EMPTY), *beside),
        )


def _not_pinned(work: Callable[[MeasuredLog], Timing], log: MeasuredLog) -> Timing:
    with all_processors(log.daemon):
        return work(log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """The figures and units that show a timing."""

    name: str
    unit: Unit
    processor_unit: Unit
    figure: Callable[[float], float]
    """The figure for seconds of either kind."""

    def elapsed(self, took: Timing) -> float:
        return self.figure(took.elapsed)

    def cpu(self, took: Timing) -> float:
        return self.figure(took.cpu)


@contextmanager
def logs_for_appends(
    conditions: Conditions, written_bytes: int, *, requests_count: bool = False
) -> Iterator[MeasuredLogs]:
    """A new topic with one partition, the empty filesystem, and a plain file beside the topic's segments.

    In memory, where `written_bytes` find room: the empty filesystem has no disk to wait for either. Where
    `requests_count` there is an empty filesystem in C too, and one with pyfuse3's own request loop unless topicfs has it.
    """
    with ExitStack() as stack:
        directory = stack.enter_context(directory_in_memory(conditions, 2 * written_bytes))
        ours = stack.enter_context(topicfs(directory, directory / "data"))
        (ours.path / "bench").mkdir()
        empty = stack.enter_context(empty_filesystem(directory, like=ours))
        others = []
        if requests_count:
            others.append(stack.enter_context(empty_filesystem_in_c(directory)))
        if requests_count and request_loop_of(ours) != "plain":
            others.append(stack.enter_context(empty_filesystem(directory, like=ours, plain=True)))
        native = directory / "native"
        native.touch()
        log = ours.partition() / "log"
        yield MeasuredLogs(
            ours=MeasuredLog(ours.side, log, lambda: log.stat().st_size, ours.pid, kept_in=directory),
            empty=_empty_log(empty),
            others=tuple(map(_empty_log, others)),
            native=MeasuredLog(
                filesystem_type(directory), native, lambda: native.stat().st_size, kept_in=directory
            ),
            stores=True,
        )


def _empty_log(empty: Mount) -> MeasuredLog:
    return MeasuredLog(empty.side, empty.partition() / "log", _counted(empty), empty.pid)


def _counted(mount: Mount) -> Callable[[], int]:
    written = mount.partition() / "written"
    return lambda: int(written.read_text())
