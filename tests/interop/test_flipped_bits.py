"""One flipped bit in a header, where no checksum covers it: where a broker's log and ours end after an unclean stop."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from storage.checkpoints.offset_checkpoint import read_offsets, write_offsets
from storage.codec.batch import scan
from storage.config.topic import TopicConfig
from storage.disk import names
from storage.disk.native import NativeFileSystem, system_clock
from storage.recovery.load import load_log
from tests.broker.broker import Broker
from tests.broker.client import Client
from tests.interop import ours
from tests.interop.test_brokers_files_under_us import plain_records

pytestmark = pytest.mark.java

TOPIC = "flipped"
FILES = NativeFileSystem()
CONFIG = TopicConfig(internal_segment_bytes=4000, segment_index_bytes=4096, index_interval_bytes=100)
BITS = {
    "base offset, low": 62,
    "base offset, high": 40,
    "length": 95,
    "leader epoch": 100,
    "magic": 133,
    "magic below the present": 134,
}
"""Counted from the header's first bit. A base offset out of its segment's reach ends the broker itself."""
KEPT_BY_A_BROKER = {"base offset, low", "base offset, high", "leader epoch", "magic"}
KEPT_HERE = KEPT_BY_A_BROKER | {"magic below the present"}


class Place(NamedTuple):
    """A batch of the log that is damaged."""

    log: str
    position: int
    base_offset: int


class Damaged(NamedTuple):
    """What both make of one damage."""

    bit: str
    base_offset: int
    whole: int
    """Where the log ended before."""
    brokers: int
    own: int


def write_log(directory: Path) -> list[Place]:
    """A log of several segments; the first batch and one from the middle of its first, a middle and its last segment."""
    directory.mkdir()
    log = load_log(directory, files=FILES, config=CONFIG, clock=system_clock, clean=True)
    for first in range(0, 300, 3):
        log.append(ours.batch_of(plain_records(first, first + 3)))
    log.close()
    found = sorted(directory.glob("*.log"))
    assert len(found) > 3
    places = []
    for segment in (found[0], found[len(found) // 2], found[-1]):
        batches = list(scan(segment.read_bytes()))
        assert len(batches) > 2
        places += [
            Place(segment.name, batch.position, batch.base_offset)
            for batch in (batches[0], batches[len(batches) // 2])
        ]
    return places


def damage(source: Path, target: Path, place: Place, bit: int) -> None:
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
def outcomes(broker: Broker, client: Client, tmp_path_factory: pytest.TempPathFactory) -> list[Damaged]:
    """Each bit at each place, in a partition of its own under the broker, and in a directory under us."""
    home = tmp_path_factory.mktemp("flipped")
    source = home / f"{TOPIC}-0"
    places = write_log(source)
    cases = [(place, bit) for place in places for bit in BITS]
    client.create_topic(TOPIC, partitions=len(cases))
    broker.stop()
    for number, (place, bit) in enumerate(cases):
        target = broker.log_dir / f"{TOPIC}-{number}"
        for file in target.iterdir():
            if file.name != names.PARTITION_METADATA:
                file.unlink()
        damage(source, target, place, BITS[bit])
    forget_checkpoints(broker.log_dir)
    (broker.log_dir / names.CLEAN_SHUTDOWN).unlink()
    broker.start()
    return [
        Damaged(
            bit,
            place.base_offset,
            300,
            client.offset_for(TOPIC, partition=number),
            own_end(source, home / f"own-{number}", place, BITS[bit]),
        )
        for number, (place, bit) in enumerate(cases)
    ]


def own_end(source: Path, parent: Path, place: Place, bit: int) -> int:
    target = parent / f"{TOPIC}-0"
    target.mkdir(parents=True)
    damage(source, target, place, bit)
    log = load_log(target, files=FILES, config=CONFIG, clock=system_clock, clean=False)
    end_offset = log.log_end_offset
    records = [one.offset for one in ours.read_records(log)]
    log.close()
    assert list(range(end_offset)) == records
    return end_offset


def test_a_broker_keeps_the_batch_but_for_its_length_and_an_older_magic(outcomes: list[Damaged]) -> None:
    """It looks at neither base offset nor leader epoch, and takes any magic above the present one for it.

    But where its indexes stumble over the offset, as at the first batch of all here, it loses the log's offsets itself.
    """
    stumbled = [one for one in outcomes if (one.bit, one.base_offset) == ("base offset, high", 0)]
    others = [one for one in outcomes if one not in stumbled]
    assert [one.whole if one.bit in KEPT_BY_A_BROKER else one.base_offset for one in others] == [
        one.brokers for one in others
    ]
    assert [2**23] == [one.brokers for one in stumbled]


def test_we_keep_what_a_broker_keeps(outcomes: list[Damaged]) -> None:
    """And what only the magic says is no batch of the present format, though the checksum does."""
    assert [one.whole if one.bit in KEPT_HERE else one.base_offset for one in outcomes] == [
        one.own for one in outcomes
    ]
