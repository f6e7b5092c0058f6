"""Tests of a job's progress, read from the files of its checkpoint as Spark writes them."""

from __future__ import annotations

import pytest

from topicfs.jobs.commit_group import offsets_done
from topicfs.pipeline.errors import PipelineError
from topicfs.storage.model import TopicPartition


def checkpoint(directory, *, offsets, commits):
    for folder, files in (("offsets", offsets), ("commits", dict.fromkeys(commits, "v1\n{}"))):
        (directory / folder).mkdir()
        for name, text in files.items():
            (directory / folder / name).write_text(text)
    return directory


def batch(*lines):
    return "\n".join(["v1", '{"batchWatermarkMs":0}', *lines])


def test_the_last_batch_that_is_done_counts(tmp_path):
    """A job's progress is the highest batch number that Spark has committed; a batch that only began does not count."""
    offsets = {
        "9": batch('{"orders": {"0": 5}}'),
        "10": batch('{"orders": {"0": 7, "1": 3}}'),
        "11": batch('{"orders": {"0": 9}}'),
        ".11.crc": "x",
    }
    found = offsets_done(checkpoint(tmp_path, offsets=offsets, commits=("9", "10", ".10.crc")))
    assert {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 3} == found.offsets


def test_each_source_has_a_line(tmp_path):
    """A batch's file has a line per source, `-` for a source that has not begun; topic ids are kept separately."""
    lines = ('{"orders": {"0": 5}, "orders@AAAAAAAAAAAAAAAAAAAAAA": {}}', "-", '{"clicks": {"2": 1}}')
    found = offsets_done(checkpoint(tmp_path, offsets={"0": batch(*lines)}, commits=("0",)))
    assert {TopicPartition("orders", 0): 5, TopicPartition("clicks", 2): 1} == found.offsets
    assert {"orders": "A" * 22} == found.topic_ids


def test_before_the_first_batch_there_is_nothing(tmp_path):
    """There are no offsets before the first batch is done, or if there is no checkpoint."""
    assert ({}, {}) == offsets_done(tmp_path / "none")
    assert ({}, {}) == offsets_done(checkpoint(tmp_path, offsets={"0": batch("{}")}, commits=()))


@pytest.mark.parametrize("line", ["{", "7", '{"orders": 7}', '{"orders": {"x": 1}}'])
def test_an_invalid_offset_is_reported(tmp_path, line):
    """The error for a line that is not an offset names the file."""
    with pytest.raises(PipelineError, match="offsets/0: not the offsets of a query"):
        offsets_done(checkpoint(tmp_path, offsets={"0": batch(line)}, commits=("0",)))
