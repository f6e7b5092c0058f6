"""The broker's cleaner and our cleaner make the same bytes from the same files.

The delete horizons in the broker's files tell the time of the broker's pass. Our cleaner runs with this time.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from testing.broker.broker import Broker
from testing.broker.client import Client, Outgoing, send
from tests.doubles.waiting import wait_until
from tests.interop import ours
from tests.interop.test_brokers_files_under_us import DENSE_INDEX, segment_files
from topicfs.storage.checkpoints.offset_checkpoint import read_offsets
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.headers import BatchHeader, Codec
from topicfs.storage.compaction.cleaner import clean, cleaning_params
from topicfs.storage.compaction.selection import plan
from topicfs.storage.disk import names
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.log.log import Log
from topicfs.storage.model import Isolation, Offset, Timestamp, TopicPartition

pytestmark = pytest.mark.java

TOPIC = TopicPartition("compacted-by-both", 0)
DELETE_RETENTION_MS = 50
SETTINGS = {
    **DENSE_INDEX,
    "internal.segment.bytes": "4000",
    "cleanup.policy": "compact",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
    "min.cleanable.dirty.ratio": "1.0",
}
"""Settings with which the broker cleans nothing until the test lowers the limit: no dirty ratio is above 1."""


class Pass(NamedTuple):
    """One pass of the broker's cleaner."""

    before: Path
    """The partition's files before the pass."""
    first_dirty_offset: Offset | None
    after: Path


@pytest.fixture(scope="module")
def passes(broker: Broker, client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Pass]]:
    """Two passes. Before the second pass, the delete horizons of the first expire, and compressed batches are added."""
    folder = tmp_path_factory.mktemp("compaction")
    client.create_topic(TOPIC.topic, settings=SETTINGS)
    writer = client.producer(transactional_id=TOPIC.topic, linger_ms=1000)
    writer.init_transactions(30)
    done: list[Pass] = []
    for number in range(2):
        client.set_setting(TOPIC.topic, "min.cleanable.dirty.ratio", "1.0")
        for turn in range(12):
            records = keyed_records(number * 12 + turn)
            with client.transaction(writer, commit=turn % 3 != 1):
                send(writer, TOPIC.topic, records[:8], batch=4)
            client.produce(
                TOPIC.topic,
                records[8:],
                batch=6,
                enable_idempotence=turn % 2 == 0,
                compression_type="zstd" if number and turn % 4 == 3 else "none",
            )
        # Each round has a transaction of eight records, whose marker may come late, and twelve other records.
        client.wait_for_end(TOPIC.topic, (number + 1) * 12 * (8 + 1 + 12))
        checkpoint = cleaner_checkpoint(broker.log_dir)
        before = copy_partition(broker, folder / f"before-{number}")
        client.set_setting(TOPIC.topic, "min.cleanable.dirty.ratio", "0.0")
        active = max(int(path.stem) for path in before.glob("*.log"))
        wait_until(lambda: cleaner_checkpoint(broker.log_dir) == active, "the broker has compacted")  # noqa: B023 - asked in this turn only
        done.append(Pass(before, checkpoint, copy_partition(broker, folder / f"after-{number}")))
    yield done
    client.delete_topics([TOPIC.topic])


def keyed_records(number: int) -> list[Outgoing]:
    """Return twenty records: a few keys with tombstones, and a unique key at the end of each batch.

    Because of the unique key a pass keeps a record of the last batch. A broker of this version keeps the header of
    the last batch in any case.
    """
    return [
        Outgoing(
            None if at % 9 == 0 else b"value %d " % at + b"x" * 40,
            b"own %d" % at if at % 20 in (13, 19) else b"key %d" % (at % 31),
            [("number", b"%d" % at)] if at % 4 == 0 else [],
        )
        for at in range(number * 20, number * 20 + 20)
    ]


def cleaner_checkpoint(log_dir: Path) -> Offset | None:
    return read_offsets(NativeFileSystem(), log_dir / names.CLEANER_OFFSETS).get(TOPIC)


def copy_partition(broker: Broker, target: Path) -> Path:
    """Copy the partition's files; closed segments change only when the broker cleans."""
    source = broker.log_dir / names.partition_directory(TOPIC)
    return shutil.copytree(
        source, target / source.name, ignore=shutil.ignore_patterns("*.deleted", "*.cleaned", "*.swap")
    )


def batches_of(directory: Path) -> list[BatchHeader]:
    return [batch for log in sorted(directory.glob("*.log")) for batch in scan(log.read_bytes())]


def time_of(done: Pass) -> Timestamp:
    """Return the time of the pass: the latest delete horizon minus delete.retention.ms."""
    horizons = [batch.delete_horizon_ms for batch in batches_of(done.after)]
    return Timestamp(max(horizon for horizon in horizons if horizon is not None) - DELETE_RETENTION_MS)


def cleaned_by_us(done: Pass, directory: Path) -> Log:
    shutil.copytree(done.before, directory)
    log = ours.load(directory, SETTINGS, clean=False)
    now = time_of(done)
    chosen = plan(cleaning_params(log, done.first_dirty_offset, now))
    assert clean(log, chosen, now=now).records_kept
    return log


@pytest.mark.parametrize("number", range(2))
def test_both_leave_the_same(passes: list[Pass], tmp_path: Path, number: int) -> None:
    """Both cleaners leave the same records in batches with equal headers; without compression the files are equal."""
    done = passes[number]
    log = cleaned_by_us(done, tmp_path / "ours" / done.before.name)
    found = [ours.read_records(log, isolation) for isolation in Isolation]
    log.close()
    theirs = ours.load(shutil.copytree(done.after, tmp_path / done.after.name), SETTINGS, clean=False)
    assert [ours.read_records(theirs, isolation) for isolation in Isolation] == found
    theirs.close()
    assert headers_of(done.after) == headers_of(log.directory)
    expected, made = closed_files(done.after), closed_files(log.directory)
    assert list(expected) == list(made)
    assert number == 1 or expected == made


def headers_of(directory: Path) -> list[BatchHeader]:
    """Return the batches' headers without the fields that depend on the compression library."""
    return [
        batch._replace(position=0, size_bytes=0, checksum=0)
        if batch.codec is not Codec.NONE
        else batch._replace(position=0)
        for batch in batches_of(directory)
    ]


def closed_files(directory: Path) -> dict[str, bytes]:
    """Return the closed segments' files; the active segment's indexes are preallocated while a broker runs."""
    files = segment_files(directory)
    active = max(files)[:20]
    return {name: data for name, data in files.items() if not name.startswith(active)}


def test_the_passes_had_something_to_do(passes: list[Pass]) -> None:
    """The passes set delete horizons, drop batches with expired ones and aborted records, and keep empty batches."""
    first, second = (batches_of(done.after) for done in passes)
    assert len(first) < len(batches_of(passes[0].before))
    horizons = {batch.base_offset for batch in first if batch.delete_horizon_ms is not None}
    assert horizons - {batch.base_offset for batch in second}
    assert any(batch.is_control for batch in first)
    assert any(not batch.record_count for batch in second)
