"""`python -m tests.soak followers [--seconds N] [--seed N]`: fifty followers of all speeds during fast appends.

A mount without a kernel has two topics, one of them compressed. The event loop's thread and another thread append
lines, plain and in transactions that commit or abort; segments roll, and retention deletes the oldest segments. Each
follower must read, byte for byte, everything that was appended after it opened `follow`. If retention overtakes a
follower, the follower must get an error instead.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import json
import math
import os
import random
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import trio

from tests.doubles.mount_client import MountClient, mounted
from tests.doubles.records import marker, produced
from tests.soak import say
from topicfs.coordination.engine import Engine
from topicfs.fusefs.errors import FileError
from topicfs.fusefs.forms import VALUES
from topicfs.replication import open_engine
from topicfs.storage.disk.native import system_clock
from topicfs.storage.log.log import Log
from topicfs.storage.model import Isolation
from topicfs.storage.producers.append import Origin

FOLLOWERS = 50
SETTINGS = {"segment.bytes": "1048576", "retention.bytes": "6000000", "retention.ms": "-1"}
MAX_COMPARED_LINES = 500_000
"""Maximum number of lines kept in memory for the comparison."""
TIMEOUT_SECONDS = 60
"""Timeout in seconds for followers to reach the end after the last append."""


@dataclass
class Appended:
    """All lines appended to a partition, and the aborted transactions."""

    lines: dict[int, bytes] = field(default_factory=dict)
    """Lines by offset."""
    aborted: set[int] = field(default_factory=set)
    """Offsets of records in aborted transactions, which no reader may see."""
    shown: Shown | None = None
    """What readers see; None until the last append."""

    def add(self, base_offset: int, values: list[bytes]) -> range:
        """Add the lines of a batch; return the range of their offsets."""
        offsets = range(base_offset, base_offset + len(values))
        self.lines.update(zip(offsets, values, strict=True))
        return offsets


class Shown:
    """The lines that readers of a partition see, including lines that retention has deleted."""

    def __init__(self, appended: Appended) -> None:
        self._offsets = sorted(appended.lines.keys() - appended.aborted)
        self._text = b"".join(appended.lines[offset] + b"\n" for offset in self._offsets)
        sizes = (len(appended.lines[offset]) + 1 for offset in self._offsets)
        self._positions = list(accumulate(sizes, initial=0))

    def text_from(self, offset: int) -> memoryview:
        return memoryview(self._text)[self._positions[bisect_left(self._offsets, offset)] :]

    def size_from(self, offset: int) -> int:
        return len(self._text) - self._positions[bisect_left(self._offsets, offset)]


class Follower:
    """An open `follow` file, and a digest of what was read from it."""

    def __init__(self, client: MountClient, partition: Log, suffix: str) -> None:
        self.client = client
        self.partition = partition
        self.suffix = suffix
        self.position = 0
        self.size = 0
        self.digest = hashlib.blake2b()
        self.overtaken = False
        self._rest = b""

    async def open(self, flags: int = os.O_RDONLY) -> None:
        # If the other thread has appended records during the open, close the file and open it again.
        while True:
            self.start_offset = self.partition.visible_end(Isolation.READ_COMMITTED)
            self.fh = await self.client.open(f"{self.partition.topic}/0/follow{self.suffix}", flags)
            if self.start_offset == self.partition.visible_end(Isolation.READ_COMMITTED):
                return
            await self.close()

    async def close(self) -> None:
        await self.client.filesystem.release(self.fh)

    async def read(self, size: int) -> None:
        """Read once at the current position. Raises FileError."""
        try:
            data = bytes(await self.client.filesystem.read(self.fh, self.position, size))
        except FileError as error:
            self.overtaken = self.overtaken or error.number == errno.ESTALE
            raise
        assert data, "a read of follow never ends"
        self.position += len(data)
        if self.suffix:
            *lines, self._rest = (self._rest + data).split(b"\n")
            data = b"".join(json.loads(line)["payload"].encode() + b"\n" for line in lines)
        self.digest.update(data)
        self.size += len(data)

    def has_all(self, appended: Appended) -> bool:
        """Return whether the last append was made, and all that readers see was read."""
        return appended.shown is not None and self.size >= appended.shown.size_from(self.start_offset)

    def check(self, shown: Shown, *, whole: bool) -> None:
        """Compare what was read with what was appended; if `whole` is true, everything must have been read.

        Raises AssertionError.
        """
        expected = shown.text_from(self.start_offset)
        where = f"{self.partition.topic}: from {self.start_offset} on, {self.size} bytes"
        assert hashlib.blake2b(expected[: self.size]).digest() == self.digest.digest(), where
        if whole and not self.overtaken:
            assert self.size == len(expected), where


class Run:
    """All appends and followers of one run."""

    def __init__(self, client: MountClient, seed: int) -> None:
        self.client = client
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.appended: dict[str, Appended] = {"plain": Appended(), "packed": Appended()}
        self._closed: list[tuple[Follower, bool]] = []
        """The closed followers, and whether each had to reach the end."""
        self._open_transactions: dict[int, tuple[Log, range]] = {}
        self._sequences: Counter[int] = Counter()

    def partition(self, topic: str) -> Log:
        partition = self.client.engine.topic(topic).partitions()[0]
        assert isinstance(partition, Log)
        return partition

    def goes_on(self, until: float) -> bool:
        """Return whether to append more.

        Appends continue until `until`. On a slow machine they continue until each rare event has happened once.
        """
        now, rare = time.monotonic(), ("deleted", "commits", "aborts")
        return now < until or (not all(self.counts[name] for name in rare) and now < until + TIMEOUT_SECONDS)

    # Appends.

    async def append_here(self, until: float) -> None:
        """Append in bursts in the event loop's thread."""
        number = 0
        while self.goes_on(until) and len(self.appended["plain"].lines) < MAX_COMPARED_LINES:
            for _ in range(self.chance.randrange(1, 40)):
                topic = self.chance.choice(("plain", "plain", "packed"))
                count = self.chance.choice((1, 1, 5, 800))
                self.append(topic, [b"here %d %s" % (number + each, b"x" * 70) for each in range(count)])
                number += count
                if self.chance.random() < 0.3:
                    await trio.lowlevel.checkpoint()
            await trio.sleep(self.chance.random() * 0.01)

    def append_there(self, until: float) -> None:
        """Append plain batches and transactions in another thread; abort open transactions at the end."""
        chance, number = random.Random(self.chance.random()), 0
        while self.goes_on(until):
            values = [b"there %d" % (number + each) for each in range(chance.randrange(1, 60))]
            number += len(values)
            if chance.random() < 0.5:
                self.append("plain", values)
            else:
                self.transact(chance, values)
            time.sleep(chance.random() * 0.004)
        for producer in list(self._open_transactions):
            self.end_transaction(producer, commit=False)

    def append(self, topic: str, values: list[bytes]) -> None:
        text = b"".join(value + b"\n" for value in values)
        (batch,) = VALUES.parse(text, timestamp=system_clock(), max_batch_bytes=2**20)
        found = self.partition(topic).append(bytearray(batch), encoded_here=True)
        self.appended[topic].add(found.base_offset, values)
        self.counts["lines"] += len(values)

    def transact(self, chance: random.Random, values: list[bytes]) -> None:
        """Begin a transaction of one batch, and end an earlier one."""
        if len(self._open_transactions) > 2:
            self.end_transaction(chance.choice(list(self._open_transactions)), commit=chance.random() < 0.5)
        producer = chance.randrange(100, 110)
        if producer not in self._open_transactions:
            partition = self.partition("plain")
            sequence = self._sequences[producer]
            self._sequences[producer] += len(values)
            found = partition.append(produced(*values, pid=producer, sequence=sequence, txn=True))
            offsets = self.appended["plain"].add(found.base_offset, values)
            self._open_transactions[producer] = partition, offsets

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        partition, offsets = self._open_transactions.pop(producer)
        if not commit:
            self.appended["plain"].aborted.update(offsets)
        partition.append(marker(pid=producer, commit=commit), origin=Origin.COORDINATOR)
        self.counts["commits" if commit else "aborts"] += 1

    async def maintain(self, until: float) -> None:
        """Roll segments and delete the oldest ones, repeatedly."""
        while self.goes_on(until):
            await trio.to_thread.run_sync(self.client.engine.maintain_now, system_clock())
            self.counts["deleted"] = int(self.partition("plain").log_start_offset)
            await trio.sleep(0.2)

    # Followers.

    async def follow(self, number: int) -> None:
        """Follow at a certain speed until the last append.

        Open the file again if retention has overtaken the follower, or if the follower has read only for a short time.
        """
        chance = random.Random(number)
        topic, suffix = chance.choice(("plain", "packed")), chance.choice(("", "", "", ".json"))
        ways: tuple[Callable[[Follower, random.Random], Awaitable[object]], ...]
        ways = (*[self.read_fast] * 3, self.read_slowly, self.read_seldom, self.poll, self.pass_by)
        way = ways[number % len(ways)]
        while True:
            follower = Follower(self.client, self.partition(topic), suffix)
            await follower.open(os.O_NONBLOCK if way in (self.poll, self.pass_by) else os.O_RDONLY)
            try:
                await way(follower, chance)
            except FileError as error:
                assert error.number == errno.ESTALE
                self.counts["overtaken"] += 1
            ended = self.appended[topic].shown is not None
            whole = ended and way != self.pass_by
            if whole and not follower.overtaken:
                assert not self.client.filesystem.poll(follower.fh, None), (
                    "more is readable than was appended"
                )
            await follower.close()
            self._closed.append((follower, whole))
            if ended:
                return

    def check(self) -> None:
        """Compare what each follower read with what was appended; raises AssertionError."""
        for follower, whole in self._closed:
            shown = self.appended[follower.partition.topic].shown
            assert shown is not None
            follower.check(shown, whole=whole)
            self.counts["followers"] += 1
            self.counts["bytes"] += follower.size

    async def until_end(
        self, follower: Follower, size: Callable[[], int], pause: Callable[[], float]
    ) -> None:
        """Read until everything has been read."""
        appended = self.appended[follower.partition.topic]
        while not follower.has_all(appended):
            # A read that begins before the last append may get nothing, and would not end.
            with trio.move_on_after(1 if appended.shown is None else math.inf):
                await follower.read(size())
            await trio.sleep(pause() if appended.shown is None else 0)

    async def read_fast(self, follower: Follower, _chance: random.Random) -> None:
        await self.until_end(follower, lambda: 2**17, lambda: 0)

    async def read_slowly(self, follower: Follower, chance: random.Random) -> None:
        await self.until_end(follower, lambda: chance.choice((1, 100, 5000)), lambda: chance.random() * 0.003)

    async def read_seldom(self, follower: Follower, chance: random.Random) -> None:
        await self.until_end(follower, lambda: 2**16, lambda: chance.random() * 0.5)

    async def poll(self, follower: Follower, chance: random.Random) -> None:
        """Wait until the file is readable, and read with O_NONBLOCK until EAGAIN."""
        appended = self.appended[follower.partition.topic]
        while True:
            kernel = Notification()
            if not self.client.filesystem.poll(follower.fh, kernel):
                if follower.has_all(appended):
                    return
                with trio.move_on_after(1):
                    await kernel.notified.wait()
                continue
            with _nothing_new():
                while True:
                    await follower.read(chance.choice((100, 2**17)))

    async def pass_by(self, follower: Follower, chance: random.Random) -> None:
        """Open, read little or nothing, and close again."""
        for _ in range(chance.randrange(30)):
            with _nothing_new():
                await follower.read(2**14)
            await trio.sleep(chance.random() * 0.01)


class Notification:
    """The handle that the kernel passes with a poll request."""

    def __init__(self) -> None:
        self.notified = trio.Event()

    def notify(self) -> None:
        self.notified.set()


@contextmanager
def _nothing_new() -> Iterator[None]:
    """Suppress EAGAIN."""
    try:
        yield
    except FileError as error:
        if error.number != errno.EAGAIN:
            raise


def follow_for(directory: Path, *, seconds: float, seed: int) -> Counter[str]:
    """Do one run in a new directory and return its counts. Raises AssertionError."""
    engine = open_engine(directory)
    try:
        engine.create_topic("plain", partitions=1, overrides=SETTINGS)
        engine.create_topic("packed", partitions=1, overrides={**SETTINGS, "compression.type": "zstd"})
        return trio.run(_run, engine, directory, seconds, seed)
    finally:
        engine.close()


async def _run(engine: Engine, directory: Path, seconds: float, seed: int) -> Counter[str]:
    until = time.monotonic() + seconds
    async with mounted(engine, directory.parent) as client:
        run = Run(client, seed)
        silent = Follower(client, run.partition("plain"), "")
        await silent.open()
        with trio.fail_after(seconds + 2 * TIMEOUT_SECONDS):
            async with trio.open_nursery() as followers:
                for number in range(FOLLOWERS):
                    followers.start_soon(run.follow, number)
                async with trio.open_nursery() as writers:
                    writers.start_soon(run.append_here, until)
                    writers.start_soon(trio.to_thread.run_sync, run.append_there, until)
                    writers.start_soon(run.maintain, until)
                for appended in run.appended.values():
                    appended.shown = Shown(appended)
        await silent.close()
        assert not len(client.context.waiting)
        assert not client.context.shared.tails.kept_chunks
        run.check()
        return run.counts


def main() -> None:
    """Do runs of at most a minute until the time is over, and print a line for each run."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak followers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="seconds for all runs together")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run")
    asked = parser.parse_args()
    end = time.monotonic() + asked.seconds
    while (left := end - time.monotonic()) > 0:
        with tempfile.TemporaryDirectory(prefix="topicfs-soak-") as directory:
            counts = follow_for(Path(directory) / "data", seconds=min(left, 30), seed=asked.seed)
        say(f"seed {asked.seed}: {dict(counts)}")
        asked.seed += 1
    say("nothing found")


if __name__ == "__main__":
    main()
