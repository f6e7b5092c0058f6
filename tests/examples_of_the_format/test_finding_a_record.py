"""Tests of the lookups that articles explain, compared with the steps that `topicfs explain` prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.examples_of_the_format.segments import BatchAt, segment_bytes, write_marks, write_segment
from topicfs.main import run


def explain(data: Path, offset: int, capsys) -> list[dict]:
    """Return the steps of a lookup in partition t-0, as `topicfs explain --json` prints them."""
    assert 0 == run(["explain", "--json", "--data", str(data), f"t/0/{offset}"])
    return json.loads(capsys.readouterr().out)["lookups"][0]["steps"]


def of_kind(steps: list[dict], kind: str) -> dict:
    return next(step for step in steps if step["step"] == kind)


def test_offset_140_in_segments_0_and_100000_by_the_index_entry_129_at_4146(tmp_path, capsys):
    """Index bytes 00 00 00 81 00 00 10 32 map relative offset 129 to position 4146, from where a scan finds 140."""
    partition = tmp_path / "t-0"
    log = segment_bytes([BatchAt(0, 128, 4146), BatchAt(129, 129, 4300), BatchAt(130, 145, 4800)])
    write_segment(partition, 0, log, bytes.fromhex("0000008100001032"))
    write_segment(partition, 100_000, segment_bytes([BatchAt(100_000, 100_001, 200)]))
    write_marks(tmp_path, "t-0", 100_002)
    steps = explain(tmp_path, 140, capsys)
    assert ([0, 100_000], 0) == (steps[0]["base_offsets"], steps[0]["chosen"])
    index = of_kind(steps, "index_searched")
    assert (129, 4146) == (index["found_key"], index["found_value"])
    assert 4146 == of_kind(steps, "scan_began")["position"]
    assert (129, 129) == tuple(
        of_kind(steps, "batch_passed")[name] for name in ("base_offset", "last_offset")
    )
    assert 4300 == of_kind(steps, "batch_found")["position"]
    assert 140 == of_kind(steps, "record_found")["offset"]


def test_offset_368_in_segments_0_300_and_600_by_key_68_of_the_second(tmp_path, capsys):
    """A lookup takes the largest base offset up to 368, then the largest relative offset, then scans forward."""
    partition = tmp_path / "t-0"
    write_segment(partition, 0, segment_bytes([BatchAt(0, 299, 5000)]))
    log = segment_bytes([BatchAt(300, 350, 1500), BatchAt(351, 368, 2100), BatchAt(369, 599, 6000)])
    write_segment(partition, 300, log, (68).to_bytes(4, "big") + (1500).to_bytes(4, "big"))
    write_segment(partition, 600, segment_bytes([BatchAt(600, 700, 3000)]))
    write_marks(tmp_path, "t-0", 701)
    steps = explain(tmp_path, 368, capsys)
    assert ([0, 300, 600], 300) == (steps[0]["base_offsets"], steps[0]["chosen"])
    index = of_kind(steps, "index_searched")
    assert (300 + 68, 1500) == (index["found_key"], index["found_value"])
    assert 1500 == of_kind(steps, "batch_found")["position"]
    assert 368 == of_kind(steps, "record_found")["offset"]


def test_offset_368776_in_the_segment_of_base_368769_by_relative_6_at_1407(tmp_path, capsys):
    """The index has no entry for relative offset 7, so a scan from the entry 6 at 1407 finds the record at 1508."""
    log = segment_bytes(
        [BatchAt(368_769, 368_774, 1407), BatchAt(368_775, 368_775, 1508), BatchAt(368_776, 368_776, 1700)]
    )
    write_segment(tmp_path / "t-0", 368_769, log, (6).to_bytes(4, "big") + (1407).to_bytes(4, "big"))
    write_marks(tmp_path, "t-0", 368_777)
    steps = explain(tmp_path, 368_776, capsys)
    index = of_kind(steps, "index_searched")
    assert (368_775, 1407) == (index["found_key"], index["found_value"])
    assert 1407 == of_kind(steps, "batch_passed")["position"]
    assert 1508 == of_kind(steps, "batch_found")["position"]
    assert 368_776 == of_kind(steps, "record_found")["offset"]


def test_offset_7_in_the_first_segment_by_the_entry_6_at_9807(tmp_path, capsys):
    """The last index entry up to 7 is 6 at 9807, from where a scan finds 7."""
    log = segment_bytes(
        [BatchAt(0, 3, 4597), BatchAt(4, 5, 9807), BatchAt(6, 6, 10_100), BatchAt(7, 9, 10_400)]
    )
    entries = [(3, 0), (5, 4597), (6, 9807)]
    index = b"".join(offset.to_bytes(4, "big") + position.to_bytes(4, "big") for offset, position in entries)
    write_segment(tmp_path / "t-0", 0, log, index)
    write_marks(tmp_path, "t-0", 10)
    steps = explain(tmp_path, 7, capsys)
    assert 9807 == of_kind(steps, "scan_began")["position"]
    assert 10_100 == of_kind(steps, "batch_found")["position"]
    assert 7 == of_kind(steps, "record_found")["offset"]


@pytest.mark.parametrize("offset", [0, 3, 4, 6, 9])
def test_every_other_offset_of_that_segment_is_found_too(tmp_path, capsys, offset):
    """A lookup never uses an index entry above its target offset."""
    log = segment_bytes(
        [BatchAt(0, 3, 4597), BatchAt(4, 5, 9807), BatchAt(6, 6, 10_100), BatchAt(7, 9, 10_400)]
    )
    entries = [(5, 4597), (6, 9807)]
    index = b"".join(at.to_bytes(4, "big") + position.to_bytes(4, "big") for at, position in entries)
    write_segment(tmp_path / "t-0", 0, log, index)
    write_marks(tmp_path, "t-0", 10)
    assert offset == of_kind(explain(tmp_path, offset, capsys), "record_found")["offset"]


@pytest.mark.parametrize(
    ("offset", "entry"), [(36, (29, 1000)), (37, (29, 1000)), (38, (38, 2000)), (39, (38, 2000))]
)
def test_offsets_36_and_37_are_found_through_the_entry_before_38(tmp_path, capsys, offset, entry):
    """The entry of offset 38 leads to the batch of 36 to 38, but lookups of 36 and 37 need an earlier entry."""
    log = segment_bytes(
        [
            BatchAt(0, 28, 1000),
            BatchAt(29, 29, 1500),
            BatchAt(30, 35, 2000),
            BatchAt(36, 38, 2500),
            BatchAt(39, 45, 3000),
        ]
    )
    index = b"".join(
        at.to_bytes(4, "big") + position.to_bytes(4, "big") for at, position in [(29, 1000), (38, 2000)]
    )
    write_segment(tmp_path / "t-0", 0, log, index)
    write_marks(tmp_path, "t-0", 46)
    steps = explain(tmp_path, offset, capsys)
    searched = of_kind(steps, "index_searched")
    assert entry == (searched["found_key"], searched["found_value"])
    assert (2000 if offset <= 38 else 2500) == of_kind(steps, "batch_found")["position"]
    assert offset == of_kind(steps, "record_found")["offset"]
