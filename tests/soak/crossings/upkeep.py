"""Steps that do not append: settings, deletions, the clock, duties, restarts, kills, and other readers."""

from __future__ import annotations

import os
import re
from pathlib import Path
from random import Random

from tests.doubles.manual_flusher import ManualFlusher
from tests.doubles.mortal_disk import Killed
from tests.interop.ours import read_records
from tests.soak.crossings import machine
from tests.soak.crossings.model import PartitionModel, Retained
from tests.soak.crossings.settings import draw_changes, merged
from topicfs.replication import open_engine
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.engine import Partition
from topicfs.storage.errors import OffsetOutOfRangeError, PolicyViolationError, StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.manager import Machine as EngineMachine
from topicfs.storage.model import Offset

NAMES = ("a", "b-0", "c.d_e")
MAX_ADDED_PARTITIONS = 3
JUMPS = (1, 1_000, 60_000, 3_600_000, 86_400_000, 10 * 86_400_000, 400 * 86_400_000)
DELETED = re.compile(r"(\.deleted|-delete)$")


# Topics and settings.


def create(crossing: machine.Crossing, chance: Random) -> str:
    """Create a topic with one of a few names."""
    free = [name for name in NAMES if name not in crossing.topics]
    return _create(crossing, chance, chance.choice(free)) if free else "all names are taken"


def _create(crossing: machine.Crossing, chance: Random, name: str) -> str:
    overrides = {"internal.segment.bytes": str(chance.choice((300, 700, 2_000)))}
    overrides |= merged(overrides, draw_changes(chance, chance.randint(0, 4), overrides))
    topic = machine.TopicModel(name, {**machine.KEPT_FOREVER, **overrides}, [])
    machine.add_partitions(topic, chance.randint(1, 2))
    crossing.interrupted = machine.Interrupted(created=topic)
    crossing.engine.create_topic(name, partitions=len(topic.partitions), overrides=overrides)
    crossing.topics[name] = topic
    return f"{name}: {len(topic.partitions)} partitions, {overrides}"


def delete(crossing: machine.Crossing, chance: Random) -> str:
    """Delete a topic, and check that its open logs then refuse appends."""
    topic = crossing.pick_topic(chance)
    name, old = topic.name, [*crossing.engine.topic(topic.name).partitions().values()]
    delay = max(topic.largest_delay, topic.config().file_delete_delay_ms)
    crossing.delay_of_deleted = max(crossing.delay_of_deleted, delay)
    crossing.interrupted = machine.Interrupted(deleted=name)
    crossing.engine.delete_topic(name)
    del crossing.topics[name]
    assert all("online" != partition.status().state for partition in old), (
        f"{name} is online after its deletion"
    )
    return name


def recreate(crossing: machine.Crossing, chance: Random) -> str:
    """Delete a topic and create another topic with its name."""
    name = delete(crossing, chance)
    return _create(crossing, chance, name)


def extend(crossing: machine.Crossing, chance: Random) -> str:
    """Add a partition to a topic."""
    topic = crossing.pick_topic(chance)
    total = min(len(topic.partitions) + 1, MAX_ADDED_PARTITIONS)
    crossing.interrupted = machine.Interrupted(extended=(topic.name, total))
    crossing.engine.add_partitions(topic.name, total=total)
    machine.add_partitions(topic, total)
    return f"{topic.name}: {total}"


def alter(crossing: machine.Crossing, chance: Random) -> str:
    """Alter one to three settings of a topic."""
    topic = crossing.pick_topic(chance)
    changes = draw_changes(chance, chance.choice((1, 1, 2, 3)), topic.overrides)
    after = merged(topic.overrides, changes)
    crossing.interrupted = machine.Interrupted(altered=(topic.name, after))
    crossing.engine.alter_config(topic.name, changes)
    topic.overrides = after
    return f"{topic.name}: {changes}"


# Deleting records.


def delete_records(crossing: machine.Crossing, chance: Random) -> str:
    """Call DeleteRecords with an offset that is usually within the log."""
    topic, model, partition = crossing.pick(chance)
    config = topic.config()
    before = chance.choice(
        (-1, chance.randint(0, model.end), chance.randint(model.start, model.end), model.end + 1)
    )
    model.requested_start = model.end if before == -1 else before
    try:
        start = partition.delete_records(Offset(before))
    except PolicyViolationError:
        assert config.compacts, f"{model.name}: refused with cleanup.policy={config.cleanup_policy}"
        assert not config.deletes, f"{model.name}: refused with cleanup.policy={config.cleanup_policy}"
        model.requested_start = None
        return "refused by the policy"
    except OffsetOutOfRangeError:
        assert before > model.end, f"{model.name}: deletion up to {before} was refused"
        model.requested_start = None
        return "refused beyond the end"
    assert not config.compacts or config.deletes, f"{model.name}: not refused with {config.cleanup_policy}"
    assert start == max(model.start, model.requested_start), (
        f"{model.name}: starts at {start} after deletion up to {before}"
    )
    assert before <= model.end, f"{model.name}: deletion up to {before} was not refused"
    model.start, model.requested_start = int(start), None
    return f"{model.name}: {before}"


def maintain(crossing: machine.Crossing, chance: Random) -> str:
    """Do all duties, or only those that are due."""
    return _maintain(crossing, everything=chance.random() < 0.7)


def _maintain(crossing: machine.Crossing, *, everything: bool) -> str:
    """Do all duties, or only those that are due; check the log starts against the settings.

    Raises AssertionError.
    """
    now = crossing.clock()
    for topic, model, partition in crossing.partitions():
        config = topic.config()
        model.before_cleaning(config, now, partition.offsets().last_stable_offset)
        model.retained = Retained(config, now)
        model.producers.expire(now, crossing.config.producer_id_expiration_ms)
    (crossing.engine.maintain_now if everything else crossing.engine.maintenance)(now)
    if crossing.disk.dead:  # The engine treats any error while it replaces segments as a disk error.
        raise Killed(crossing.disk.last_change)
    for topic, model, partition in crossing.partitions():
        offsets = partition.offsets()
        model.move_start(offsets.log_start_offset, machine.log_bytes(partition))
        model.retained = None
        if everything:
            segments = partition.segments()
            assert segments is not None
            ranges = [(segment.base_offset, segment.end_offset) for segment in segments]
            model.check_retention(ranges, topic.config(), crossing.clock.now)
            _check_compaction(model, partition)
            # Compaction may have moved the log start after the checkpoints were written.
            if not topic.config().compacts:
                model.keep_start(model.start)
    return f"{'everything' if everything else 'what is due'} at {now}"


def _check_compaction(model: PartitionModel, partition: Partition) -> None:
    """Check that the compacted part of a log has at most one record per key. Raises AssertionError."""
    first_dirty = partition.status().first_dirty_offset
    if first_dirty is None:
        return
    seen: dict[bytes, int] = {}
    for record in read_records(partition):
        if record.offset < first_dirty and record.key is not None:
            twice = f"{model.name}: two records of a key are left of {first_dirty}: {record}, {seen}"
            assert record.key not in seen, twice
            seen[record.key] = record.offset


def keep_log_starts(crossing: machine.Crossing, chance: Random) -> str:
    """Write the log starts to the checkpoint."""
    crossing.engine.keep_log_starts()
    for _, model, _partition in crossing.partitions():
        model.keep_start(model.start)
    return ""


def flush(crossing: machine.Crossing, chance: Random) -> str:
    """Flush a log, roll it, or run the flusher's queued work."""
    kind = chance.choice(("flusher", "sync", "roll"))
    if kind == "flusher":
        return f"flusher: {crossing.flusher.run()}"
    _, model, partition = crossing.pick(chance)
    assert isinstance(partition, Log)
    if kind == "sync":
        partition.sync()
    else:
        partition.appender.roll()
    return f"{kind} of {model.name}"


# Time.


def tick(crossing: machine.Crossing, chance: Random) -> str:
    """Advance the clock a little."""
    crossing.set_clock(crossing.clock.now + chance.choice((0, 1, 10, 999, 60_000)))
    return f"{crossing.clock.now}"


def jump(crossing: machine.Crossing, chance: Random) -> str:
    """Set the clock forward or back."""
    crossing.set_clock(crossing.clock.now + chance.choice((1, -1)) * chance.choice(JUMPS))
    return f"{crossing.clock.now}"


def wait_for_removals(crossing: machine.Crossing, chance: Random) -> str:
    """Advance the clock by the delay of deleted files; check that all files deleted before are gone."""
    _maintain(crossing, everything=True)
    delay = max([crossing.delay_of_deleted, *[topic.largest_delay for topic in crossing.topics.values()]])
    before = deleted_files(crossing.data)
    if crossing.clock.now + delay > machine.LATEST_TIME - 2 * 60_001:
        return "not before the end of time"
    crossing.set_clock(crossing.clock.now + max(delay, 60_000) + 60_001)
    maintained = _maintain(crossing, everything=True)
    left = before & deleted_files(crossing.data)
    assert not left, f"not removed {max(delay, 60_000)} ms later: {sorted(left)}"
    return maintained


def deleted_files(data: Path) -> set[tuple[str, int]]:
    """Return the names and inodes of the files and directories that wait for removal."""
    found = set()
    for directory, _names, files in os.walk(data):
        for name in [Path(directory).name, *files]:
            path = Path(directory) if name == Path(directory).name else Path(directory) / name
            if DELETED.search(name):
                found.add((name, path.stat().st_ino))
    return found


# Restarts, kills and other readers.


def restart(crossing: machine.Crossing, chance: Random) -> str:
    """Close the engine cleanly, check the directory, and reopen it."""
    crossing.close()
    crossing.reopen()
    return ""


def kill(crossing: machine.Crossing, chance: Random) -> str:
    """Kill the engine between two changes; check that a read-only engine shows what recovery will show."""
    crossing.disk.kill()
    crossing.leave()
    if chance.random() < 0.5:
        _look(crossing, crossing.data, chance)
    raise Killed("between two steps")


def look_beside(crossing: machine.Crossing, chance: Random) -> str:
    """Check that a read-only engine beside the owner shows the same records and changes nothing."""
    before = listing(crossing.data)
    _look(crossing, crossing.data, chance)
    assert before == listing(crossing.data), "a read-only look changed something"
    return ""


def _look(crossing: machine.Crossing, directory: Path, chance: Random) -> None:
    engine = open_engine(
        directory,
        read_only=True,
        config=crossing.config,
        machine=EngineMachine(
            files=NativeFileSystem(read_only=True), clock=crossing.clock, flushers=ManualFlusher
        ),
    )
    try:
        crossing.compare_with(engine, chance, exact_start=False)
    finally:
        engine.close()


def open_image(crossing: machine.Crossing, chance: Random) -> str:
    """Open and close a copy of the served directory, then check the copy."""
    copy = crossing.image()
    engine = open_engine(
        copy,
        config=crossing.config,
        machine=EngineMachine(clock=crossing.clock, flushers=ManualFlusher),
    )
    crossing.compare_with(engine, chance, exact_start=False)
    engine.close()
    crossing.check_directory(copy)
    return ""


def listing(directory: Path) -> list[tuple[str, int, int]]:
    """Return name, size and time of each file below a directory."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return [(str(path), status.st_size, status.st_mtime_ns) for path in paths for status in (path.stat(),)]


def reopen_partition(crossing: machine.Crossing, chance: Random) -> str:
    """Load an online partition again; the partition then behaves as after a restart."""
    _, model, partition = crossing.pick(chance)
    crossing.engine.reopen_partition(partition.topic, partition.number)
    model.reload(model.start, crossing.clock.now, crossing.config.producer_id_expiration_ms)
    return f"{partition.topic}-{partition.number}"


def refuse(crossing: machine.Crossing, chance: Random) -> str:
    """Make a request that must be refused, and check that it changes nothing."""
    for act in (
        lambda: crossing.engine.create_topic("not/a name"),
        lambda: crossing.engine.delete_topic("missing"),
        lambda: crossing.engine.create_topic("new", overrides={"segment.bytes": "1"}),
        lambda: crossing.engine.create_topic("new", partitions=0),
    ):
        try:
            act()
        except StorageError:
            continue
        raise AssertionError("a request that must be refused succeeded")
    return ""
