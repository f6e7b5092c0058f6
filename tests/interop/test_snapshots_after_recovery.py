"""Tests of the producer snapshots that a broker and our engine leave after recovery and after a clean close."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from testing.broker.broker import Broker, running_broker
from testing.broker.client import Client, Outgoing
from testing.broker.libraries import Java
from tests.interop import ours
from topicfs.storage.checkpoints.leader_epochs import Entries, decode_epochs, truncate_from_end
from topicfs.storage.checkpoints.offset_checkpoint import read_offsets, write_offsets
from topicfs.storage.codec.control import ControlType, EndTransactionMarker, encode_marker
from topicfs.storage.codec.headers import BatchStamp
from topicfs.storage.disk import names
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.log.log import Log
from topicfs.storage.model import Offset, ProducerId, Timestamp, TopicPartition

pytestmark = pytest.mark.java

FILES = NativeFileSystem()
TOPIC = "snapshots"
SETTINGS = {"internal.segment.bytes": "700", "index.interval.bytes": "300"}
LAZY = {"log.retention.check.interval.ms": "3600000", "log.initial.task.delay.ms": "3600000"}
"""Intervals so long that no periodic task changes the directory between recovery and comparison."""
LONG_AGO = 1_600_000_000_000
"""Time of the last write of producers that have expired since."""
BATCHES = 40
EXPIRED, LIVE, OPEN = (ProducerId(each) for each in (100, 200, 300))

Snapshots = Mapping[str, bytes]


class Writer:
    """Appends batches as they are in a leader's log: idempotent and transactional ones of two records, and markers."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._sequences: dict[ProducerId, Iterator[int]] = {}

    def write(self, producer_id: ProducerId, timestamp: int, *, transactional: bool = False) -> None:
        sequence = next(self._sequences.setdefault(producer_id, count(0, 2)))
        stamp = BatchStamp(
            leader_epoch=0,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=transactional,
        )
        records = [Outgoing(b"value %d" % number, b"key", timestamp=timestamp) for number in range(2)]
        end_offset = self.log.offsets().log_end_offset
        self.log.appender.append_as_follower(ours.batch_of(records, stamp, base_offset=end_offset))

    def end(self, producer_id: ProducerId, timestamp: int, kind: ControlType) -> None:
        marker = encode_marker(
            EndTransactionMarker(kind, coordinator_epoch=3),
            timestamp=Timestamp(timestamp),
            producer_id=producer_id,
            producer_epoch=0,
            base_offset=self.log.offsets().log_end_offset,
            leader_epoch=0,
        )
        self.log.appender.append_as_follower(marker)


def write_nothing(_: Writer) -> None:
    """Write an empty log."""


def write_plain(writer: Writer) -> None:
    """Write records without a producer."""
    for _ in range(BATCHES):
        writer.write(ProducerId(-1), system_clock())


def write_idempotent(writer: Writer) -> None:
    """Write alternately with two producers that have not expired."""
    for number in range(BATCHES):
        writer.write(ProducerId(LIVE + number % 2), system_clock())


def write_expired(writer: Writer) -> None:
    """Write with expired producers in the first and a middle segment, and with a producer that is active to the end."""
    for number in range(BATCHES):
        silent = number < 6 or 15 <= number < 22
        writer.write(
            ProducerId(EXPIRED + number // 15) if silent else LIVE, LONG_AGO if silent else system_clock()
        )


def write_all_expired(writer: Writer) -> None:
    """Write each segment with another producer; all these producers have expired."""
    for number in range(BATCHES):
        writer.write(ProducerId(EXPIRED + number // 5), LONG_AGO)


def write_transactions(writer: Writer) -> None:
    """Write old and new commits and aborts, and an old transaction that stays open and therefore never expires."""
    writer.write(OPEN, LONG_AGO, transactional=True)
    for number in range(BATCHES):
        producer_id, timestamp = (EXPIRED, LONG_AGO) if number % 4 < 2 else (LIVE, int(system_clock()))
        writer.write(producer_id, timestamp, transactional=True)
        if number % 2:
            writer.end(producer_id, timestamp, ControlType.ABORT if number % 3 else ControlType.COMMIT)


WRITERS = {
    each.__name__.removeprefix("write_"): each
    for each in (
        write_nothing,
        write_plain,
        write_idempotent,
        write_expired,
        write_all_expired,
        write_transactions,
    )
}


def bases(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def paths(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.snapshot"))


def keep(_: Path) -> None:
    """Change nothing."""


def lose_all(directory: Path) -> None:
    for path in paths(directory):
        path.unlink()


def lose_newest(directory: Path) -> None:
    for path in paths(directory)[-2:]:
        path.unlink()


def tear_newest(directory: Path) -> None:
    for path in paths(directory)[-2:]:
        path.write_bytes(path.read_bytes()[:7])


def flip_all(directory: Path) -> None:
    for path in paths(directory):
        path.write_bytes(path.read_bytes()[:-1] + b"\x55")


def add_strays(directory: Path) -> None:
    """Add snapshots at offsets that are not the base of a segment.

    Two of these offsets are above the last base, and one of the two is beyond the log's end.
    """
    content = paths(directory)[-1].read_bytes() if paths(directory) else bytes.fromhex("000148674bc700000000")
    for offset in (3, 17, max(bases(directory)) + 1, 5_000):
        (directory / f"{offset:020d}.snapshot").write_bytes(content)


def lose_an_index(directory: Path) -> None:
    """Remove the first segment's index, so that the segment is recovered even after a clean close."""
    (directory / f"{0:020d}.index").unlink()


def lose_the_beginning(directory: Path) -> None:
    """Remove the segments before the middle segment, as retention does, but leave the checkpoints as they are."""
    middle = bases(directory)[len(bases(directory)) // 2]
    for path in directory.glob("0*"):
        if int(path.stem) < middle:
            path.unlink()


def tear_the_log(directory: Path) -> None:
    """Cut the middle segment's log, so that recovery drops all later segments."""
    middle = bases(directory)[len(bases(directory)) // 2]
    path = directory / f"{middle:020d}.log"
    path.write_bytes(path.read_bytes()[:-9])


DAMAGES: Mapping[str, Callable[[Path], None]] = {
    each.__name__: each
    for each in (
        keep,
        lose_all,
        lose_newest,
        tear_newest,
        flip_all,
        add_strays,
        lose_an_index,
        lose_the_beginning,
        tear_the_log,
    )
}
STARTS = ("none", "inside", "at-base", "end")
POINTS = ("zero", "middle", "end")


class Case(NamedTuple):
    """The kind of log, the damage to its files, and its checkpoints."""

    kind: str
    damage: str
    log_start: str
    recovery_point: str
    clean: bool

    def start_offset(self, directory: Path, end_offset: int) -> int:
        middle = bases(directory)[len(bases(directory)) // 2]
        return {"none": 0, "inside": middle + 1 if middle else 0, "at-base": middle, "end": end_offset}[
            self.log_start
        ]

    def recovery_offset(self, directory: Path, end_offset: int) -> int:
        middle = bases(directory)[len(bases(directory)) // 2]
        return {"zero": 0, "middle": middle, "end": end_offset}[self.recovery_point]

    @property
    def name(self) -> str:
        return "-".join([*self[:4], "clean" if self.clean else "unclean"])


def _cases(*, clean: bool) -> list[Case]:
    return [
        Case(kind, damage, log_start, point, clean)
        for kind in WRITERS
        for damage in DAMAGES
        for log_start in STARTS
        for point in (("end",) if clean else POINTS)
        if kind != "nothing" or (damage in ("keep", "add_strays") and log_start == "none")
    ]


class Copies(NamedTuple):
    """The broker's snapshots and our engine's snapshots of one case, by name."""

    brokers: Snapshots
    own: Snapshots


class Outcome(NamedTuple):
    """The snapshots of one case after the recovery and after the close, and its leader epochs after the close."""

    case: Case
    recovered: Copies
    closed: Copies
    brokers_epochs: Entries
    own_epochs: Entries


def snapshots(directory: Path) -> Snapshots:
    return {path.name: path.read_bytes() for path in paths(directory)}


def epochs_below(directory: Path, end_offset: Offset) -> Entries:
    """Return the epochs in a log's epoch file that begin below `end_offset`.

    The later epochs are those in which the broker led.
    """
    file = directory / names.LEADER_EPOCHS
    return truncate_from_end(decode_epochs(file.read_bytes(), file=file), end_offset)


def write_logs(home: Path) -> dict[str, tuple[Path, int]]:
    """Write a closed log of each kind; return each log's directory and end offset by kind."""
    logs = {}
    for kind, write in WRITERS.items():
        directory = home / kind / f"{TOPIC}-0"
        log = ours.load(directory, SETTINGS, clean=True)
        write(Writer(log))
        logs[kind] = directory, int(log.offsets().log_end_offset)
        log.close()
    return logs


def set_checkpoints(log_dir: Path, which: str, offsets: Mapping[TopicPartition, int]) -> None:
    known = read_offsets(FILES, log_dir / which)
    write_offsets(FILES, log_dir / which, {**known, **{one: Offset(at) for one, at in offsets.items()}})


def run(broker: Broker, logs: Mapping[str, tuple[Path, int]], home: Path, cases: list[Case]) -> list[Outcome]:
    """Run every case in partitions of a broker that is started once, and in directories of our engine."""
    offsets: list[tuple[int, int]] = []
    for number, case in enumerate(cases):
        source, end_offset = logs[case.kind]
        start = case.start_offset(source, end_offset)
        offsets.append((start, max(start, case.recovery_offset(source, end_offset))))
        own = shutil.copytree(source, home / f"own-{number}" / f"{TOPIC}-0")
        DAMAGES[case.damage](own)
        place(own, broker.log_dir / f"{TOPIC}-{number}")
    partitions = [TopicPartition(TOPIC, number) for number in range(len(cases))]
    starts = dict(zip(partitions, (start for start, _ in offsets), strict=True))
    points = dict(zip(partitions, (point for _, point in offsets), strict=True))
    set_checkpoints(broker.log_dir, names.LOG_START_OFFSETS, starts)
    set_checkpoints(broker.log_dir, names.RECOVERY_POINTS, points)
    set_checkpoints(broker.log_dir, names.HIGH_WATERMARKS, starts)
    if not cases[0].clean:
        (broker.log_dir / names.CLEAN_SHUTDOWN).unlink()
    broker.start()
    recovered = [snapshots(broker.log_dir / f"{TOPIC}-{number}") for number in range(len(cases))]
    broker.stop()
    outcomes = []
    for number, case in enumerate(cases):
        own, brokers = home / f"own-{number}" / f"{TOPIC}-0", broker.log_dir / f"{TOPIC}-{number}"
        start, point = offsets[number]
        log = ours.load(own, SETTINGS, clean=case.clean, recovery_point=point, log_start_offset=start)
        after_recovery = Copies(recovered[number], snapshots(own))
        log.close()
        outcomes.append(
            Outcome(
                case,
                after_recovery,
                Copies(snapshots(brokers), snapshots(own)),
                epochs_below(brokers, log.log_end_offset),
                epochs_below(own, log.log_end_offset),
            )
        )
    return outcomes


def place(source: Path, target: Path) -> None:
    for file in target.iterdir():
        if file.name != names.PARTITION_METADATA:
            file.unlink()
    for file in source.iterdir():
        if file.name != names.PARTITION_METADATA:
            shutil.copyfile(file, target / file.name)


@pytest.fixture(scope="module")
def outcomes(java: Java, tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """The outcomes of all cases: of those with an unclean shutdown, and of those with a clean one."""
    home = tmp_path_factory.mktemp("snapshots")
    logs = write_logs(home)
    assert all(len(bases(directory)) > 4 for kind, (directory, _) in logs.items() if kind != "nothing")
    unclean, clean = _cases(clean=False), _cases(clean=True)
    with running_broker(home / "node", java, LAZY) as broker:
        Client(broker.bootstrap_server).create_topic(TOPIC, partitions=len(unclean), settings=SETTINGS)
        broker.stop()
        found = run(broker, logs, home / "unclean", unclean)
        return [*found, *run(broker, logs, home / "clean", clean)]


def differing(outcomes: list[Outcome], which: Callable[[Outcome], Copies]) -> list[str]:
    """Return a line for each file that differs: the case, the file, the broker's bytes and ours."""
    return [
        f"{one.case.name} {name}: {_hex(which(one).brokers.get(name))}, ours {_hex(which(one).own.get(name))}"
        for one in outcomes
        for name in sorted({*which(one).brokers, *which(one).own})
        if which(one).brokers.get(name) != which(one).own.get(name)
    ]


def _hex(content: bytes | None) -> str:
    return "none" if content is None else content.hex()


def test_a_recovery_leaves_the_brokers_snapshots(outcomes: list[Outcome]) -> None:
    """After a recovery our snapshots have the broker's names and contents, whatever was lost."""
    assert [] == differing(outcomes, lambda one: one.recovered)


def test_the_clean_close_behind_it_leaves_the_brokers_snapshots(outcomes: list[Outcome]) -> None:
    """After the recovery and a clean close without appends our snapshots equal the broker's snapshots."""
    assert [] == differing(outcomes, lambda one: one.closed)


def test_the_leader_epochs_are_the_brokers(outcomes: list[Outcome]) -> None:
    """After the recovery and a clean close our leader epochs on disk equal the broker's leader epochs."""
    assert [(one.case.name, one.brokers_epochs) for one in outcomes] == [
        (one.case.name, one.own_epochs) for one in outcomes
    ]
