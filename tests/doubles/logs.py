"""A log on a simulated disk with a manual clock and tiny limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.doubles.manual_clock import ManualClock
from tests.doubles.records import marker, produced, read_records, sized_batch
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.indexes.transaction_index import AbortedSpan
from topicfs.storage.log.flush import Flusher, NoFlusher
from topicfs.storage.log.log import Log
from topicfs.storage.model import Appended, Offset, TopicPartition
from topicfs.storage.producers.append import Origin
from topicfs.storage.recovery.loader import load_log
from topicfs.storage.recovery.options import Checkpointed, LoadOptions
from topicfs.storage.segment.roll import SegmentDirectory

DIRECTORY = Path("/data/orders-0")
PARTITION = TopicPartition("orders", 0)

TINY: dict[str, Any] = {
    "internal_segment_bytes": 1_000_000,
    "segment_index_bytes": 1200,
    "index_interval_bytes": 4096,
    "file_delete_delay_ms": 1000,
}


class LogOnDisk:
    """The log of one partition with its disk, clock and settings; `log` is the open log."""

    def __init__(
        self, *, disk: SimulatedDisk | None = None, flusher: Flusher | None = None, **settings: Any
    ) -> None:
        self.disk = disk or SimulatedDisk()
        self.flusher = flusher
        self.clock = ManualClock()
        self.config = TopicConfig(**(TINY | settings))
        if not self.disk.exists(DIRECTORY):
            self.disk.make_directory(DIRECTORY.parent)
            self.disk.make_directory(DIRECTORY)
            self.disk.sync_directory(Path("/"))
            self.disk.sync_directory(DIRECTORY.parent)
        self.log = self.load(clean=False)

    def load(
        self,
        *,
        clean: bool,
        disk: SimulatedDisk | None = None,
        dense: bool = False,
        **offsets: int,
    ) -> Log:
        """Load the log from the directory's present content; `offsets` are the checkpointed offsets."""
        return load_log(
            SegmentDirectory(DIRECTORY, disk or self.disk, self.clock),
            self.config,
            clean=clean,
            options=LoadOptions(
                checkpointed=Checkpointed(**{name: Offset(value) for name, value in offsets.items()}),
                dense=dense,
                flusher=self.flusher or NoFlusher(),
            ),
        )

    def reopen(self, **offsets: int) -> Log:
        """Close the log in order and load it again."""
        self.log.close()
        self.log = self.load(clean=True, **offsets)
        return self.log

    def crash(self, *, keep: float | None = None, dense: bool = False, **offsets: int) -> Log:
        """Lose power and load the log again."""
        self.disk.crash(keep=keep)
        self.log = self.load(clean=False, dense=dense, **offsets)
        return self.log

    def kill(self, **offsets: int) -> Log:
        """Load the log as after a kill of the process: all written data is kept, but no file was closed in order."""
        self.log = self.load(clean=False, **offsets)
        return self.log

    def names(self) -> list[str]:
        return [entry.name for entry in self.disk.list_directory(DIRECTORY)]

    def snapshots(self) -> list[int]:
        """Return the offsets of the producer snapshots."""
        return [int(name[:20]) for name in self.names() if name.endswith(".snapshot")]

    def index_files(self) -> dict[str, bytes]:
        """Return the content of every index file by its name."""
        return {name: self.content(name) for name in self.names() if name.endswith("index")}

    def temporary_files(self) -> list[str]:
        """Return the names of files that an interrupted operation left behind or that are waiting to be deleted."""
        return [name for name in self.names() if name.endswith((".cleaned", ".swap", ".deleted"))]

    def content(self, name: str) -> bytes:
        return self.disk.read_bytes(DIRECTORY / name)

    def write(self, name: str, data: bytes) -> None:
        self.disk.write_bytes(DIRECTORY / name, data)

    def base_offsets(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments()]


def filled(count: int = 12, **settings: Any) -> LogOnDisk:
    """Return a log of `count` batches of 100 bytes, three in each segment, with timestamps 10 ms apart."""
    on_disk = LogOnDisk(**({"internal_segment_bytes": 300, "index_interval_bytes": 0} | settings))
    for number in range(count):
        on_disk.log.append(sized_batch(100, timestamp=number * 10))
    return on_disk


class Transactions:
    """A log with short ways to write transactions."""

    def __init__(self, **settings: Any) -> None:
        self.on_disk = LogOnDisk(**settings)
        self._sequences: dict[int, int] = {}

    @property
    def log(self) -> Log:
        return self.on_disk.log

    def write(self, *values: bytes, pid: int, txn: bool = True) -> Appended:
        sequence = self._sequences.get(pid, 0)
        self._sequences[pid] = sequence + len(values)
        return self.log.append(produced(*values, pid=pid, sequence=sequence, txn=txn))

    def fill(self, count: int, *, pid: int, txn: bool = True) -> Appended:
        """Write a batch of `count` records."""
        return self.write(*[b"v"] * count, pid=pid, txn=txn)

    def end(self, *, pid: int, commit: bool = True) -> Appended:
        return self.log.append(marker(pid=pid, commit=commit), origin=Origin.COORDINATOR)

    def aborted(self) -> list[AbortedSpan]:
        return [span for segment in self.log.chain.segments for span in segment.transaction_index]


def records_of(
    log: Log, start: int | None = None, *, max_bytes: int = 4096
) -> list[tuple[int, bytes | None]]:
    """Return the offset and value of every record from `start` on, by default from the log start."""
    return [(each.offset, each.value) for each in read_records(log, start, max_bytes=max_bytes)]


def offsets_of(log: Log, start: int | None = None) -> list[int]:
    return [offset for offset, _ in records_of(log, start)]
