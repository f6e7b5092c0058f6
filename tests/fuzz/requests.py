"""Measure what each request about hostile batches costs a mount: CPU time, in total and in the event loop, and memory.

A round writes the batches of a seed (see `mutator`) to `log.batch`, which refuses most of the batches. Refused
batches are written directly to the log, as if a broker's files had them. Then the round looks up, opens and reads
every form of every file.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import trio

from tests.doubles.mount_client import MountClient, mounted
from tests.fusefs.mounted.conftest import Mount
from tests.fuzz.mutator import Mutator
from topicfs.fusefs.errors import FileError
from topicfs.fusefs.filesystem import TopicFileSystem
from topicfs.fusefs.forms import FORMS, VIEW_FORMS
from topicfs.replication import open_engine
from topicfs.storage.codec.batch import assign_offsets, scan
from topicfs.storage.disk.names import CLEAN_SHUTDOWN, SegmentFileKind, segment_file
from topicfs.storage.model import Offset

SECONDS = 1.0
"""Limit in seconds of a request's CPU time, summed over all threads."""
LOOP_SECONDS = 0.25
"""Limit in seconds of a request's CPU time in the event loop's thread, which meanwhile answers no other request."""
GROWTH_BYTES = 300_000_000
"""Limit in bytes of the memory that one request adds to the process."""

READ_BYTES = 131_072
XATTRS = ("user.kafka.timestamp", "user.kafka.batch", "user.kafka.key", "user.kafka.headers")


class Cost(NamedTuple):
    """The cost of one request."""

    what: str
    seconds: float
    loop_seconds: float
    growth_bytes: int

    @property
    def measures(self) -> bool:
        """Return whether the request waits until the size of a file is measured.

        An open waits for up to a minute, a stat for up to two seconds.
        """
        return self.what.startswith(("open ", "getattr ", "stat "))

    @property
    def is_bounded(self) -> bool:
        in_all = self.seconds <= SECONDS or self.measures
        return in_all and self.loop_seconds <= LOOP_SECONDS and self.growth_bytes <= GROWTH_BYTES


class Meter:
    """Measures what requests cost this process or a mount's daemon."""

    def __init__(self, pid: int | None = None) -> None:
        pid = os.getpid() if pid is None else pid
        self._proc = Path(f"/proc/{pid}")
        self._loop = self._proc / "task" / str(pid)
        """The main thread, which runs the event loop."""

    def begin(self) -> None:
        """Start a measurement, and reset the process's memory peak."""
        (self._proc / "clear_refs").write_text("5")
        self._before = self._resident("VmRSS")
        self._started, self._loop_started = _seconds_of(self._proc), _seconds_of(self._loop)

    def cost(self, what: str) -> Cost:
        """Return the cost of request `what`, measured since `begin`."""
        return Cost(
            what,
            _seconds_of(self._proc) - self._started,
            _seconds_of(self._loop) - self._loop_started,
            self._resident("VmHWM") - self._before,
        )

    def _resident(self, field: str) -> int:
        for line in (self._proc / "status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
        raise LookupError(field)


def _seconds_of(proc: Path) -> float:
    """Return the CPU time of a process or thread in seconds."""
    spent = (proc / "stat").read_text().rpartition(")")[2].split()
    return (int(spent[11]) + int(spent[12])) / os.sysconf("SC_CLK_TCK")


def put_beneath(directory: Path, refused: list[bytearray]) -> bool:
    """Append batches directly to the partition's file; return False if the log can hold none of them."""
    log = directory / "orders-0" / segment_file(Offset(0), SegmentFileKind.LOG)
    content, end_offset, added = bytearray(log.read_bytes()), 0, False
    for header in scan(content):
        end_offset = header.end_offset
    for batch in refused:
        copy = bytearray(batch)
        assign_offsets(copy, 0, base_offset=end_offset, leader_epoch=0)
        if scan(copy).problem is None:
            content += copy
            end_offset = scan(copy)[0].end_offset
            added = True
        if end_offset > 2**31:
            break
    log.write_bytes(content)
    (directory / CLEAN_SHUTDOWN).unlink(missing_ok=True)
    return added


def names_of(log_end_offset: int) -> list[str]:
    """Return the file names to request in the partition's directory."""
    last = max(log_end_offset - 1, 0)
    stems = ("log", "0", str(last), "0-9", "1-", "-3", "latest", "@0", "@1-")
    return [*(f"{stem}{form.suffix}" for stem in stems for form in VIEW_FORMS), "earliest", "status"]


TOPIC_NAMES = [*(f"{stem}{form.suffix}" for stem in ("log", "@0-") for form in FORMS), "status"]
"""The file names to request in the topic's directory."""


class Round:
    """A round over one log. The requests are made to the mount's filesystem, without a kernel."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.costs: list[Cost] = []
        self._seed = seed
        self._directory = directory
        self._meter = Meter()

    def run(self) -> None:
        """Write the batches and read everything. Raises all errors except FileError, which programs may see."""
        trio.run(self._run)

    async def _run(self) -> None:
        refused: list[bytearray] = []
        async with self._client() as client:
            await client.mkdir("orders")
            for number, batch in enumerate(Mutator(self._seed).log()):
                if not await self._ask(f"write {number}", partial(self._write, client, batch)):
                    refused.append(batch)
            await self._read_all(client)
        if put_beneath(self._directory, refused):
            async with self._client() as client:
                if client.engine.partition("orders", 0).status().state == "online":
                    await self._read_all(client)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[MountClient]:
        with closing(open_engine(self._directory)) as engine:
            async with mounted(engine, self._directory) as client:
                yield client

    @staticmethod
    async def _write(client: MountClient, batch: bytearray) -> bool:
        await client.append("orders/0/log.batch", bytes(batch))
        return True

    async def _read_all(self, client: MountClient) -> None:
        fs, partition = client.filesystem, client.lookup("orders/0").node_id
        for name in names_of(client.engine.partition("orders", 0).offsets().log_end_offset):
            look_up = partial(fs.lookup, partition, name.encode())
            found = await self._ask(f"lookup {name}", partial(fs.run_inline_or_in_thread, look_up))
            if found is None:
                continue
            node_id = found.node.node_id
            if name.startswith(("latest", "earliest")):
                await self._ask(
                    f"readlink {name}", partial(fs.run_inline_or_in_thread, partial(fs.readlink, node_id))
                )
                continue
            await self._ask(
                f"listxattr {name}", partial(fs.run_inline_or_in_thread, partial(fs.listxattr, node_id))
            )
            for full in XATTRS:
                call = partial(fs.getxattr, node_id, full)
                await self._ask(f"getxattr {name} {full}", partial(fs.run_inline_or_in_thread, call))
            await self._read(fs, name, node_id)
            await self._ask(f"getattr {name}", partial(fs.getattr, node_id))
        topic = client.lookup("orders").node_id
        for name in TOPIC_NAMES:
            found = await self._ask(
                f"lookup topic's {name}",
                partial(fs.run_inline_or_in_thread, partial(fs.lookup, topic, name.encode())),
            )
            if found is not None:
                await self._read(fs, f"topic's {name}", found.node.node_id)
        fh = fs.opendir(partition)
        await self._ask("list", partial(fs.run_inline_or_in_thread, lambda: list(fs.readdir(fh, 0))))

    async def _read(self, fs: TopicFileSystem, name: str, node_id: int) -> None:
        """Read three times from the file's beginning on, then once three million bytes further."""
        opened = await self._ask(f"open {name}", partial(fs.open, node_id, os.O_RDONLY, 0))
        if opened is None:
            return
        position = 0
        for far in (0, 0, 0, 3_000_000):
            at = position + far
            data = await self._ask(f"read {name} at {at}", partial(fs.read, opened.fh, at, READ_BYTES))
            position += len(data or b"")
        await self._ask(f"release {name}", partial(fs.release, opened.fh))

    async def _ask(self, what: str, request: Callable[[], Awaitable[Any]]) -> Any:
        """Make one request and note its cost; return None if it is refused."""
        self._meter.begin()
        try:
            return await request()
        except FileError:
            return None
        finally:
            self.costs.append(self._meter.cost(what))


class MountedRound:
    """The requests of a round through a real mount, with their cost to the mount's daemon."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.costs: list[Cost] = []
        self._seed = seed
        self._mount = Mount(directory)

    def run(self) -> None:
        """Write the batches and read everything."""
        refused: list[bytearray] = []
        with self._mounted() as partition:
            partition.parent.mkdir()
            for number, batch in enumerate(Mutator(self._seed).log()):
                if not self._ask(f"write {number}", partial(self._write, partition, batch)):
                    refused.append(batch)
            self._read_all(partition)
        if put_beneath(self._mount.data, refused):
            with self._mounted() as partition:
                if (partition / "state").read_text() == "online\n":
                    self._read_all(partition)

    @contextmanager
    def _mounted(self) -> Iterator[Path]:
        self._mount.start()
        try:
            assert self._mount.daemon is not None
            self._meter = Meter(self._mount.daemon.pid)
            yield self._mount.path / "orders" / "0"
        finally:
            self._mount.stop()
            self._mount.clean_up()

    @staticmethod
    def _write(partition: Path, batch: bytearray) -> bool:
        file = os.open(partition / "log.batch", os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, batch)
        finally:
            os.close(file)
        return True

    def _read_all(self, partition: Path) -> None:
        end = next(
            int(line.split()[1])
            for line in (partition / "status").read_text().splitlines()
            if line.startswith("log_end_offset")
        )
        for name in names_of(end):
            path = partition / name
            if self._ask(f"stat {name}", partial(os.lstat, path)) is None:
                continue
            self._ask(f"listxattr {name}", partial(os.listxattr, path))
            for full in XATTRS:
                self._ask(f"getxattr {name} {full}", partial(os.getxattr, path, full))
            file = self._ask(f"open {name}", partial(os.open, path, os.O_RDONLY))
            if file is None:
                continue
            for at in (0, READ_BYTES, 3_000_000):
                self._ask(f"read {name} at {at}", partial(os.pread, file, READ_BYTES, at))
            os.close(file)
        self._ask("list", partial(os.listdir, partition))

    def _ask(self, what: str, request: Callable[[], Any]) -> Any:
        self._meter.begin()
        try:
            return request()
        except OSError:
            return None
        finally:
            self.costs.append(self._meter.cost(what))


class Tally(NamedTuple):
    """The summed costs of several rounds."""

    requests: int = 0
    exceeding: tuple[str, ...] = ()
    """The requests that exceeded a limit, each with the seed and the cost."""
    slowest: float = 0.0
    largest: int = 0
    longest_loop: float = 0.0
    slowest_measuring: float = 0.0

    def plus(self, seed: int, costs: Sequence[Cost]) -> Tally:
        """Return the tally with the costs of another round added."""
        exceeding = tuple(
            f"seed {seed}: {cost.what}: {cost.seconds:.2f} s ({cost.loop_seconds:.2f} s of the event loop), "
            f"{cost.growth_bytes / 1e6:.0f} MB"
            for cost in costs
            if not cost.is_bounded
        )
        return Tally(
            self.requests + len(costs),
            self.exceeding + exceeding,
            max([self.slowest, *(cost.seconds for cost in costs if not cost.measures)]),
            max([self.largest, *(cost.growth_bytes for cost in costs)]),
            max([self.longest_loop, *(cost.loop_seconds for cost in costs)]),
            max([self.slowest_measuring, *(cost.seconds for cost in costs if cost.measures)]),
        )


def run_rounds(seeds: Iterable[int], *, seconds: float = math.inf, on_a_mount: bool = False) -> Tally:
    """Run a round for each seed, until `seconds` have passed."""
    started, tally = time.monotonic(), Tally()
    for seed in seeds:
        if time.monotonic() - started >= seconds:
            break
        with TemporaryDirectory() as directory:
            done = (MountedRound if on_a_mount else Round)(seed, Path(directory))
            done.run()
        tally = tally.plus(seed, done.costs)
    return tally
