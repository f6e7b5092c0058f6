"""Tests of the timestamps that a leader accepts: message.timestamp.before.max.ms and after.max.ms."""

from __future__ import annotations

import pytest

from tests.doubles.logs import LogOnDisk, offsets_of
from tests.doubles.records import batch
from topicfs.storage.codec.records import BatchStamp
from topicfs.storage.errors import InvalidTimestampError
from topicfs.storage.model import TimestampType


def test_only_the_largest_limit_before_now_refuses_nothing():
    """message.timestamp.before.max.ms accepts every past time only if it has the largest value, 2**63 - 1."""
    earliest = -(2**63)
    unlimited = LogOnDisk(message_timestamp_before_max_ms=2**63 - 1)
    unlimited.log.append(batch(b"a", timestamp=earliest))
    limited = LogOnDisk(message_timestamp_before_max_ms=2**62)
    with pytest.raises(InvalidTimestampError, match=r"before.max.ms"):
        limited.log.append(batch(b"a", timestamp=earliest))
    assert ([0], []) == (offsets_of(unlimited.log), offsets_of(limited.log))


def test_a_batch_marked_with_the_logs_time_may_not_be_too_far_from_now():
    """A client's batch that is marked LogAppendTime is refused if the time in its header is beyond the limits."""
    on_disk = LogOnDisk(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    now, stamp = on_disk.clock.now, BatchStamp(timestamp_type=TimestampType.LOG_APPEND_TIME)
    with pytest.raises(InvalidTimestampError, match=r"after.max.ms"):
        on_disk.log.append(batch(b"a", timestamp=now + 501, stamp=stamp))
    with pytest.raises(InvalidTimestampError, match=r"before.max.ms"):
        on_disk.log.append(batch(b"a", timestamp=now - 1001, stamp=stamp))
    on_disk.log.append(batch(b"a", timestamp=now + 500, stamp=stamp))
    assert [0] == offsets_of(on_disk.log)
