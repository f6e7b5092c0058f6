"""Tests of the offset at which a broker and our engine end a log after a bit flip that no checksum detects."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from testing.broker.broker import Broker
from testing.broker.client import Client
from tests.doubles.broker_away import back_again
from tests.interop import ours
from tests.interop.test_brokers_files_under_us import plain_records
from topicfs.storage.checkpoints.offset_checkpoint import read_offsets, write_offsets
from topicfs.storage.codec.batch import scan
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk import names
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.indexes.offset_index import MAX_RELATIVE_OFFSET
from topicfs.storage.recovery.loader import load_log
from topicfs.storage.segment.roll import SegmentDirectory

pytestmark = pytest.mark.java

TOPIC = "flipped"
FILES = NativeFileSystem()
RECORDS, IN_A_BATCH = 300, 3
CONFIG = TopicConfig(internal_segment_bytes=4000, segment_index_bytes=4096, index_interval_bytes=100)
POWERS = (0, 1, 2, 3, 5, 8, 9, 16, 30)
"""Numbers of the bits to flip in a base offset. A higher bit would move the offset out of the segment's range."""
OFFSET_BITS = {f"base offset, 2^{power}": 63 - power for power in POWERS}
BITS = {
    **OFFSET_BITS,
    "length": 95,
    "leader epoch": 100,
    "magic": 133,
    "magic below zero": 128,
    "magic below the present": 134,
}
"""Bit positions by name, counted from the header's first bit."""
ENDS_A_BROKERS_LOG = {"length", "magic below zero", "magic below the present"}


class BatchLocation(NamedTuple):
    """A batch of the log that is damaged."""

    log: str
    position: int
    base_offset: int

    def offset_with(self, bit: str) -> int:
        """Return the batch's base offset after the flip of `bit`."""
        return self.base_offset ^ 1 << 63 - BITS[bit] if bit in OFFSET_BITS else self.base_offset

    def may_have(self, bit: str) -> bool:
        """Return whether the changed base offset fits into the segment.

        If the base offset does not fit, a broker does not start.
        """
        segment_base = int(self.log[:20])
        last_offset = self.offset_with(bit) + IN_A_BATCH - 1
        return segment_base <= self.offset_with(bit) and last_offset <= segment_base + MAX_RELATIVE_OFFSET


class Damaged(NamedTuple):
    """The results of the broker and of our engine for one flipped bit."""

    bit: str
    base_offset: int
    found_offset: int
    """The base offset stored in the batch after the flip."""
    brokers: int
    """The log end offset that the broker recovers."""
    own: int

    @property
    def moves_the_end(self) -> bool:
        """Return whether the flip changed the base offset of the last batch.

        No later batch can show that this base offset is wrong.
        """
        return self.found_offset != self.base_offset == RECORDS - IN_A_BATCH


def write_log(directory: Path) -> list[BatchLocation]:
    """Write a log of several segments; return the first, a middle and the last batch of each of three segments."""
    directory.mkdir()
    log = load_log(SegmentDirectory(directory, FILES, system_clock), CONFIG, clean=True)
    for first in range(0, RECORDS, IN_A_BATCH):
        log.append(ours.batch_of(plain_records(first, first + IN_A_BATCH)))
    log.close()
    found = sorted(directory.glob("*.log"))
    assert len(found) > 3
    places = []
    for segment in (found[0], found[len(found) // 2], found[-1]):
        batches = list(scan(segment.read_bytes()))
        assert len(batches) > 2
        places += [
            BatchLocation(segment.name, batch.position, batch.base_offset)
            for batch in (batches[0], batches[len(batches) // 2], batches[-1])
        ]
    return places


def damage(source: Path, target: Path, place: BatchLocation, bit: int) -> None:
    for file in source.iterdir():
        if file.suffix in (".log", ".index", ".timeindex"):
            shutil.copyfile(file, target / file.name)
    content = bytearray((target / place.log).read_bytes())
    content[place.position + bit // 8] ^= 0x80 >> bit % 8
    (target / place.log).write_bytes(content)


def forget_checkpoints(log_dir: Path) -> None:
    for name in (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS):
        kept = {
            one: offset for one, offset in read_offsets(FILES, log_dir / name).items() if one.topic != TOPIC
        }
        write_offsets(FILES, log_dir / name, kept)


@pytest.fixture(scope="module")
def outcomes(
    broker: Broker, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Damaged]]:
    """The results of flipping each bit of each batch, under the broker and under our engine."""
    home = tmp_path_factory.mktemp("flipped")
    source = home / f"{TOPIC}-0"
    places = write_log(source)
    cases = [(place, bit) for place in places for bit in BITS if place.may_have(bit)]
    client.create_topic(TOPIC, partitions=len(cases))
    with back_again(broker):
        broker.stop()
        for number, (place, bit) in enumerate(cases):
            target = broker.log_dir / f"{TOPIC}-{number}"
            for file in target.iterdir():
                if file.name != names.PARTITION_METADATA:
                    file.unlink()
            damage(source, target, place, BITS[bit])
        forget_checkpoints(broker.log_dir)
        (broker.log_dir / names.CLEAN_SHUTDOWN).unlink()
    yield [
        Damaged(
            bit,
            place.base_offset,
            place.offset_with(bit),
            client.offset_for(TOPIC, partition=number),
            own_end(source, home / f"own-{number}", place, BITS[bit]),
        )
        for number, (place, bit) in enumerate(cases)
    ]
    client.delete_topics([TOPIC])


def own_end(source: Path, parent: Path, place: BatchLocation, bit: int) -> int:
    target = parent / f"{TOPIC}-0"
    target.mkdir(parents=True)
    damage(source, target, place, bit)
    log = load_log(SegmentDirectory(target, FILES, system_clock), CONFIG, clean=False)
    end_offset = log.log_end_offset
    records = [one.offset for one in ours.read_records(log)]
    log.close()
    assert min(RECORDS, end_offset) == len(records)
    return end_offset


def test_a_broker_keeps_the_batch_but_for_its_length_and_an_older_magic(outcomes: list[Damaged]) -> None:
    """A broker truncates the log only at a batch with a wrong length or an older magic.

    The broker keeps a batch with a wrong base offset or leader epoch. The base offset of the last batch determines
    the log end, even if the offset is wrong. In the very first batch a wrong offset also breaks the indexes, and the
    broker loses the log's offsets.
    """
    assert [brokers_end(one) for one in outcomes] == [one.brokers for one in outcomes]


def brokers_end(one: Damaged) -> int:
    if one.bit in ENDS_A_BROKERS_LOG:
        return one.base_offset
    if one.base_offset == 0 and one.found_offset > RECORDS:
        return one.found_offset
    return one.found_offset + IN_A_BATCH if one.moves_the_end else RECORDS


def test_we_keep_what_a_broker_keeps(outcomes: list[Damaged]) -> None:
    """Our engine keeps each batch that a broker keeps.

    Our engine also keeps a batch with a wrong magic, and a batch whose wrong length is found by the checksum. If the
    base offset of the last batch is too large, the log has a gap before this batch, as in a broker. If the base
    offset is too small, our engine corrects it.
    """
    assert [own_expected(one) for one in outcomes] == [one.own for one in outcomes]


def own_expected(one: Damaged) -> int:
    return max(one.found_offset, one.base_offset) + IN_A_BATCH if one.moves_the_end else RECORDS
