"""Tests that records with extreme field values survive recovery, append, roll, compaction, retention, reopening."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.ends_of_records import logs, write_logs
from tests.doubles.logs import LogOnDisk
from tests.doubles.manual_clock import ManualClock
from tests.doubles.records import batch, read_records, record
from topicfs.storage.codec.records import encode
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.errors import InvalidRecordError
from topicfs.storage.manager import LogManager, Machine, open_engine
from topicfs.storage.model import LATEST_TIMESTAMP, MAX_OFFSET, Isolation

DAY_MS = 86_400_000
COMPACTED = TopicConfig(
    cleanup_policy=("compact", "delete"), retention_ms=-1, min_cleanable_dirty_ratio=0.0, segment_ms=1
)


def opened(path: Path, clock: ManualClock) -> LogManager:
    return open_engine(
        path,
        config=EngineConfig(recovery_threads=1, topic_defaults=COMPACTED),
        machine=Machine(clock=clock),
    )


def test_any_record_of_a_broker_is_read_compacted_and_found_again(tmp_path: Path):
    """Each record of a broker can be read. Duties and a restart neither fail nor lose the newest record."""
    names, clock = write_logs(tmp_path / "data"), ManualClock()
    engine = opened(tmp_path / "data", clock)
    ends = {}
    for name in names:
        partition = engine.partition(name, 0)
        assert len(logs()[name][1]) == len(read_records(partition, isolation=Isolation.READ_UNCOMMITTED))
        if partition.log_end_offset <= MAX_OFFSET:
            partition.append(batch(b"more", timestamp=clock(), key=b"k"))
        ends[name] = partition.log_end_offset
    for _ in range(2):
        engine.plan_maintenance(clock())
        engine.maintain_now(clock())
        clock.advance(2 * DAY_MS)
    assert () == engine.warnings
    engine.close()
    engine = opened(tmp_path / "data", clock)
    assert ends == {name: engine.partition(name, 0).log_end_offset for name in names}
    newest = {name: read_records(engine.partition(name, 0))[-1].offset for name in names}
    assert {name: end - 1 for name, end in ends.items()} == newest
    assert () == engine.warnings
    engine.close()


@pytest.mark.parametrize("encoded_here", [False, True])
def test_a_log_ends_at_the_last_offset_that_is_read_again(encoded_here: bool):
    """An append beyond MAX_OFFSET is refused and leaves nothing."""
    on_disk = LogOnDisk()
    on_disk.log.appender.append_as_follower(batch(b"v", offset=MAX_OFFSET - 2))
    on_disk.log.append(batch(b"v"), encoded_here=encoded_here)
    for count in (2, 1, 1):
        records = encode([record(offset) for offset in range(count)])
        if on_disk.log.log_end_offset + count <= MAX_OFFSET + 1:
            on_disk.log.append(records, encoded_here=encoded_here)
        else:
            with pytest.raises(InvalidRecordError, match="use another topic"):
                on_disk.log.append(records, encoded_here=encoded_here)
    assert MAX_OFFSET + 1 == on_disk.log.log_end_offset
    on_disk.reopen()
    assert [MAX_OFFSET - 2, MAX_OFFSET - 1, MAX_OFFSET] == [one.offset for one in read_records(on_disk.log)]


@pytest.mark.parametrize("encoded_here", [False, True])
def test_the_latest_time_is_appended_where_a_topic_takes_it(encoded_here: bool):
    """If both limits on timestamps have the largest value, records with the latest time can be appended repeatedly."""
    on_disk = LogOnDisk(message_timestamp_after_max_ms=LATEST_TIMESTAMP, segment_ms=LATEST_TIMESTAMP)
    for timestamp in (0, LATEST_TIMESTAMP, 0, LATEST_TIMESTAMP):
        on_disk.log.append(batch(b"v", timestamp=timestamp), encoded_here=encoded_here)
    on_disk.reopen()
    on_disk.log.append(batch(b"v", timestamp=LATEST_TIMESTAMP), encoded_here=encoded_here)
    on_disk.log.append(batch(b"v", timestamp=LATEST_TIMESTAMP), encoded_here=encoded_here)
    times = [0, LATEST_TIMESTAMP, 0, *[LATEST_TIMESTAMP] * 3]
    assert times == [one.timestamp for one in read_records(on_disk.log)]
