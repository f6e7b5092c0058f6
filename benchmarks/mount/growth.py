"""A mount of very many partitions that were closed in order: its start, its memory, its duties, its end.

10,000 topics of ten partitions with a record each, in memory, so that it is topicfs's own work, beside 100 such topics
where that says something. `mkdir t/9999` is on the disk as well, for it waits for one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.frame.question import (
    KILOBYTES,
    MICROSECONDS,
    MILLISECONDS_OF_PROCESSOR,
    OURS,
    SECONDS,
    Benchmark,
    Case,
    Cases,
    Conditions,
    Goal,
    Side,
    SkippedError,
    WrongResultError,
)
from benchmarks.in_memory import directory_in_memory
from benchmarks.mount.setup.cpu_time import seconds_of
from benchmarks.mount.setup.mounts import FUSE_DEVICE, Mount
from benchmarks.partitions import START_TIME
from topicfs.replication import open_engine
from topicfs.storage.checkpoints.clean_shutdown import mark_clean
from topicfs.storage.checkpoints.identifiers import new_id
from topicfs.storage.checkpoints.offset_checkpoint import write_offsets
from topicfs.storage.checkpoints.partition_metadata import encode_partition_metadata
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.disk import names
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.topics.registry import RegistryCopy, TopicEntry, encode_registry

IN_EACH = 10
"""Partitions of each topic."""
FEW_TOPICS = 100
FEW = "1,000 partitions"
PARTITION_BYTES = 2**15
"""Room that a partition takes in memory: six small files, and their names."""

MOST_OF_DUTIES = 10.0
"""Milliseconds of the processor a second."""
COMMAND = str(Path(sys.executable).with_name("topicfs"))


@dataclass(frozen=True, slots=True)
class MountedTopics:
    """A data directory full of topics, mounted when it is asked for."""

    data: Path
    count: int

    @property
    def partitions(self) -> int:
        return self.count * IN_EACH

    def mount(self) -> Mount:
        """Mount it by the real command, in the background."""
        path = self.data.with_name(f"mnt-{self.data.name}")
        path.mkdir(exist_ok=True)
        subprocess.run([COMMAND, "mount", str(self.data), str(path)], check=True)
        words = dict(line.split(" ", 1) for line in (path / "@status").read_text().splitlines())
        return Mount(OURS, path, int(words["pid"]))

    @contextmanager
    def mounted(self) -> Iterator[Mount]:
        """Mount it, and unmount it whatever happens."""
        mount = self.mount()
        try:
            yield mount
        finally:
            unmount(mount)


def unmount(mount: Mount) -> None:
    """Unmount, and wait until all of it is on disk."""
    subprocess.run([COMMAND, "umount", str(mount.path)], check=True)


def seconds(work: Callable[[], object]) -> float:
    """Run work; return the seconds that it took."""
    started = time.monotonic()
    work()
    return time.monotonic() - started


def fill(data: Path, topics: int) -> MountedTopics:
    """Make a data directory as a close in order leaves it, by copies of one partition."""
    pattern = data.with_name(f"{data.name}-pattern")
    engine = open_engine(pattern)
    (batch,) = encode_lines(b"a line\n", timestamp=START_TIME)
    engine.create_topic("one").partitions()[0].append(batch, encoded_here=True)
    engine.close()
    files = {path.name: path.read_bytes() for path in (pattern / "one-0").iterdir()}
    shutil.copytree(pattern, data, ignore=lambda _directory, _names: ["one-0"])
    entries = {
        f"topic{number:05}": TopicEntry(new_id(), {"retention.ms": "-1"}, partitions=IN_EACH)
        for number in range(topics)
    }
    ends: dict[TopicPartition, Offset] = {}
    for name, entry in entries.items():
        files[names.PARTITION_METADATA] = encode_partition_metadata(entry.topic_id)
        for partition in (TopicPartition(name, number) for number in range(IN_EACH)):
            directory = data / names.partition_directory(partition)
            directory.mkdir()
            for file, content in files.items():
                (directory / file).write_bytes(content)
            ends[partition] = Offset(1)
    disk = NativeFileSystem()
    for checkpoint in (names.RECOVERY_POINTS, names.HIGH_WATERMARKS):
        write_offsets(disk, data / checkpoint, ends)
    (data / names.TOPIC_SETTINGS).write_bytes(encode_registry(RegistryCopy(entries, revision=1)))
    mark_clean(disk, data)
    return MountedTopics(data, topics)


def cases(conditions: Conditions) -> Cases:
    if not FUSE_DEVICE.exists():
        raise SkippedError(
            f"{FUSE_DEVICE} is missing: load the module fuse, or let the container have the device"
        )
    topics = conditions.choose(full=10_000, short=200)
    new = conditions.choose(full=10_000, short=600)
    watched = conditions.choose(full=5.0, short=1.0)
    case = partial(Case, most_rounds=conditions.choose(full=2, short=1), warm_up=False)
    with directory_in_memory(conditions, topics * IN_EACH * PARTITION_BYTES) as directory:
        many = fill(directory / "many", topics)
        few = fill(directory / "few", FEW_TOPICS)
        name = f"{many.partitions:,} partitions"
        for work, measure, target in (("mount", _mount, 10.0), ("umount", _unmount, 5.0)):
            yield case(
                name=f"{work} of {name}",
                unit=SECONDS,
                sides=(Side(OURS, partial(measure, many)),),
                goals=(Goal(target=target),),
            )
        with many.mounted() as mount, few.mounted() as small:
            yield case(
                name=f"memory a partition, of {name}",
                unit=KILOBYTES,
                sides=(Side(OURS, partial(_memory, many, mount, small)),),
                goals=(Goal(target=4.0),),
            )
            # From half a minute on the partitions that nobody opened are examined in turns.
            time.sleep(conditions.choose(full=32, short=4))
            yield case(
                name=f"duties a second over {name}",
                unit=MILLISECONDS_OF_PROCESSOR,
                sides=(
                    Side(OURS, partial(_duties, mount, watched)),
                    Side(FEW, partial(_duties, small, watched)),
                ),
                goals=(Goal(target=MOST_OF_DUTIES), Goal(of=FEW)),
            )
            yield case(
                name=f"ls of a topic among {name}",
                unit=MICROSECONDS,
                sides=(Side(OURS, partial(_list, mount)), Side(FEW, partial(_list, small))),
                goals=(Goal(of=FEW, target=1.2, floor=2.5),),
            )
        yield case(
            name=f"mkdir of {new:,} partitions, in memory",
            most_rounds=1,
            unit=SECONDS,
            sides=(Side(OURS, partial(_make, few, new)),),
            goals=(Goal(target=10.0),),
        )
    on_disk = fill(conditions.directory / "disk", 1)
    yield case(
        name=f"mkdir of {new:,} partitions, on the disk",
        most_rounds=1,
        unit=SECONDS,
        sides=(Side(OURS, partial(_make, on_disk, new)),),
        goals=(Goal(target=10.0),),
    )


def _mount(topics: MountedTopics) -> float:
    started = time.monotonic()
    with topics.mounted() as mount:
        elapsed = time.monotonic() - started
        if sum(not path.name.startswith("@") for path in mount.path.iterdir()) != topics.count:
            raise WrongResultError(f"{mount.path}: not every topic is there")
    return elapsed


def _unmount(topics: MountedTopics) -> float:
    """After a record for each of a hundred topics."""
    mount = topics.mount()
    for number in range(FEW_TOPICS):
        with (mount.path / f"topic{number:05}" / "0" / "log").open("ab") as log:
            log.write(b"one more\n")
    elapsed = seconds(partial(unmount, mount))
    if not (topics.data / names.CLEAN_SHUTDOWN).exists():
        raise WrongResultError(f"{topics.data}: not closed in order")
    return elapsed


def _memory(many: MountedTopics, mount: Mount, small: Mount) -> float:
    """Beyond what the mount of a thousand takes, which has opened each of them."""
    beyond = mount.anonymous_megabytes() - small.anonymous_megabytes()
    return max(beyond, 0) * 1e3 / (many.partitions - FEW_TOPICS * IN_EACH)


def _list(mount: Mount) -> float:
    topic = mount.path / "topic00001"
    times = sorted(seconds(partial(os.listdir, topic)) for _ in range(101))
    return times[len(times) // 2] * 1e6


def _duties(mount: Mount, watched_seconds: float) -> float:
    before = seconds_of(mount.pid)
    time.sleep(watched_seconds)  # The span that is measured.
    return (seconds_of(mount.pid) - before) * 1e3 / watched_seconds


def _make(topics: MountedTopics, count: int) -> float:
    with topics.mounted() as mount:
        topic = mount.path / f"new{time.monotonic_ns()}"
        topic.mkdir()
        return seconds((topic / str(count - 1)).mkdir)


BENCHMARK = Benchmark(
    name="growth", question="What do a hundred thousand partitions cost?", cases=cases, logarithmic=True
)
