"""`python -m tests.soak kills [--kills N] [--seed N]`: a process that owns a data directory is killed repeatedly.

The owner appends to a plain and a compacted topic, with a roll every few batches and all duties (checkpoints,
retention, compaction) after each append, and finally closes cleanly. The owner is killed at a random moment, or just
before its n-th rename, removal, truncation or opening of a file. Such a call may belong to a recovery, a roll, a
checkpoint, a compaction or a close. After each kill a copy of the directory is opened and checked: every acknowledged
record is there once, in its place; retention removes nothing; `topicfs check` finds nothing. The next owner continues
with the directory of the killed owner.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.ours import read_records
from tests.soak import kept_if_failed, say
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.replication import EmbeddedEngine, open_engine
from topicfs.storage.codec.records import encode
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.model import Offset, Record

APPENDS = 40
"""Appends of one owner before it closes cleanly, if it is not killed."""
KEYS = 5
TIMEOUT_SECONDS = 300
AIMS = {"rename": "os.rename", "removal": "os.remove", "truncation": "os.truncate", "opening": "open"}
"""Operations at which an owner can be killed, and the audit events that Python raises just before the operations."""
FARTHEST = {"rename": 400, "removal": 150, "truncation": 400, "opening": 2000}
"""Largest n for each operation: a process is killed at its n-th operation, and n is random up to this number.

It is about the number of such operations of a process that is not killed.
"""
CONFIG = EngineConfig(
    recovery_threads=1, topic_defaults=TopicConfig(segment_index_bytes=1200, index_interval_bytes=64)
)
SMALL = {"internal.segment.bytes": "400", "file.delete.delay.ms": "0"}
OVERRIDES = {
    "plain": SMALL,
    "compacted": {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
}


# The owner's process.


def own(data: Path) -> None:
    """Work until killed or done; print a dot for each append that both topics have acknowledged."""
    engine = open_engine(data, config=CONFIG)
    for name, overrides in OVERRIDES.items():
        if name not in engine.topics():
            engine.create_topic(name, overrides=overrides)
    os.write(1, b"o")
    for _ in range(APPENDS):
        for name in OVERRIDES:
            partition = engine.partition(name, 0)
            end_offset = partition.offsets().log_end_offset
            partition.append(encode([record(end_offset)]))
        os.write(1, b".")
        engine.maintain_now(system_clock())
    engine.close()
    os.write(1, b"c")


def record(offset: Offset) -> Record:
    """Return the record that both topics have at an offset."""
    return Record(offset, system_clock(), b"key %d" % (offset % KEYS), b"value %d" % offset)


def die_at(kind: str, number: int) -> None:
    """Kill this process with SIGKILL just before its n-th operation of a kind."""
    left = [number]

    def look(event: str, arguments: tuple[object, ...]) -> None:
        if event == AIMS[kind]:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


# The process that kills the owners.


@dataclass
class Kills:
    """The results of all kills."""

    killed: Counter[str] = field(default_factory=Counter)
    """Number of kills, by the operation at which the kill was to happen."""
    stage: Counter[str] = field(default_factory=Counter)
    """Number of kills while the owner was opening, working or closing, and of owners that were not killed."""
    answered: int = 0
    """Number of acknowledged appends."""


def run_kills(base: Path, count: int, seed: int) -> Kills:
    """Kill `count` owners below `base`, and continue until at least one append was acknowledged (blocking).

    Raises AssertionError.
    """
    chance, kills, data, answered = random.Random(seed), Kills(), base / "data", 0
    while kills.killed.total() < count or not kills.answered:
        aim = chance.choice(["moment", *AIMS])
        told, code = run_owner(data, aim, chance)
        answered += told.count(b".")
        kills.answered += told.count(b".")
        if code == -signal.SIGKILL:
            kills.killed[aim] += 1
            kills.stage[stage_of(told)] += 1
        else:
            assert (0, b"c") == (code, told[-1:]), f"{aim}: the owner ended by itself: {told!r}"
            kills.stage["lived"] += 1
        look_at_a_copy(data, base / "copy", answered)
        if kills.killed.total() % 25 == 0 and code == -signal.SIGKILL:
            # Start with a new directory before reading the old one takes too long.
            shutil.rmtree(data)
            answered = 0
    return kills


def stage_of(told: bytes) -> str:
    if b"o" not in told:
        return "opening"
    return "closing" if told.count(b".") == APPENDS else "working"


def run_owner(data: Path, aim: str, chance: random.Random) -> tuple[bytes, int]:
    """Run an owner; return its output and its exit status."""
    number = 0 if aim == "moment" else chance.randint(1, FARTHEST[aim])
    # Prefer small numbers, which are operations of the recovery at the start.
    number = number // 10 + 1 if aim != "moment" and chance.random() < 0.3 else number
    words = ("--own", str(data), "--aim", aim, "--number", str(number))
    command = [sys.executable, "-m", "tests.soak.kills", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as owner:
        assert owner.stdout is not None
        told = b""
        if aim == "moment":
            readable, _, _ = select.select([owner.stdout], [], [], TIMEOUT_SECONDS)
            assert readable, "the owner printed nothing"
            time.sleep(chance.random() * 1.5)
            owner.kill()
        told += owner.stdout.read()
        return told, owner.wait(TIMEOUT_SECONDS)


def look_at_a_copy(data: Path, copy: Path, answered: int) -> None:
    """Open a copy as the next owner would, and compare it with the acknowledged records."""
    if not data.exists():
        assert not answered
        return
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(data, copy)
    (copy / ".lock").unlink(missing_ok=True)
    engine = open_engine(copy, config=CONFIG)
    try:
        if len(engine.topics()) == len(OVERRIDES):
            check_records(engine, answered)
            before = engine.partition("plain", 0).offsets()
            engine.maintain_now(system_clock())
            assert before.log_start_offset == engine.partition("plain", 0).offsets().log_start_offset == 0
            check_records(engine, answered)
        else:
            assert not answered
    finally:
        engine.close()
    found = list(DirectoryCheck(copy, NativeFileSystem(read_only=True)).findings())
    assert not found, f"{found}"


def check_records(engine: EmbeddedEngine, answered: int) -> None:
    for name in OVERRIDES:
        partition = engine.partition(name, 0)
        assert "online" == partition.status().state
        end_offset = partition.offsets().log_end_offset
        assert end_offset >= answered, (
            f"{name}: ends at {end_offset}, but {answered} appends were acknowledged"
        )
        found = [(one.offset, one.key, one.value) for one in read_records(partition)]
        expected = [(at, b"key %d" % (at % KEYS), b"value %d" % at) for at in range(end_offset)]
        if name == "plain":
            assert expected == found
        else:
            newest = expected[-KEYS:]
            assert newest == [each for each in found if each in newest]
            assert set(found) <= set(expected)
            assert found == sorted(set(found))


def main() -> None:
    """Run a process that owns the directory, or start and kill many such processes."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=300, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="which kills")
    parser.add_argument("--own", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--aim", default="moment", help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.own is not None:
        if asked.aim != "moment":
            die_at(asked.aim, asked.number)
        own(asked.own)
        return
    with kept_if_failed() as base:
        kills = run_kills(base, asked.kills, asked.seed)
    say(
        f"{kills.killed.total()} kills, aimed at {dict(kills.killed)}; while {dict(kills.stage)}; "
        f"{kills.answered} appends answered, none lost or doubled"
    )


if __name__ == "__main__":
    main()
