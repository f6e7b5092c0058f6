"""Skipping valid batches in bulk finds the same faults as checking batches one by one."""

from __future__ import annotations

import shutil
from functools import reduce
from pathlib import Path
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.engines import append_lines
from tests.doubles.records import batch
from topicfs.inspection.check import batches as checking
from topicfs.inspection.check.batches import BatchCheck
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.inspection.check.sound_batches import Expected, end_of_sound
from topicfs.replication import open_engine
from topicfs.storage.checkpoints.clean_shutdown import mark_clean
from topicfs.storage.checkpoints.leader_epochs import EpochEntry, assign
from topicfs.storage.codec.batch import scan, seal, set_append_time
from topicfs.storage.codec.columns import decode
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.model import Offset

FILE = Path("00000000000000000010.log")
BASE = 10
SECOND_RECORD = 61 + 8
"""Position of the second record in a batch whose first value has one byte; its offset delta is 3 bytes further."""
EVERYTHING = Expected(BASE, BASE + 1000, 0, BASE + 1000)

one = st.fixed_dictionaries(
    {
        "gap": st.sampled_from([0, 0, 0, 0, 1, -1]),
        "epoch": st.sampled_from([0, 0, 0, 0, 1, -1]),
        "times": st.lists(st.integers(0, 3), min_size=1, max_size=3),
        "harm": st.sampled_from(["", "", "", "", "max timestamp", "record", "append time"]),
    }
)
checkpoints = st.lists(
    st.builds(EpochEntry, st.integers(0, 2), st.integers(BASE - 2, BASE + 12)), max_size=3
).map(lambda found: reduce(assign, found, ()))
"""Leader epoch checkpoints with ascending epochs and offsets."""


def _harmed(data: bytearray, harm: str) -> bytearray:
    """Harm a batch and correct its checksum, so that only the content shows the fault."""
    if harm == "max timestamp":
        data[35:43] = (9).to_bytes(8, "big")
    elif harm == "append time":
        set_append_time(data, 0, 7)
    elif harm == "record" and len(data) > SECOND_RECORD + 3:
        data[SECOND_RECORD + 3] = 0
    seal(data, 0, len(data))
    return data


def _log(made: list[dict]) -> bytes:
    log, end_offset = bytearray(), BASE
    for each in made:
        offset = max(end_offset + each["gap"], 0)
        values = [b"v"] * len(each["times"])
        data = batch(*values, timestamp=each["times"], offset=offset, epoch=each["epoch"])
        log += _harmed(data, each["harm"])
        end_offset = offset + len(values)
    return bytes(log)


def _check(log: bytes, epochs: tuple[EpochEntry, ...]) -> tuple[list[str], Offset, Offset]:
    check = BatchCheck(FILE, Offset(BASE), epochs)
    found = [str(finding) for finding in check.check(memoryview(log), scan(log))]
    return found, check.end_offset, check.reach


@given(st.lists(one, min_size=1, max_size=8), checkpoints)
def test_bulk_and_single_checks_agree(made, epochs):
    """The bulk check and the single check agree on findings and log end, for any fault and any checkpointed epochs."""
    log = _log(made)
    together = _check(log, epochs)
    with mock.patch.object(checking, "end_of_sound", lambda _columns, first, _expected: first):
        assert _check(log, epochs) == together


@given(st.lists(one, min_size=1, max_size=8))
def test_sound_batches_end_with_the_first_that_is_not(made):
    """In a log without gaps and with one epoch, the run of valid batches ends before the first harmed batch."""
    log = _log([each | {"gap": 0, "epoch": 0} for each in made])
    (columns,) = decode(log, control=True)
    harmed = [
        number
        for number, each in enumerate(made)
        if each["harm"] == "max timestamp" or (each["harm"] == "record" and len(each["times"]) > 1)
    ]
    assert min(harmed, default=len(made)) == end_of_sound(columns, 0, EVERYTHING)


def test_limits_are_kept_to_the_offset():
    """The run of valid batches ends with the largest offset, or just before the end offset of the epoch.

    A batch below the start offset, or of another epoch, is not valid.
    """
    (columns,) = decode(_log([{"gap": 0, "epoch": 0, "times": [1], "harm": ""}] * 5), control=True)
    assert 5 == end_of_sound(columns, 0, EVERYTHING)
    assert 5 == end_of_sound(columns, 3, EVERYTHING)
    assert 0 == end_of_sound(columns, 0, EVERYTHING._replace(start_offset=BASE + 1))
    assert 3 == end_of_sound(columns, 0, EVERYTHING._replace(largest_offset=BASE + 2))
    assert 2 == end_of_sound(columns, 0, EVERYTHING._replace(epoch_end_offset=BASE + 2))
    assert 0 == end_of_sound(columns, 0, EVERYTHING._replace(leader_epoch=1))


def test_an_offset_far_above_all_others_is_only_a_finding():
    """A wrong base offset, which no checksum covers, is a finding, and the check continues after it."""
    log = _log([{"gap": 0, "epoch": 0, "times": [1], "harm": ""}] * 3)
    found, end_offset, _reach = _check((2**62).to_bytes(8, "big") + log[8:], ())
    assert 2**62 + 1 == end_offset
    assert any("too far above the segment's base offset" in each for each in found)


def test_a_segment_may_begin_at_the_largest_offsets():
    """A segment whose base offset plus largest offset delta exceeds 64 bits is checked correctly."""
    log = _log([{"gap": 0, "epoch": 0, "times": [1], "harm": ""}] * 3)
    check = BatchCheck(FILE, Offset(2**63 - 2), ())
    assert 3 == len(list(check.check(memoryview(log), scan(log))))


def _directory_of(tmp_path, settings, *, close, timestamp):
    """Make a data directory with one record, closed cleanly or killed."""
    tmp_path.mkdir(exist_ok=True)
    engine = open_engine(tmp_path / "data")
    topic = engine.create_topic("t", partitions=1, overrides=settings)
    append_lines(topic.partitions()[0], "a\n", timestamp=timestamp)
    if close:
        engine.close()
    left = Path(shutil.copytree(tmp_path / "data", tmp_path / "left"))
    engine.close()
    return left


def _findings(directory):
    return [str(each) for each in DirectoryCheck(directory, NativeFileSystem(read_only=True)).findings()]


def test_a_time_entry_of_zeros_is_an_entry(tmp_path):
    """A time index entry of zeros is valid if the log's first record has timestamp 0, and wrong otherwise."""
    directory = _directory_of(tmp_path, {}, close=True, timestamp=0)
    assert bytes(12) == (directory / "t-0" / f"{0:020}.timeindex").read_bytes()
    assert [] == _findings(directory)
    other = _directory_of(tmp_path / "other", {}, close=True, timestamp=5)
    (other / "t-0" / f"{0:020}.timeindex").write_bytes(bytes(12))
    (finding,) = _findings(other)
    assert "timestamp 0 up to offset 0, but the latest one there is 5" in finding


def test_zeros_of_a_preallocated_log_are_no_damage_after_a_kill(tmp_path):
    """After a kill, zeros at the end of a preallocated log are not damage.

    They are damage after a clean close, or if another byte is among them.
    """
    settings = {"preallocate": "true", "segment.bytes": str(3 << 20)}
    directory = _directory_of(tmp_path, settings, close=False, timestamp=5)
    log = directory / "t-0" / f"{0:020}.log"
    assert 3 << 20 == log.stat().st_size
    assert [] == _findings(directory)
    with log.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\1")
    (finding,) = _findings(directory)
    assert "recovery cuts it off" in finding
    with log.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\0")
    mark_clean(NativeFileSystem(), directory)
    assert any("recovery cuts it off" in each for each in _findings(directory))
