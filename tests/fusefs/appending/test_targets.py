"""How the lines of one write are divided into appends."""

from __future__ import annotations

import pytest

from tests.doubles.memory_partition import MemoryPartition
from topicfs.fusefs.appending.targets import Encoder
from topicfs.fusefs.forms import VALUES
from topicfs.fusefs.reports import Reports
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.model import Timestamp

LINES = b"".join(b"%04d\n" % number for number in range(1000))


class SmallPartition(MemoryPartition):
    """A partition with low limits for the size of a batch and of a segment."""

    def __init__(self, *, max_message_bytes: int, segment_bytes: int) -> None:
        super().__init__()
        self._config = TopicConfig()._replace(
            max_message_bytes=max_message_bytes, segment_bytes=segment_bytes
        )

    @property
    def config(self) -> TopicConfig:
        return self._config


def append_sizes(*, max_message_bytes: int, segment_bytes: int) -> list[int]:
    """Return the sizes of the appends by which a thousand equal lines are stored."""
    encoder = Encoder(VALUES, lambda: Timestamp(0), Reports(lambda: Timestamp(0)))
    partition = SmallPartition(max_message_bytes=max_message_bytes, segment_bytes=segment_bytes)
    return [len(batches) for batches in encoder.appends(LINES, partition)]


@pytest.mark.parametrize(("spare", "appends"), [(0, 1), (-1, 2)])
def test_a_write_that_fills_a_segment_exactly_is_one_append(spare: int, appends: int):
    """A write that exactly fits into a segment is one append; if the segment is one byte smaller, it is two appends."""
    whole = sum(append_sizes(max_message_bytes=4000, segment_bytes=10_000_000))
    assert whole > 3 * 4000

    sizes = append_sizes(max_message_bytes=4000, segment_bytes=whole + spare)

    assert (appends, whole) == (len(sizes), sum(sizes))
