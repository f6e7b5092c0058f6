"""Tests of a named write: the job or the directory's owner is killed at some moment, and the job runs again."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

from tests.doubles.engines import read_lines
from tests.pipeline.crashes import left_after_sweeping
from topicfs.replication import open_engine

RECORDS = 40
JOB = """
import sys
from pathlib import Path
from topicfs.pipeline.sink.commit_request import CommitRequest, staging_area
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.disk.names import WriteId
from topicfs.storage.model import TopicPartition
from topicfs.storage.staging.manifest import Content
data, version, records = [Path(sys.argv[1])], int(sys.argv[2]), int(sys.argv[3])
write, staged = WriteId("job", version), []
print("begun", flush=True)
for task in range(2):
    writer = staging_area(data).stage(write, task)
    for number in range(task, records, 2):
        line = f"{version} {number}\\n".encode()
        writer.append(TopicPartition("orders", number % 4 // 2), encode_lines(line, timestamp=0)[0])
    staged.append(writer.finish())
request = CommitRequest(data, write, staged, content=Content(records, version))
request.is_version = True
request.commit(600)
print("done", flush=True)
"""
OWNER = """
import sys, time
from contextlib import suppress
from pathlib import Path
from tests.doubles.waiting import wait_until
from topicfs.storage.disk.native import system_clock
from topicfs.storage.errors import DirectoryLockedError
from topicfs.replication import open_engine
engines = []
def opens():  # A job may own the directory at this moment.
    with suppress(DirectoryLockedError):
        engines.append(open_engine(Path(sys.argv[1])))
    return bool(engines)
wait_until(opens, "nobody owns the directory")
print("owned", flush=True)
while True:
    engines[0].maintenance(system_clock())
    time.sleep(0.05)
"""


class Killing:
    """Starts processes that use one data directory, and kills them."""

    def __init__(self, data: Path, chance: random.Random) -> None:
        self._data = data
        self._chance = chance
        self._stack = ExitStack()
        self._owner: subprocess.Popen[str] | None = None
        self.killed: Counter[str] = Counter()

    def start(self, script: str, *arguments: object) -> subprocess.Popen[str]:
        """Start a process; return once it has begun its work."""
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(self._data), *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() in ("begun\n", "owned\n")
        return process

    def run(self, rounds: int) -> None:
        """In each round, write one version until it is committed; at some moment, kill the job or the owner."""
        with self._stack:
            for version in range(rounds):
                if self._owner is None and self._chance.random() < 0.7:
                    self._owner = self.start(OWNER)
                job = self.start(JOB, version, RECORDS)
                try:
                    job.wait(self._chance.uniform(0, 0.2))
                except subprocess.TimeoutExpired:
                    self._kill(job)
                assert job.wait(600) in (0, -signal.SIGKILL)
                assert 0 == self.start(JOB, version, RECORDS).wait(600)

    def _kill(self, job: subprocess.Popen[str]) -> None:
        owner = self._owner
        victim = owner if owner is not None and self._chance.random() < 0.5 else job
        self.killed["jobs" if victim is job else "owners"] += 1
        victim.kill()
        victim.wait()
        self._owner = None if victim is owner else owner


def run(data: Path, chance: random.Random, rounds: int) -> Counter[str]:
    """Kill processes for `rounds` rounds and check the topic at the end. Return the number of kills by kind."""
    with closing(open_engine(data)) as engine:
        engine.create_topic("orders", partitions=2)
    killing = Killing(data, chance)
    killing.run(rounds)
    with closing(open_engine(data, read_only=True)) as engine:
        found = [line for one in engine.topic("orders").partitions().values() for line in read_lines(one)]
    expected = [f"{version} {number}" for version in range(rounds) for number in range(RECORDS)]
    assert sorted(expected) == sorted(found)
    assert [] == left_after_sweeping(data)
    return killing.killed


def test_each_version_is_there_once_whoever_is_killed(tmp_path: Path, chance: random.Random) -> None:
    """Whichever process is killed, no row is duplicated or missing and no file is left, with and without an owner."""
    assert run(tmp_path / "data", chance, 8).total()
