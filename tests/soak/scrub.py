"""`python -m tests.soak scrub`: flip random bits in one replica; reads stay right, and a scrub heals all damage.

`tests/soak/test_scrub.py` is the short form. In `tests/interop/test_scrubbed_files.py` a real broker reads the files.
"""

from __future__ import annotations

import argparse
import filecmp
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from testing.broker.libraries import find_java
from tests.soak import say
from tests.soak.broker_takeover import line, read_by_broker
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.replication.replicas.engine import ReplicatedEngine
from topicfs.replication.replicas.startup import open_replicas
from topicfs.replication.scrub.findings import ScrubCounts, ScrubFinding
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.model import Isolation, Offset, TopicPartition

ORDERS = TopicPartition("orders", 0)
LINES_A_BATCH = 50
HEADER_BITS = 61 * 8


class Sizes(NamedTuple):
    """How much the test writes and damages."""

    log_bytes: int
    segment_bytes: int
    flips: int
    """Bits flipped in each segment's log; each index of the segment gets one flipped bit."""


class Done(NamedTuple):
    """The results of a run."""

    records: int
    flipped: int
    read_right: int
    """Number of records that were read while files were damaged, each equal to the written record."""
    counts: ScrubCounts
    left: list[str]
    """Findings of the scrub or of a later check that were not healed."""
    unequal: list[str]
    """Files that differ between the two replicas."""


def open_both(directory: Path, sizes: Sizes) -> ReplicatedEngine:
    """Open two replicated data directories; readers heal the damage that they meet."""
    config = EngineConfig(
        replication_factor=2, topic_defaults=TopicConfig(internal_segment_bytes=sizes.segment_bytes)
    )
    return open_replicas([directory / "a", directory / "b"], config=config, in_background=False)


def write(engine: ReplicatedEngine, sizes: Sizes) -> int:
    """Fill the topic; return the number of records."""
    engine.create_topic("orders")
    partition, number = engine.replicated(ORDERS), 0
    while partition.status().log_bytes < sizes.log_bytes:
        for _ in range(20):
            text = b"".join(line(number + n) + b"\n" for n in range(LINES_A_BATCH))
            (batch,) = encode_lines(text, timestamp=1_700_000_000_000 + number)
            partition.append(batch)
            number += LINES_A_BATCH
    partition.sync()
    return number


def flip(engine: ReplicatedEngine, replica: int, sizes: Sizes, random: Random) -> int:
    """Flip bits in the batches, batch headers and used index slots of a replica; return the number of flipped bits."""
    log = engine.controller.logs(ORDERS)[replica]
    bits: set[tuple[Path, int]] = set()
    for segment in log.chain.segments:
        size = log.parts.state.end.bytes_of(segment)
        for number in range(sizes.flips if size else 0):
            bit = random.randrange(8 * size)
            if number % 2:  # Random positions would hardly ever be in headers, which are small.
                batch = segment.find_batch(random.randrange(segment.base_offset, log.log_end_offset), size)
                bit = 8 * (batch.position if batch else 0) + random.randrange(HEADER_BITS)
            bits.add((segment.log.path, bit))
        for slots in (segment.offset_index.slots, segment.time_index.slots):
            if slots.used_bytes:
                bits.add((slots.path, random.randrange(8 * slots.used_bytes)))
    for path, bit in bits:
        _flip(path, bit)
    return len(bits)


def _flip(path: Path, bit: int) -> None:
    with path.open("r+b", buffering=0) as file:
        file.seek(bit // 8)
        octet = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([octet ^ 1 << bit % 8]))


def read_all(engine: ReplicatedEngine, records: int, random: Random) -> int:
    """Read everything, in order and from random offsets; return the number of records.

    Raises AssertionError if a record is wrong.
    """
    found = _read_from(engine, 0, records, 1 << 20)
    assert records == found, f"{found} of {records} records"
    for _ in range(200):
        offset = random.randrange(records)
        found += _read_from(engine, offset, offset + 1, random.choice([1, 5_000, 100_000]))
    return found


def _read_from(engine: ReplicatedEngine, offset: int, end: int, max_bytes: int) -> int:
    partition, found = engine.replicated(ORDERS), 0
    while offset < end:
        fetched = partition.read(Offset(offset), max_bytes=max_bytes, isolation=Isolation.READ_UNCOMMITTED)
        for columns in decode(fetched.data):
            for record in columns:
                if record.offset >= offset and offset < end:
                    assert (offset, line(offset)) == (record.offset, record.value)
                    offset, found = offset + 1, found + 1
    return found


def scrubbed(engine: ReplicatedEngine) -> tuple[ScrubCounts, list[str]]:
    """Scrub everything; return the counts and the findings that were not healed."""
    left: list[str] = []

    def tell(found: ScrubFinding) -> None:
        if found.healed_from is None:
            left.append(str(found))

    assert engine.scrubber.run(tell=tell)
    return engine.scrubber.counts, left


def checked(directory: Path) -> Iterator[str]:
    """Run `topicfs check` on both directories and yield its findings."""
    for name in ("a", "b"):
        for finding in DirectoryCheck(directory / name, NativeFileSystem(read_only=True)).findings():
            yield str(finding)


def unequal(directory: Path) -> list[str]:
    """Return the names of the partition's files that differ between the directories."""
    both = [directory / name / str(ORDERS) for name in ("a", "b")]
    names = {path.name for each in both for path in each.iterdir()}
    _, different, missing = filecmp.cmpfiles(*both, names, shallow=False)
    return sorted([*different, *missing])


def run(directory: Path, sizes: Sizes, *, seed: int) -> Done:
    """Write, flip bits, read, scrub, close, check and compare the replicas."""
    random = Random(seed)
    engine = open_both(directory, sizes)
    try:
        records = write(engine, sizes)
        flipped = flip(engine, 1 + seed % 2, sizes, random)
        right = read_all(engine, records, random)
        counts, left = scrubbed(engine)
        right += read_all(engine, records, random)
    finally:
        engine.close()
    return Done(records, flipped, right, counts, [*left, *checked(directory)], unequal(directory))


def _read_by_brokers(directory: Path, records: int) -> Iterator[str]:
    """Hand each directory to a broker of its own; yield errors in what the brokers read."""
    for name in ("a", "b"):
        found = read_by_broker(directory / name, directory / f"broker-{name}", find_java(), records)
        yield f"{found} records read right by a broker that took {name} over"


def main() -> None:
    """Run with the sizes of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the log in gigabytes")
    parser.add_argument("--flips", type=int, default=1000, help="bits flipped in each segment of 128 MiB")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--broker", action="store_true", help="in the end, start a real broker on each directory (Java)"
    )
    asked = parser.parse_args()
    sizes = Sizes(int(asked.gigabytes * (1 << 30)), 128 << 20, asked.flips)
    with tempfile.TemporaryDirectory() as directory:
        done = run(Path(directory), sizes, seed=asked.seed)
        told = [f"{done.flipped} bits flipped, {done.read_right} records read right, {done.counts}"]
        if done.left or done.unequal:
            raise SystemExit("\n".join([*told, "left:", *done.left, "unequal:", *done.unequal]))
        if asked.broker:
            told += _read_by_brokers(Path(directory), done.records)
    say("\n".join(told))


if __name__ == "__main__":
    main()
