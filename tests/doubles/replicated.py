"""An engine over replicated partitions on simulated disks, and ways to compare the replicas' files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.doubles.engines import read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.several_disks import SeveralDisks
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.replication.replicas.engine import ReplicatedEngine
from topicfs.replication.replicas.partition import ReplicatedPartition
from topicfs.replication.replicas.startup import open_replicas
from topicfs.replication.scrub.findings import ScrubFinding
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.names import DirectoryMark, parse_partition_directory
from topicfs.storage.manager import Machine
from topicfs.storage.model import TopicPartition

DISKS = (Path("/a"), Path("/b"), Path("/c"))
ORDERS = TopicPartition("orders", 0)


class Replicated:
    """Two or three disks and the engine over them. A replica that lacks records gets them by `engine.catch_up`."""

    def __init__(self, disks: int = 2, *, replicas: int = 2, seed: int = 0, **settings: Any) -> None:
        self.roots = DISKS[:disks]
        self.make_disks(seed)
        self.clock = ManualClock()
        self.config = EngineConfig(
            recovery_threads=1,
            replication_factor=replicas,
            topic_defaults=TopicConfig(segment_index_bytes=1200, **settings),
        )
        self.engine = self.open()

    def make_disks(self, seed: int = 0) -> None:
        """Install empty disks."""
        self.disks = SeveralDisks({root: SimulatedDisk(seed=seed + n) for n, root in enumerate(self.roots)})
        for disk in self.disks.disks.values():
            disk.sync_directory(Path("/"))

    def open(
        self, *roots: Path, left_out: tuple[Path, ...] = (), read_only: bool = False
    ) -> ReplicatedEngine:
        self.engine = open_replicas(
            roots or self.roots,
            read_only=read_only,
            config=self.config,
            left_out=left_out,
            in_background=False,
            machine=Machine(files=self.disks.read_only_view() if read_only else self.disks, clock=self.clock),
        )
        return self.engine

    def reopen(self, *roots: Path, left_out: tuple[Path, ...] = ()) -> ReplicatedEngine:
        """Close the engine in order and open it again."""
        self.engine.close()
        return self.open(*roots, left_out=left_out)

    def crash(self, *, keep: float | None = None) -> ReplicatedEngine:
        """Lose power on all disks and open the engine again."""
        for disk in self.disks.disks.values():
            disk.crash(keep=keep)
        return self.open()

    def kill(self) -> ReplicatedEngine:
        """Open the engine again as after a kill of the process: the disks lose no data."""
        return self.open()

    def partition(self, name: TopicPartition = ORDERS) -> ReplicatedPartition:
        return self.engine.replicated(name)

    def append(self, text: str, name: TopicPartition = ORDERS) -> int:
        """Append lines as a mount does; return the offset of the first line."""
        (batch,) = encode_lines(text.encode(), timestamp=1_700_000_000_000)
        return self.partition(name).append(batch, encoded_here=True).base_offset

    def append_each(self, lines: Iterable[str], name: TopicPartition = ORDERS) -> None:
        """Append each line in a batch of its own."""
        for line in lines:
            self.append(f"{line}\n", name)

    def lines(self, name: TopicPartition = ORDERS) -> list[str]:
        return read_lines(self.partition(name))

    def in_sync(self, name: TopicPartition = ORDERS) -> tuple[int, ...]:
        return self.partition(name).state.in_sync

    def leader(self, name: TopicPartition = ORDERS) -> int | None:
        return self.partition(name).state.leader

    def disk(self, number: int) -> SimulatedDisk:
        """Return the disk of replica `number`."""
        return self.disks.disks[self.roots[number - 1]]

    def files(self, number: int, name: TopicPartition = ORDERS) -> dict[str, bytes]:
        """Return the `.log`, `.index` and `.timeindex` files of a replica, without the unused slots of the indexes."""
        root = self.roots[number - 1] / str(name)
        found = {}
        for entry in self.disks.list_directory(root):
            if entry.name.endswith((".log", "index")):
                data = self.disks.read_bytes(root / entry.name)
                found[entry.name] = data if entry.name.endswith(".log") else data.rstrip(b"\0")
        return found

    def names(self, name: TopicPartition = ORDERS) -> dict[int, str]:
        """Return, by replica, whether the partition's directory is `live` or `future`. Skip deleted directories."""
        found: dict[int, str] = {}
        for number, root in enumerate(self.roots, 1):
            for entry in self.disks.list_directory(root):
                parsed = parse_partition_directory(entry.name) if entry.is_directory else None
                if parsed and parsed.partition == name and parsed.mark is not DirectoryMark.DELETE:
                    assert number not in found, f"{root} has two directories of the partition"
                    found[number] = parsed.mark.value or "live"
        return found

    def replace_disk(self, number: int) -> None:
        """Put an empty disk in the place of a replica's disk."""
        self.disks.disks[self.roots[number - 1]] = SimulatedDisk(seed=9)
        self.disk(number).sync_directory(Path("/"))

    def bring_back(self, number: int) -> None:
        """Repair the disk of a replica, and let the replica catch up with the leader."""
        self.disk(number).heal()
        for _ in range(2):  # In the first round the engine notices that the disk is missing.
            self.retry()
        self.engine.catch_up()

    def wait(self, milliseconds: int) -> None:
        """Let time pass, and run the duties."""
        self.clock.advance(milliseconds)
        self.engine.maintenance(self.clock())

    def scrub(self) -> list[ScrubFinding]:
        """Scrub all partitions to their ends; return the findings."""
        found: list[ScrubFinding] = []
        assert self.engine.scrubber.run(tell=found.append)
        return found

    def retry(self) -> None:
        """Run the duties. They retry all failed operations immediately."""
        self.forget_failures()
        self.engine.maintenance(self.clock())

    def forget_failures(self) -> None:
        """Let all operations that wait for their next attempt be retried immediately."""
        for replica_dir in self.engine._replica_dirs:
            replica_dir._next_attempt = 0.0
        for one in (*self.engine._catching_up.values(), *self.engine._moves._threads.values()):
            one._pauses.clear()


def with_orders(disks: int = 2, **settings: Any) -> Replicated:
    """Return replicas of the new topic `orders`, which has one partition."""
    found = Replicated(disks, **settings)
    found.engine.create_topic("orders")
    return found
