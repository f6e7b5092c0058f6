"""`python -m tests.soak replicas [--kills N] [--seed N]`: a mount over replicas is killed repeatedly.

Four shells append to a topic and two programs follow it. Either each of two or three directories has a replica of the
topic, or only two of three directories have one. Meanwhile the disk of one directory fills up or fails for a while,
or a replica moves. The daemon is killed at a random moment, or just before its n-th rename, removal, truncation or
opening of a file. Such a call may belong to a start, a roll, an election or the return of a disk. After each kill
every line whose append returned is stored once and in order, and the lines that a follower got are stored without a
gap. Once the replicas are in sync, their files are equal.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount
from tests.soak import kept_if_failed, say
from tests.soak.kills import AIMS

SHELLS, FOLLOWERS = 4, 2
LIVES = 25
"""After this many kills the run starts again with empty directories, because each check reads all lines."""
FARTHEST = {"rename": 200, "removal": 60, "truncation": 100, "opening": 1000}
"""Maximum n for each operation: about as many operations as one daemon makes."""
SHELL = 'n=0; while echo "$WHO $n" >> "$LOG"; do n=$((n + 1)); done 2> "$ERRORS"; echo $n'
GONE = (
    "Transport endpoint is not connected",
    "Software caused connection abort",
    "No such file or directory",
)
"""Errors that a shell prints after the daemon was killed."""
TIMEOUT_SECONDS = 120


@dataclass
class Kills:
    """The results of all kills."""

    killed: Counter[str] = field(default_factory=Counter)
    """Number of kills, by the operation at which the kill was to happen."""
    stage: Counter[str] = field(default_factory=Counter)
    """Number of kills while the daemon started and while it served."""
    disturbed: Counter[str] = field(default_factory=Counter)
    """Number of daemon runs in which a disk failed or a replica moved, by kind."""
    answered: int = 0
    """Number of lines whose append returned."""
    followed: int = 0
    """Number of lines that followers read."""


class KilledMount:
    """A mount over replicated directories, and the lines that the mount's topic must have."""

    def __init__(self, base: Path, directories: int, replicas: int, chance: random.Random) -> None:
        base.mkdir()
        self._chance = chance
        self.directories = [base / f"d{number}" for number in range(directories)]
        self.mount = Mount(
            base,
            directories=",".join(map(str, self.directories)),
            replicated=True,
            engine={"replication_factor": replicas, "creation_overrides": OVERRIDES},
        )
        self._replicas = replicas
        self.lines: list[str] = []
        """All lines, in the order in which they were found last."""
        self._life = 0

    def live(self, kills: Kills) -> None:
        """Start, compare with the expected lines, append and follow until the daemon is killed.

        Raises AssertionError.
        """
        aim = self._chance.choice(["moment", "moment", *AIMS])
        if not self._start(aim):
            kills.killed[aim] += 1
            kills.stage["starting"] += 1
            return
        with suppress(OSError):  # The daemon may have been killed already.
            (self.mount.path / "orders").mkdir(exist_ok=True)
        with self._follow() as followers, self._append() as shells:
            with suppress(OSError):  # The daemon may have been killed already.
                self._wait_until_in_sync()
            kills.disturbed[self._disturb()] += 1
            with suppress(OSError):
                kills.disturbed["move"] += self._move()
            self._kill(aim, shells)
            (self.mount.base / "faults").unlink(missing_ok=True)
            kills.killed[aim] += 1
            kills.stage["serving"] += 1
            counts = [int(shell.communicate(timeout=TIMEOUT_SECONDS)[0]) for shell in shells]
            seen = [follower.communicate(timeout=TIMEOUT_SECONDS)[0] for follower in followers]
        kills.answered += sum(counts)
        kills.followed += sum(text.count("\n") for text in seen)
        self.mount.clean_up()
        self._check_errors()
        self.mount.start()
        self._check(counts, seen)
        if self._chance.random() < 0.5:
            self._stop()
        else:
            self.mount.kill()
        self.mount.clean_up()

    def close_in_order(self) -> None:
        """Start the daemon and unmount cleanly; the expected lines must be there."""
        self.mount.start()
        self._wait_until_in_sync()
        assert self.lines == self._read()
        self._stop()
        self.mount.clean_up()

    def _stop(self) -> None:
        """Unmount, which cuts off the indexes' unused slots, so that the replicas are equal byte for byte."""
        assert 0 == self.mount.stop()
        if self.lines:
            self._check_equal()
        logs = "".join(path.read_text() for path in self.mount.base.glob("daemon*.log"))
        assert "Traceback" not in logs, logs

    def _start(self, aim: str) -> bool:
        """Start the daemon; return False if it was killed before it served."""
        self._life += 1
        if aim != "moment":
            number = self._chance.randint(1, FARTHEST[aim])
            number = number // 10 + 1 if self._chance.random() < 0.4 else number
            self.mount.options["dies"] = f"{aim} {number}"
        try:
            self.mount.start()
        except AssertionError:
            assert self.mount.daemon is not None
            if aim == "moment" or self.mount.daemon.poll() != -9:
                raise
            self.mount.log_file.unlink(missing_ok=True)
            self.mount.clean_up()
            return False
        finally:
            self.mount.options.pop("dies", None)
        return True

    @contextmanager
    def _append(self) -> Iterator[list[subprocess.Popen[str]]]:
        with _ended(
            subprocess.Popen(
                ["bash", "-c", SHELL],
                env={
                    "LOG": str(self.mount.path / "orders" / "0" / "log"),
                    "WHO": f"{self._life}.{number}",
                    "ERRORS": str(self.mount.base / f"errors{number}"),
                    "PATH": os.environ["PATH"],
                    "LC_ALL": "C.UTF-8",
                },
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(SHELLS)
        ) as shells:
            yield shells

    @contextmanager
    def _follow(self) -> Iterator[list[subprocess.Popen[str]]]:
        with _ended(
            subprocess.Popen(
                ["cat", str(self.mount.path / "orders" / "0" / "follow")],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for _ in range(FOLLOWERS)
        ) as followers:
            yield followers

    def _disturb(self) -> str:
        """In half of the daemon's runs, let the disk of one directory fail or fill up."""
        kind = self._chance.choice(("nothing", "nothing", "EIO", "ENOSPC"))
        if kind != "nothing":
            place = self._chance.choice(self.directories)
            self.mount.faults.write_text(f"pwrite .log {kind} {place}\n")
        return kind

    def _move(self) -> bool:
        """In most of the daemon's runs, move a replica to a directory without one; return whether a move began."""
        path = self.mount.path / "orders" / "replicas"
        places = [line.split()[3] for line in path.read_text().splitlines() if "arriving" not in line]
        others = [one for one in map(str, self.directories) if one not in places]
        if not others or self._chance.random() < 0.2:
            return False
        path.write_text(f"move 0 {self._chance.choice(others)} {self._chance.choice(places)}\n")
        return True

    def _kill(self, aim: str, shells: Sequence[subprocess.Popen[str]]) -> None:
        """Kill the daemon after a while, unless it already died at the operation `aim`. The shells run until then."""
        daemon = self.mount.daemon
        assert daemon is not None
        lives_seconds = 0.1 + self._chance.random() * 1.2 if aim == "moment" else 2.5
        heals_seconds = min(lives_seconds, self._chance.random() * 1.5)
        with suppress(subprocess.TimeoutExpired):
            daemon.wait(heals_seconds)
        if heals_seconds < lives_seconds:
            self.mount.faults.unlink(missing_ok=True)
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(lives_seconds - heals_seconds)
        ended = [shell.poll() for shell in shells]
        if daemon.poll() is None:
            assert [None] * SHELLS == ended, f"a shell ended before the daemon: {self._errors()}"
        self.mount.kill()

    def _errors(self) -> list[str]:
        return [path.read_text() for path in sorted(self.mount.base.glob("errors*"))]

    def _check_errors(self) -> None:
        for text in self._errors():
            assert any(words in text for words in GONE), text

    def _check(self, counts: list[int], seen: list[str]) -> None:
        """Check that earlier lines, this run's acknowledged lines and all lines that followers got are there."""
        self._wait_until_in_sync()
        found = self._read()
        before, new = found[: len(self.lines)], found[len(self.lines) :]
        assert self.lines == before, "lines that were found earlier are missing or changed"
        for number, answered in enumerate(counts):
            who = f"{self._life}.{number}"
            mine = [line for line in new if line.startswith(f"{who} ")]
            expected = [f"{who} {n}" for n in range(answered)]
            # A line whose append was in progress may be there, too.
            assert mine in (expected, [*expected, f"{who} {answered}"]), (
                f"{who}: {answered} lines were acknowledged, {len(mine)} are in the log"
            )
        assert {line.split(".")[0] for line in new} <= {str(self._life)}
        for text in seen:
            lines = text.split("\n")[:-1]
            if lines:
                assert lines[0] in found, f"a follower got a line that is not in the log: {lines[0]}"
                first = found.index(lines[0])
                assert lines == found[first : first + len(lines)], (
                    "a follower got other lines than the log has"
                )
        self.lines = found

    def _wait_until_in_sync(self) -> None:
        def in_sync() -> bool:
            path = self.mount.path / "orders" / "replicas"
            roles = [line.split()[4] for line in path.read_text().splitlines()]
            return sorted(roles) == ["in_sync"] * (self._replicas - 1) + ["leader"]

        if (self.mount.path / "orders").exists():
            wait_until(in_sync, "all replicas are in sync", timeout_seconds=TIMEOUT_SECONDS)

    def _read(self) -> list[str]:
        log = self.mount.path / "orders" / "0" / "log"
        return log.read_text().splitlines() if log.parent.exists() else []

    def _check_equal(self) -> None:
        partitions = [directory / "orders-0" for directory in self.directories]
        first, *others = [_files(partition) for partition in partitions if partition.exists()]
        assert first
        assert self._replicas == 1 + len(others)
        for other in others:
            differs = sorted(name for name in first | other if first.get(name) != other.get(name))
            assert not differs, f"replicas differ: {differs}"


OVERRIDES = {"internal.segment.bytes": "20000", "file.delete.delay.ms": "0"}


def _files(partition: Path) -> dict[str, bytes]:
    """Return the files of a partition by name."""
    return {
        path.name: path.read_bytes()
        for path in partition.iterdir()
        if path.suffix in {".log", ".index", ".timeindex"}
    }


@contextmanager
def _ended(processes: Iterator[subprocess.Popen[str]]) -> Iterator[list[subprocess.Popen[str]]]:
    """After the block, kill the processes that still run."""
    started = list(processes)
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def run_kills(base: Path, count: int, seed: int) -> Kills:
    """Kill `count` daemons, alternately over two and three directories (blocking).

    Continues until a line was acknowledged and followed. Raises AssertionError.
    """
    chance, kills, place = random.Random(seed), Kills(), 0
    while kills.killed.total() < count or not (kills.answered and kills.followed):
        home = base / str(place)
        directories, replicas = ((2, 2), (3, 3), (3, 2))[place % 3]
        killed = KilledMount(home, directories, replicas, chance)
        try:
            for _ in range(max(1, min(LIVES, count - kills.killed.total()))):
                killed.live(kills)
            killed.close_in_order()
        finally:
            killed.mount.clean_up()
        shutil.rmtree(home)
        place += 1
    return kills


def main() -> None:
    """Kill many daemons."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak replicas", description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="which kills")
    asked = parser.parse_args()
    with kept_if_failed() as base:
        kills = run_kills(base, asked.kills, asked.seed)
    say(
        f"{kills.killed.total()} kills, aimed at {dict(kills.killed)}; while {dict(kills.stage)}; disks failed in "
        f"{dict(kills.disturbed)}; {kills.answered} lines answered, none lost or doubled; {kills.followed} followed"
    )


if __name__ == "__main__":
    main()
