"""While a real mount compacts a log, names, sizes, ranges and open files stay correct."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from tests.fusefs.mounted.conftest import Mount, status
from topicfs.replication import open_engine
from topicfs.storage.codec.records import encode
from topicfs.storage.model import Offset, Record, Timestamp

pytestmark = pytest.mark.fuse

ROUNDS = 40
KEYS = 3
LAST = ROUNDS * KEYS - 1


@pytest.fixture
def mount(unmounted: Mount) -> Mount:
    """A mount with frequent compaction; topic `t` has small segments, three keys, and one record per batch."""
    engine = open_engine(unmounted.data)
    engine.create_topic("t", overrides={"internal.segment.bytes": "400"})
    partition = engine.partition("t", 0)
    for number in range(ROUNDS * KEYS):
        key, value = b"k%d" % (number % KEYS), b"value %d" % number
        partition.append(encode([Record(Offset(0), Timestamp(1_700_000_000_000 + number), key, value)]))
    engine.close()
    return unmounted.start(engine={"cleaner_backoff_ms": 100})


@pytest.fixture
def topic(mount: Mount) -> Path:
    """The topic `t`, which is not compacted yet."""
    return mount.path / "t"


def compact(mount: Mount, topic: Path) -> None:
    """Enable compaction, and wait until it has run."""
    with (topic / "config").open("a") as config:
        config.write("cleanup.policy=compact\nmin.cleanable.dirty.ratio=0.01\n")
    wait_until(lambda: "t-0: compacted offsets 0 to " in mount.log, "the log is compacted")


def left(topic: Path) -> list[int]:
    """Return the offsets of the remaining records."""
    return [int(number) for number in re.findall(r'"offset":(\d+)', (topic / "0" / "log.json").read_text())]


def test_removed_offsets_are_gone_alone_and_skipped_in_ranges(mount, topic):
    """A removed record gives ENOENT and is skipped in ranges; the other records keep their names and content."""
    partition = topic / "0"
    assert "value 5" == partition.joinpath("5").read_text()
    compact(mount, topic)
    offsets = left(topic)
    assert LAST == offsets[-1]
    assert 5 not in offsets
    assert len(offsets) < 20
    wait_until(lambda: not partition.joinpath("5").exists(), "the name of a removed record is forgotten")
    with pytest.raises(FileNotFoundError):
        partition.joinpath("5.json").read_text()
    first = offsets[0]
    assert partition.joinpath(str(first)).read_text() == f"value {first}"
    assert partition.joinpath(f"0-{LAST}").read_text() == "".join(f"value {n}\n" for n in offsets)
    assert b"" == partition.joinpath("0-4").read_bytes()
    assert os.readlink(partition / "earliest") == str(first)
    assert partition.joinpath("-2").read_text() == f"value {LAST - 1}\nvalue {LAST}\n"


def test_sizes_after_a_compaction_agree_with_the_remaining_records(mount, topic):
    """After a compaction, `stat`, `wc`, `tail -c` and seeks agree with the remaining records, in each form."""
    partition = topic / "0"
    before = {name: (partition / name).stat().st_size for name in ("log", "log.kv", "log.json")}
    old = {name: (partition / name).read_bytes() for name in before}
    assert before == {name: len(content) for name, content in old.items()}
    compact(mount, topic)
    offsets = left(topic)
    for name in before:
        path = partition / name
        expected = b"".join(old[name].splitlines(keepends=True)[n] for n in offsets)
        wait_until(
            lambda path=path, expected=expected: path.stat().st_size == len(expected),
            f"{name} has its new size",
        )
        assert path.read_bytes() == expected
        with path.open("rb") as file:
            file.seek(len(expected) - 7)
            assert file.read() == expected[-7:]
    ran = mount.bash('wc -c < t/0/log; tail -c 10 t/0/log; grep -c "" t/0/log')
    text = "".join(f"value {n}\n" for n in offsets)
    assert ran.stdout == f"{len(text)}\n{text[-10:]}{len(offsets)}\n"


def test_an_open_file_reads_on_and_follows(mount, topic):
    """A `tail -f` that was started before a compaction shows each later record once."""
    partition = topic / "0"
    output = mount.base / "followed"
    with output.open("wb") as into:
        tail = subprocess.Popen(["tail", "-n", "2", "-f", "-s", "0.1", str(partition / "log")], stdout=into)
    try:
        wait_until(lambda: output.read_text().count("\n") == 2, "tail shows the last two lines")
        compact(mount, topic)
        for number in range(3):
            with (partition / "log.kv").open("a") as log:
                log.write(f"k0\tlater {number}\n")
        expected = f"value {LAST - 1}\nvalue {LAST}\nlater 0\nlater 1\nlater 2\n"
        wait_until(
            lambda: output.read_text() == expected, "tail shows the records appended after the compaction"
        )
    finally:
        tail.terminate()
        tail.wait(TIMEOUT_SECONDS)


def test_status_tells_of_compaction(mount, topic):
    """A partition's status shows the first dirty offset, the cleanable ratio and the last flush."""
    partition = topic / "0"
    assert "cleanable_ratio" not in status(partition)
    compact(mount, topic)
    wait_until(lambda: status(partition).get("cleanable_ratio") == "0.00", "nothing is left to clean")
    assert int(status(partition)["first_dirty_offset"]) > LAST - 10
    assert status(partition)["last_flush"].endswith("Z")


def test_segments_shows_the_rewritten_files(mount, topic):
    """`segments/` shows the rewritten files byte for byte."""
    directory = topic / "0" / "segments"
    first = directory / f"{0:020}.log"
    size = first.stat().st_size
    assert len(first.read_bytes()) == size
    compact(mount, topic)
    real = mount.data / "t-0" / first.name
    wait_until(lambda: first.read_bytes() == real.read_bytes(), "the mount shows the new file")
    assert first.stat().st_size == real.stat().st_size
    assert sorted(path.name for path in directory.glob("*.log")) == sorted(
        path.name for path in real.parent.glob("*.log")
    )
