"""`python -m tests.soak mount [--seconds N] [--cycle N]`: run cycles of loads and print a line for each cycle.

With `--full-disk tmpfs|ext4` the run instead mounts topics on a disk of 64 MB and keeps this disk full (needs root).
"""

from __future__ import annotations

import argparse
import time

from tests.fusefs.mounted import conftest
from tests.soak import kept_if_failed, say
from tests.soak.cycle import run_cycle
from tests.soak.full_disk import keep_full

TIMEOUT_SECONDS = 300
"""Timeout for operations that usually take a second, because a shared machine is sometimes slow for minutes."""


def main() -> None:
    """Run cycles until the time is over; the files of a failed cycle stay at the printed path."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak mount", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600, help="seconds for all cycles together")
    parser.add_argument("--cycle", type=float, default=60, help="seconds of each mount")
    parser.add_argument("--full-disk", choices=("tmpfs", "ext4"), help="keep a disk of 64 MB full instead")
    asked = parser.parse_args()
    conftest.TIMEOUT_SECONDS = TIMEOUT_SECONDS
    if asked.full_disk:
        with kept_if_failed() as base:
            say(str(dict(keep_full(base, seconds=asked.seconds, kind=asked.full_disk))))
    else:
        _run_cycles(asked.seconds, asked.cycle)
    say("nothing found")


def _run_cycles(seconds: float, cycle_seconds: float) -> None:
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        with kept_if_failed() as base:
            cycle = run_cycle(base, seconds=cycle_seconds)
        told = {name: round(value, 3) for seen in cycle.seen.values() for name, value in seen.items()}
        slowest = {
            name: round(seen["slowest_seconds"], 3)
            for name, seen in cycle.seen.items()
            if "slowest_seconds" in seen
        }
        say(f"{passed:6.0f} s  {told}  slowest {slowest}  RssAnon {cycle.anonymous_kib} KiB")


if __name__ == "__main__":
    main()
