"""`python -m tests.soak work [--records N] [--seconds N] [--workers N] [--jobs N] [--seed N]`: kill workers at random.

`topicfs work` runs a command for each record of a queue through a mount. Each command takes longer than a lease that
is not renewed. Workers are killed with kill -9 at random moments and replaced. In the end the queue is empty, and
each record was done by a single command, unless the worker of an earlier command was killed.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Self

from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from tests.fusefs.mounted.conftest import Mount
from tests.soak import say

COMMAND = 'echo "begin $TOPICFS_OFFSET $PPID" >> "$1"; sleep "$2"; echo "end $TOPICFS_OFFSET $PPID" >> "$1"'
LOOK_EVERY_SECONDS = 0.2
PROGRAM = Path(sys.executable).with_name("topicfs")
GROUP, TOPIC = "jobs", "orders"


class WorkedQueue:
    """A queue of a mount, and the queue's workers."""

    def __init__(self, base: Path, *, records: int, seconds: float, jobs: int) -> None:
        self.log = base / "runs.log"
        self.log.touch()
        self._records = records
        self._mount = Mount(base)
        self._options = ["--data", str(self._mount.data), "--jobs", str(jobs)]
        self._command = ["sh", "-c", COMMAND, "sh", str(self.log), str(seconds)]
        self._workers: list[subprocess.Popen[bytes]] = []
        self.killed: set[int] = set()

    def __enter__(self) -> Self:
        self._mount.start()
        lines = "".join(f"{number}\n" for number in range(self._records))
        (self._mount.path / TOPIC).mkdir()
        (self._mount.path / TOPIC / "0" / "log").write_text(lines)
        (self._mount.path / "@queues" / GROUP).mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()
        self._mount.clean_up()

    def begin(self) -> None:
        """Start another worker."""
        self._workers.append(self._work(*self._options))

    def kill(self, chance: random.Random) -> None:
        """Kill a worker with kill -9 and start another one; the killed worker's command continues."""
        worker = self._workers.pop(chance.randrange(len(self._workers)))
        worker.kill()
        worker.wait()
        self.killed.add(worker.pid)
        self.begin()

    def is_done(self) -> bool:
        """Return whether each record was done; raises AssertionError if a worker has ended."""
        assert all(worker.poll() is None for worker in self._workers), "a worker ended"
        return len({offset for what, offset, _ in self._runs() if what == "end"}) == self._records

    def end(self) -> Counter[str]:
        """End the workers, check the results, and return how often each thing happened. Raises AssertionError."""
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        statuses = {worker.wait() for worker in self._workers}
        # SIGTERM kills a worker that has only just started.
        assert statuses <= {0, -signal.SIGTERM}, statuses
        assert 0 == self._work(*self._options, "--drain").wait(), "the remaining records could not be done"
        began = [(offset, worker) for what, offset, worker in self._runs() if what == "begin"]
        living = Counter(offset for offset, worker in began if worker not in self.killed)
        assert max(living.values(), default=0) <= 1, f"done twice by living workers: {living.most_common(3)}"
        assert set(range(self._records)) == {offset for what, offset, _ in self._runs() if what == "end"}
        return Counter({"records": self._records, "runs": len(began), "kills": len(self.killed)})

    def _work(self, *options: str) -> subprocess.Popen[bytes]:
        command = [str(PROGRAM), "work", *options, GROUP, TOPIC, "--", *self._command]
        return subprocess.Popen(command)

    def _runs(self) -> list[tuple[str, int, int]]:
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [(what, int(offset), int(worker)) for what, offset, worker in lines]


def kill_workers(
    base: Path, *, records: int, seconds: float, workers: int, jobs: int, seed: int
) -> Counter[str]:
    """Let workers run all records, and kill about one worker during each command; return the counts."""
    chance = random.Random(seed)
    with WorkedQueue(base, records=records, seconds=seconds, jobs=jobs) as queue:
        for _ in range(workers):
            queue.begin()
        while not queue.is_done():
            until = time.monotonic() + chance.expovariate(1 / seconds)
            wait_until(
                lambda until=until: time.monotonic() >= until or queue.is_done(),
                "a worker is killed",
                timeout_seconds=until + TIMEOUT_SECONDS - time.monotonic(),
                pause_seconds=LOOK_EVERY_SECONDS,
            )
            if not queue.is_done():
                queue.kill(chance)
        return queue.end()


def main() -> None:
    """Do all records, and print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=200, help="number of records")
    parser.add_argument("--seconds", type=float, default=90, help="seconds that a command takes")
    parser.add_argument("--workers", type=int, default=4, help="number of workers at a time")
    parser.add_argument("--jobs", type=int, default=1, help="number of commands that a worker runs at a time")
    parser.add_argument("--seed", type=int, default=1, help="seed of the kills")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="topicfs-work-") as base:
        say(str(dict(kill_workers(Path(base), **vars(given)))))


if __name__ == "__main__":
    main()
