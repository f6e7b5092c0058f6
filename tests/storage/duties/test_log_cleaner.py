"""Tests of the cleaner as a duty of real engines: order, checkpoint, warnings, and concurrent operations."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.doubles.engines import DATA, QUIET, TINY_SEGMENTS, engine_on
from tests.doubles.logs import offsets_of
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk
from tests.doubles.waiting import wait_until
from topicfs.storage.codec.records import BatchStamp, decode, encode
from topicfs.storage.compaction.selection import CleaningPlan
from topicfs.storage.duties import log_cleaner
from topicfs.storage.log.log import Log
from topicfs.storage.manager import LogManager, open_engine
from topicfs.storage.model import Offset, Record, Timestamp

pytestmark = pytest.mark.slow

COMPACT = {**TINY_SEGMENTS, "cleanup.policy": "compact"}
CHECKPOINT = DATA / "cleaner-offset-checkpoint"
BACKOFF_MS = 15_000


def put(log: Log, key: bytes, value: bytes | None, *, time: int = 1_700_000_000_000, **stamp) -> int:
    record = Record(Offset(0), Timestamp(time), key, value)
    return log.append(encode([record], BatchStamp(**stamp))).base_offset


def topic(engine: LogManager, name: str, records: int, *, keys: int = 2, **overrides) -> Log:
    """Create a topic of small segments, append `records` records that use `keys` keys in turn, and return its log."""
    settings = {key.replace("_", "."): str(value) for key, value in overrides.items()}
    engine.create_topic(name, overrides={**COMPACT, **settings})
    log = engine.partition(name, 0)
    assert isinstance(log, Log)
    for number in range(records):
        put(log, b"k%d" % (number % keys), b"%060d" % number)
    return log


def clean(engine: LogManager, clock: ManualClock) -> None:
    clock.advance(BACKOFF_MS)
    engine.maintenance(clock())


def test_a_dirty_log_is_cleaned_when_the_backoff_has_passed(disk, engine, clock):
    """A cleaning keeps each key's newest record and the active segment, and writes the checkpoint."""
    log = topic(engine, "t", 9)
    active = log.chain.active.base_offset
    clock.advance(BACKOFF_MS - 1)
    engine.maintenance(clock())
    assert offsets_of(log) == list(range(9))
    clean(engine, clock)
    assert offsets_of(log) == list(range(active - 2, 9))
    assert disk.read_bytes(CHECKPOINT) == b"0\n1\nt 0 %d\n" % active
    assert (log.parts.first_dirty_offset, engine.warnings) == (active, ())


def test_the_checkpoint_outlives_a_restart(disk, engine, clock):
    """A second engine continues at the checkpoint, and cleans no record twice."""
    active = topic(engine, "t", 9).chain.active.base_offset
    clean(engine, clock)
    engine.close()
    again = engine_on(disk, clock=clock)
    log = again.partition("t", 0)
    assert log.status().first_dirty_offset == active
    clean(again, clock)
    assert 0 == log.rewrites


@pytest.mark.parametrize("line", [b"t 0 99", b"t 0 0"], ids=["beyond the end", "before the start"])
def test_a_bad_checkpoint_is_replaced_by_the_log_start(disk, engine, clock, line, caplog):
    """Row 119: if a checkpoint is outside of the log, opening drops it, and cleaning starts from the log start."""
    log = topic(engine, "t", 9, cleanup_policy="compact,delete")
    log.delete_records(Offset(1))
    engine.close()
    disk.write_bytes(CHECKPOINT, b"0\n1\n" + line + b"\n")
    with caplog.at_level(logging.INFO, "topicfs.storage"):
        again = engine_on(disk, clock=clock)
    assert "is outside offsets 1 to 9" in caplog.text
    opened = again.partition("t", 0)
    assert 1 == opened.status().first_dirty_offset
    clean(again, clock)
    assert opened.rewrites > 0


def test_truncation_lowers_the_checkpoint(disk, engine, clock):
    """A truncation lowers the checkpoint, so that later records are dirty."""
    log = topic(engine, "t", 9)
    clean(engine, clock)
    log.replacer.truncate_to(Offset(4))
    assert 4 == log.parts.first_dirty_offset
    clean(engine, clock)
    assert b"0\n1\nt 0 4\n" == disk.read_bytes(CHECKPOINT)


def test_a_log_that_was_truncated_meanwhile_is_not_clean_beyond_its_end(disk, engine, clock):
    """If a follower truncates its log during a cleaning, the checkpoint is not above the log's end afterwards."""
    log = topic(engine, "t", 4)
    assert 2 == len(log.chain.segments)
    cancel = log.listen(lambda: (cancel(), log.replacer.truncate_to(Offset(1))))
    clean(engine, clock)
    assert (1, 1) == (log.log_end_offset, log.parts.first_dirty_offset)
    assert b"0\n1\nt 0 1\n" == disk.read_bytes(CHECKPOINT)


def test_a_deleted_topic_leaves_no_checkpoint(disk, engine, clock):
    """A deleted topic's line is removed from the checkpoint.

    So a new topic of the same name begins with all its records dirty.
    """
    topic(engine, "t", 9)
    clean(engine, clock)
    engine.delete_topic("t")
    assert b"0\n0\n" == disk.read_bytes(CHECKPOINT)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines of the cleaner.

    Lines of other loggers are left out, because other tests may have changed the levels of these loggers.
    """
    return [one.getMessage() for one in caplog.records if one.name == "topicfs.storage.duties.log_cleaner"]


@pytest.mark.parametrize(("most", "less"), [("a", "b"), ("b", "a")])
def test_the_dirtiest_log_is_first(engine, clock, caplog, most, less):
    """Logs are cleaned in the order of their cleanable ratio. A log below the minimum ratio is not cleaned."""
    half = topic(engine, less, 12, keys=12)
    topic(engine, most, 9)
    clean(engine, clock)
    for number in range(16):
        put(half, b"new%d" % number, b"%060d" % number)
    for number in range(40):
        put(engine.partition(most, 0), b"k%d" % (number % 2), b"%060d" % number)
    idle = topic(engine, "idle", 9, min_cleanable_dirty_ratio="1")
    with caplog.at_level(logging.INFO, "topicfs.storage.duties.log_cleaner"):
        clean(engine, clock)
    assert [f"{most}-0", f"{less}-0"] == [line.split(":")[0] for line in told(caplog)]
    assert 0 == idle.rewrites


def test_overdue_records_are_cleaned_whatever_the_ratio(engine, clock, caplog):
    """A record older than max.compaction.lag.ms makes a log due, whatever its ratio is."""
    log = topic(engine, "t", 9, min_cleanable_dirty_ratio="1", max_compaction_lag_ms=60_000)
    clean(engine, clock)
    assert 0 == log.rewrites
    clock.advance(60_000)
    with caplog.at_level(logging.INFO, "topicfs.storage.duties.log_cleaner"):
        clean(engine, clock)
    assert "max.compaction.lag.ms has passed" in caplog.text


def test_each_cleaning_leaves_one_line(engine, clock, caplog):
    """A cleaning logs one line with the partition, offsets, reason, segments, records, bytes and time."""
    topic(engine, "t", 9)
    with caplog.at_level(logging.INFO, "topicfs.storage.duties.log_cleaner"):
        clean(engine, clock)
    (line,) = told(caplog)
    assert re.fullmatch(
        r"t-0: compacted offsets 0 to 7: dirty enough, cleanable ratio 1\.00; "
        r"segments 0{20} to 0{19}6 \(4\) -> 0{20} to 0{19}6 \(4\), 8 -> 2 records, \d+ -> \d+ bytes \(0 ms\)",
        line,
    )


def test_rolls_deletions_and_truncations_leave_one_line_each(engine, clock, caplog):
    """Each roll, deletion and truncation logs one line with the segment, reason, bytes and time."""
    engine.create_topic("t", overrides={**TINY_SEGMENTS, "retention.bytes": "1"})
    log = engine.partition("t", 0)
    with caplog.at_level(logging.INFO, "topicfs.storage.log"):
        for number in range(4):
            put(log, b"k", b"%060d" % number)
        clock.advance(400_000)
        engine.maintenance(clock())
        log.replacer.truncate_to(Offset(3), "for the test")
    assert caplog.messages == [
        f"t-0: rolled {0:020}: segment.bytes; 260 bytes, next is {2:020} (0 ms)",
        f"t-0: deleted {0:020}: retention.bytes=1; 520 -> 260 bytes (0 ms)",
        "t-0: truncated from offset 4 to 3: for the test; 260 -> 130 bytes (0 ms)",
    ]


def test_a_damaged_log_is_reported_once_and_the_others_go_on(disk, engine, clock):
    """A damaged log causes one warning, and is not cleaned until it is loaded again. Other logs are cleaned."""
    bad, good = topic(engine, "bad", 9), topic(engine, "good", 9)
    path = bad.directory / "00000000000000000002.log"
    data = bytearray(disk.read_bytes(path))
    data[-1] ^= 1
    disk.write_bytes(path, data)
    clean(engine, clock)
    assert good.rewrites > 0
    (warning,) = engine.warnings
    assert warning.startswith(f"bad-0: not compacted any more: {path}: position ")
    for _ in range(3):
        clean(engine, clock)
    assert (0, 1) == (bad.rewrites, len(engine.warnings))
    assert [] == [name for name in names(disk, bad) if name.endswith((".cleaned", ".swap"))]


def names(disk: SimulatedDisk, log: Log) -> list[str]:
    return [entry.name for entry in disk.list_directory(log.directory)]


def test_a_failing_disk_is_reported_once_and_tried_again(disk, engine, clock):
    """A failing disk causes one warning per reason. The log is cleaned when the disk works again."""
    log, other = topic(engine, "a", 9), topic(engine, "b", 9)
    for _ in range(2):
        disk.fail("rename", suffix="a-0/00000000000000000000.log.cleaned")
        clean(engine, clock)
        assert (0, 1) == (log.rewrites, len(engine.warnings))
    assert other.rewrites > 0
    assert engine.warnings[0].startswith("a-0: compaction: ")
    clean(engine, clock)
    assert log.rewrites > 0


def test_an_offline_log_is_left_alone(engine, clock):
    """An offline log is not cleaned and causes no warning."""
    log = topic(engine, "t", 9)
    log.parts.mark_offline("for the test")
    clean(engine, clock)
    assert (0, ()) == (log.rewrites, engine.warnings)


def test_without_the_cleaner_nothing_is_compacted(disk, clock):
    """With log.cleaner.enable=false the retention duty deletes segments of compacted topics as well."""
    engine = engine_on(disk, clock=clock, config=QUIET._replace(cleaner_enable=False))
    log = topic(engine, "t", 9, cleanup_policy="compact,delete", retention_ms=1000)
    clean(engine, clock)
    assert 0 == log.rewrites
    clock.advance(400_000)
    engine.maintenance(clock())
    assert 9 == log.log_start_offset


def test_compacted_topics_get_their_retention_after_each_round(engine, clock):
    """A round of cleaning also applies retention to compacted topics.

    Only topics with cleanup.policy=compact,delete lose records by age.
    """
    log = topic(engine, "t", 9, cleanup_policy="compact,delete", retention_ms=10_000)
    only = topic(engine, "only", 9, retention_ms=10_000)
    clean(engine, clock)
    assert (9, 0) == (log.log_start_offset, only.log_start_offset)
    assert [0] == [segment.size_bytes for segment in log.segments()]


def test_the_log_start_releases_segments_of_compacted_topics(engine, clock):
    """Segments below the log start are deleted under any policy (kafka-storage.md#retention)."""
    log = topic(engine, "t", 9, cleanup_policy="compact,delete", min_cleanable_dirty_ratio="1")
    log.delete_records(Offset(7))
    engine.alter_config("t", {"cleanup.policy": "compact"})
    clean(engine, clock)
    assert log.segments()[0].end_offset > 7


def test_a_batch_with_more_keys_than_the_buffer_is_reported(disk, clock):
    """If a batch has more keys than the buffer can store, the pass stops with a warning."""
    engine = engine_on(disk, clock=clock, config=QUIET._replace(cleaner_dedupe_buffer_bytes=24 * 3))
    log = topic(engine, "t", 1, min_cleanable_dirty_ratio="0.01")
    log.append(encode([Record(Offset(n), Timestamp(0), b"%d" % n, b"v") for n in range(9)]))
    log.appender.roll()
    clean(engine, clock)
    assert "more keys than log.cleaner.dedupe.buffer.size=72 holds" in engine.warnings[0]
    assert 1 == log.parts.first_dirty_offset


def test_a_small_buffer_takes_several_passes_in_one_round(disk, clock):
    """Row 113: with a small buffer a round makes several passes, until the log is clean."""
    engine = engine_on(disk, clock=clock, config=QUIET._replace(cleaner_dedupe_buffer_bytes=24 * 5))
    log = topic(engine, "t", 30, keys=10, min_cleanable_dirty_ratio="0.01")
    active = log.chain.active.base_offset
    clean(engine, clock)
    assert (log.parts.first_dirty_offset, engine.warnings) == (active, ())
    assert len([offset for offset in offsets_of(log) if offset < active]) <= 10


def test_status_tells_what_is_left_to_clean(engine, clock):
    """`status` has the first dirty offset and the cleanable ratio. Both are None if the topic is not compacted."""
    log = topic(engine, "t", 9)
    assert (0, 1.0) == (log.status().first_dirty_offset, log.status().cleanable_ratio)
    clean(engine, clock)
    assert (8, 0.0) == (log.status().first_dirty_offset, log.status().cleanable_ratio)
    engine.alter_config("t", {"cleanup.policy": "delete"})
    assert (None, None) == (log.status().first_dirty_offset, log.status().cleanable_ratio)


def test_status_tells_the_last_flush(engine, clock):
    """`status` has the time of the last flush, and before the first flush the time of opening."""
    log = topic(engine, "t", 1)
    opened = log.status().last_flush
    clock.advance(77)
    log.sync()
    assert log.status().last_flush == opened + 77


@contextmanager
def cleaning(engine: LogManager, clock: ManualClock) -> Iterator[None]:
    """Let a cleaning in another thread stop before its first window. After the block, let it continue to its end."""
    reached, goes_on = threading.Event(), threading.Event()
    real = log_cleaner.clean

    def gated(log: Log, plan: CleaningPlan, **settings):
        reached.set()
        assert goes_on.wait(30)
        return real(log, plan, **settings)

    thread = threading.Thread(target=clean, args=(engine, clock))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_cleaner, "clean", gated)
        thread.start()
        assert reached.wait(30)
        try:
            yield
        finally:
            goes_on.set()
            thread.join()


def test_a_cleaning_holds_up_neither_appends_nor_other_duties(disk, engine, clock):
    """During a cleaning other threads append and do other duties, but begin no other cleaning."""
    log = topic(engine, "t", 9)
    with cleaning(engine, clock):
        assert 9 == put(log, b"k0", b"new")
        log.sync()
        clock.advance(100_000)
        engine.maintenance(clock())
        assert b"0\n1\nt 0 10\n" == disk.read_bytes(DATA / "recovery-point-offset-checkpoint")
        assert 0 == log.rewrites
    assert log.rewrites > 0
    assert 9 == offsets_of(log)[-1]


def test_retention_waits_for_a_cleaning(engine, clock):
    """Retention does not delete segments that a cleaning is replacing, even if the policy has changed."""
    log = topic(engine, "t", 9)
    with cleaning(engine, clock):
        engine.alter_config("t", {"cleanup.policy": "delete", "retention.ms": "1"})
        clock.advance(400_000)
        engine.maintenance(clock())
        assert 0 == log.log_start_offset
    clock.advance(400_000)
    engine.maintenance(clock())
    assert 9 == log.log_start_offset


def test_close_ends_a_cleaning(disk, engine, clock):
    """`close` stops a cleaning at its next window. No temporary file and no warning is left."""
    log, closing = topic(engine, "t", 9), threading.Thread(target=engine.close)
    with cleaning(engine, clock):
        closing.start()
        wait_until(engine._services.cleaner._stopping.is_set, "the close has asked the cleaning to stop")
    closing.join()
    assert (0, ()) == (log.rewrites, engine.warnings)
    assert [] == [name for name in names(disk, log) if name.endswith(".cleaned")]
    assert offsets_of(engine_on(disk, clock=clock).partition("t", 0)) == list(range(9))


def test_deleting_a_topic_ends_its_cleaning(engine, clock):
    """Deleting a topic stops its cleaning without a warning."""
    topic(engine, "t", 9)
    with cleaning(engine, clock):
        engine.delete_topic("t")
    assert ((), {}) == (engine.warnings, dict(engine.topics()))


def test_appends_go_on_beside_real_cleanings(tmp_path: Path):
    """If threads append and clean on a real disk, each key's newest record stays, even after a restart."""
    config = QUIET._replace(cleaner_backoff_ms=0)
    engine = open_engine(tmp_path / "data", config=config)
    log = topic(engine, "t", 0, min_cleanable_dirty_ratio="0.01")
    stop = threading.Event()

    def tend() -> None:
        while not stop.is_set():
            engine.maintenance(Timestamp(1_900_000_000_000))

    tending = threading.Thread(target=tend)
    tending.start()
    for number in range(2_000):
        put(log, b"k%d" % (number % 7), b"%d" % number)
    stop.set()
    tending.join()
    engine.maintenance(Timestamp(1_900_000_000_000))
    assert () == engine.warnings
    assert log.rewrites > 0
    engine.close()
    again = open_engine(tmp_path / "data", config=config)
    newest = {}
    for columns in decode(b"".join(bytes(one.data) for one in everything(again.partition("t", 0)))):
        newest |= {record.key: record.value for record in columns}
    assert newest == {b"k%d" % (number % 7): b"%d" % number for number in range(1_993, 2_000)}
    again.close()


def everything(log):
    offset = log.log_start_offset
    while len((fetched := log.read(offset, max_bytes=1 << 20)).data):
        yield fetched
        offset = fetched.next_offset
