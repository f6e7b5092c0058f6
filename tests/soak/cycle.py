"""A cycle of the soak test: mount, use the mount under load, unmount, and check the files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import ROOT, Mount
from tests.soak.loads import Seen

SLOW_DISK = "sync .log 0.02\n"
"""Delays each flush of a segment by 0.02 seconds. Only the flushing threads may wait; requests must not."""

PLACES = {
    "write_lines": "busy/0",
    "write_durably": "busy/1",
    "write_from_a_shell": "busy/2",
    "wake_the_blocked": "herd/0",
    "read_records": "busy/0",
    "read_streams": "busy/2",
    "follow_lines": "busy/0",
    "poll_for_lines": "busy/2",
    "signal_readers": "quiet/0",
    "list_directories": "busy/0",
    "probe": "busy/0",
}
"""The partition that each load uses."""
TIMEOUT_SECONDS = 200
"""Timeout in seconds for a load to begin, and to end after the mount, even on a busy machine."""


@dataclass(frozen=True)
class Cycle:
    """The result of one cycle."""

    seen: dict[str, Seen]
    anonymous_kib: tuple[int, int]
    """RssAnon of the daemon in KiB, at the beginning and before the end."""


def run_cycle(base: Path, *, seconds: float, **options: Any) -> Cycle:
    """Mount in `base`, run every load, end the mount during the loads, mount again and check.

    The mount lasts at least `seconds`, and until each load has counted something. Raises AssertionError.
    """
    base.mkdir(exist_ok=True)
    mount = Mount(base, **options)
    try:
        mount.start()
        mount.faults.write_text(SLOW_DISK)
        assert "" == mount.bash("mkdir busy herd quiet && mkdir busy/2").stderr
        before = _anonymous_kib(mount.pid)
        begun = base / "begun"
        begun.mkdir()
        with _loads(mount.path, begun) as processes:
            _watch(mount, processes, begun, time.monotonic() + seconds)
            after = _anonymous_kib(mount.pid)
            assert 0 == mount.stop()
            seen = {name: _outcome(name, process) for name, process in processes.items()}
        mount.faults.unlink()
        mount.start()
        for name, counted in seen.items():
            _check_lines(mount.path / PLACES[name] / "log", counted)
        assert 0 == mount.stop()
        _check_logs(base)
        return Cycle(seen, (before, after))
    finally:
        mount.clean_up()


def _watch(mount: Mount, processes: dict[str, subprocess.Popen[str]], begun: Path, deadline: float) -> None:
    """Wait until the deadline and until each load has made its file in `begun`; fail if a process ends."""

    def is_over() -> bool:
        assert mount.daemon is not None
        assert mount.daemon.poll() is None, mount.log
        for name, process in processes.items():
            assert process.poll() is None, f"{name} ended early: {process.communicate()}"
        return processes.keys() <= set(os.listdir(begun)) and time.monotonic() >= deadline

    timeout_seconds = deadline - time.monotonic() + TIMEOUT_SECONDS
    wait_until(
        is_over, f"all loads have a file in {begun}", timeout_seconds=timeout_seconds, pause_seconds=0.2
    )


@contextmanager
def _loads(mount: Path, begun: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Start each load in its own process; after the `with` block, kill the loads that still run."""
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-m", "tests.soak.loads", name, str(mount), place, str(begun / name)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, place in PLACES.items()
    }
    try:
        yield processes
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()


def _outcome(name: str, process: subprocess.Popen[str]) -> Seen:
    out, error = process.communicate(timeout=TIMEOUT_SECONDS)
    assert 0 == process.returncode, f"{name}: {error}"
    seen: Seen = json.loads(out)
    return seen


def _check_lines(log: Path, counted: Seen) -> None:
    """Check that all lines whose write returned are there once and in order. The last line may be partial."""
    if "written" not in counted:
        return
    written, tried = int(counted["written"]), int(counted["tried"])
    count, wrong = 0, -1
    with log.open("rb") as lines:  # Read line by line, because a long run has too many lines for memory.
        for count, line in enumerate(lines, 1):
            if wrong < 0 and line != b"%d\n" % (count - 1):
                wrong = count
    assert written <= count <= tried, f"{log}: {count} lines, {written} answered, {tried} tried"
    # The last line may be from a write that was cut short.
    assert wrong in {-1, count}, f"{log}: line {wrong} of {count} differs from the written line"


def _check_logs(base: Path) -> None:
    for log in base.glob("daemon*.log"):
        assert "Traceback" not in log.read_text(), f"{log}: {log.read_text()[-2000:]}"


def _anonymous_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
