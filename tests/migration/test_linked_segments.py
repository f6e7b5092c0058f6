"""After a takeover with hard links, later writes to our segments leave the broker's files unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.doubles.damage import flip
from tests.doubles.handover import SETTINGS, numbered
from tests.doubles.records import read_records
from topicfs.migration.takeover import BrokerDirectories, Takeover
from topicfs.replication import open_engine
from topicfs.replication.scrub.repair import copy_at, mend
from topicfs.storage.codec.batch import scan
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk import names
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.log.log import Log
from topicfs.storage.manager import Machine
from topicfs.storage.model import Offset, Record

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
FIRST = f"orders-0/{0:020d}.log"
Change = Callable[[Path], None]
"""A change of a directory."""


@contextmanager
def served(directory: Path, machine: Machine | None = None) -> Iterator[Log]:
    """Serve a directory with one partition during the block; yields the partition's log."""
    with closing(open_engine(directory, config=EngineConfig(recovery_threads=1), machine=machine)) as engine:
        topic = engine.topics().get("orders") or engine.create_topic("orders", overrides=SETTINGS)
        log = topic.partitions()[0]
        assert isinstance(log, Log)
        yield log


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """A broker's directory with three segments, closed cleanly."""
    with served(tmp_path / "broker") as log:
        for first in range(0, 32, 4):
            log.append(numbered(first, 4))
        assert 3 == len(log.chain.segments)
    return tmp_path / "broker"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def take(broker: Path, data: Path) -> None:
    source = BrokerDirectories(log_dirs=[broker], without_settings=True)
    Takeover(source, [data], report=lambda _: None).take(link=True)


def bytes_below(directory: Path) -> dict[Path, tuple[bytes, int]]:
    """Return content and mtime of every file below `directory`."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def kill(directory: Path) -> None:
    """Leave the directory in the state after SIGKILL before the first flush."""
    (directory / names.CLEAN_SHUTDOWN).unlink()
    (directory / names.RECOVERY_POINTS).write_text("0\n0\n")


def second_batch(directory: Path) -> int:
    return scan((directory / FIRST).read_bytes())[1].position


@pytest.mark.parametrize(
    ("position", "bit"),
    [(70, 1), (7, 16), (16, 8), (11, 4)],
    ids=["records", "base offset", "magic", "length"],
)
def test_recovery_cuts_and_repairs_our_copy_alone(broker: Path, data: Path, position: int, bit: int) -> None:
    """After a takeover of a killed broker, recovery writes to a copy of the linked segment.

    The second batch of the segment is damaged, so that recovery truncates the segment there.
    """
    flip(broker / FIRST, second_batch(broker) + position, bit)
    kill(broker)
    before = bytes_below(broker)
    take(broker, data)
    assert before == bytes_below(broker)
    assert 1 == (data / FIRST).stat().st_nlink
    assert (data / FIRST).read_bytes() != (broker / FIRST).read_bytes()


def truncate(data: Path) -> None:
    with served(data) as log:
        log.replacer.truncate_to(Offset(4), "another leader")


def start_over(data: Path) -> None:
    with served(data) as log:
        log.replacer.truncate_fully_and_start_at(Offset(100), "another leader")


def append_to_the_first(data: Path) -> None:
    """Append to the first segment, which a truncation has made the last segment."""
    with served(data) as log:
        log.replacer.truncate_to(Offset(8), "another leader")
        log.append(numbered(8, 4))


def write_again(data: Path) -> None:
    """Write all records again, as after a disk failure that may have lost flushed data."""
    kill(data)
    with served(data, Machine(failed_before=True)):
        pass


def heal(data: Path) -> None:
    """Overwrite a damaged batch with a valid one."""
    with served(data) as log:
        copy = copy_at("data", log, Offset(0))
        assert copy is not None
        position = second_batch(data)
        sound = (data / FIRST).read_bytes()[position : position + 80]
        mend(copy, position, sound[:-1] + bytes([sound[-1] ^ 1]), nullcontext)


def recover(data: Path) -> None:
    """Recover from a kill after the takeover, then truncate the log."""
    kill(data)
    with served(data) as log:
        log.replacer.truncate_to(Offset(7), "half of a batch")


def compact(data: Path) -> None:
    with closing(open_engine(data)) as engine:
        engine.alter_config("orders", COMPACTED)
        engine.maintain_now(engine.partition("orders", 0).status().last_timestamp)
    assert [0, 4, 8] != [batch.base_offset for batch in scan((data / FIRST).read_bytes())]


def delete(data: Path) -> None:
    with served(data) as log:
        log.delete_records(Offset(20))


def check_untouched(broker: Path, data: Path, change: Change) -> None:
    take(broker, data)
    assert 2 == (data / FIRST).stat().st_nlink
    before, records = bytes_below(broker), records_in(broker)
    change(data)
    assert before == bytes_below(broker)
    assert records == records_in(broker)


@pytest.mark.parametrize("change", [truncate, append_to_the_first, write_again, heal, recover])
def test_what_writes_to_our_segments_later(broker: Path, data: Path, change: Change) -> None:
    """The engine copies a linked segment before writing to it, however long after the takeover."""
    check_untouched(broker, data, change)
    assert 1 == (data / FIRST).stat().st_nlink


@pytest.mark.parametrize("change", [start_over, compact, delete])
def test_what_replaces_our_segments_later(broker: Path, data: Path, change: Change) -> None:
    """Renaming or removing a linked segment makes no copy, and the broker's file keeps its name."""
    check_untouched(broker, data, change)


def records_in(directory: Path) -> list[Record]:
    with closing(
        open_engine(directory, read_only=True, machine=Machine(files=NativeFileSystem(read_only=True)))
    ) as engine:
        return read_records(engine.partition("orders", 0))


def test_reading_and_closing_keep_the_links(broker: Path, data: Path) -> None:
    """Starts, reads and appends to the last segment keep the hard links, which save space."""
    take(broker, data)
    for _ in range(2):
        with served(data) as log:
            assert records_in(broker) == read_records(log)[: len(records_in(broker))]
            log.append(numbered(100, 4))
    assert 2 == (data / FIRST).stat().st_nlink
