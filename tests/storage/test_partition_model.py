"""A partition with producers, transactions and compaction compared with a list, through all kinds of failures.

The failures are power losses, full disks, failing writes, failing syncs and interrupted cleanings. After each failure
every synced batch is stored completely. A later batch is stored completely or not at all. The state of producers,
transactions and committed records follows from the stored batches.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.doubles.logs import LogOnDisk
from tests.doubles.partition_model import ModelBatch, ModelProducer, Replayed, replay, table_of
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage import errors
from topicfs.storage.codec.batch import assign_offsets
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.control import ControlType, EndTransactionMarker, encode_marker
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.compaction.cleaner import clean, cleaning_params
from topicfs.storage.compaction.selection import plan
from topicfs.storage.model import Isolation, Offset, ProducerId, Record, Timestamp
from topicfs.storage.producers.append import Origin
from topicfs.storage.segment.scan import windows

PRODUCERS = st.integers(1, 3)
CONTENT = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(-1, 60)), min_size=1, max_size=3
)
"""The content of one batch: keys and sizes of values (-1 means null)."""
FAILURES = st.tuples(
    st.sampled_from(
        ["pwrite", "open", "write_bytes", "truncate", "rename", "sync", "unlink", "sync_directory"]
    ),
    st.integers(0, 12),
)
DELETE_RETENTION_MS = 1000


class PartitionModel(RuleBasedStateMachine):
    """Compares a partition with `batches`, all batches that were not lost, in order.

    The attribute `clean_end` is the highest end of a cleaning.
    """

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[ModelBatch] = []
        self.end_offset = 0
        self.synced = 0
        self.checkpoint = 0
        self.clean_end = 0
        self.numbered = 0

    @initialize(seed=st.integers(0, 2**16), interval=st.sampled_from([0, 150, 4096]))
    def begin(self, seed: int, interval: int) -> None:
        self.on_disk = LogOnDisk(
            disk=SimulatedDisk(seed=seed),
            internal_segment_bytes=900,
            segment_index_bytes=240,
            index_interval_bytes=interval,
            cleanup_policy=("compact",),
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=DELETE_RETENTION_MS,
        )
        self.on_disk.clock.advance(1_000_000)

    @property
    def online(self) -> bool:
        return self.on_disk.log.offline_reason is None

    @property
    def now(self) -> Timestamp:
        return Timestamp(self.on_disk.clock.now)

    def replayed(self) -> Replayed:
        return replay(self.batches, self.end_offset)

    def producer(self, producer_id: int) -> ModelProducer:
        return self.replayed().producers.get(producer_id, ModelProducer())

    # Valid appends.

    @precondition(lambda self: self.online)
    @rule(content=CONTENT)
    def append_plainly(self, content: list[tuple[bytes, int]]) -> None:
        self.appended(self.batch(content))

    @precondition(lambda self: self.online)
    @rule(content=CONTENT, producer_id=PRODUCERS, newer_epoch=st.booleans())
    def append_as_producer(
        self, content: list[tuple[bytes, int]], producer_id: int, newer_epoch: bool
    ) -> None:
        if self.producer(producer_id).open_since is None:
            self.appended(self.batch_of_producer(content, producer_id, newer_epoch=newer_epoch))

    @precondition(lambda self: self.online)
    @rule(content=CONTENT, producer_id=PRODUCERS)
    def append_in_a_transaction(self, content: list[tuple[bytes, int]], producer_id: int) -> None:
        self.appended(self.batch_of_producer(content, producer_id, transactional=True))

    @precondition(lambda self: self.online)
    @rule(producer_id=PRODUCERS, commit=st.booleans(), bump=st.booleans())
    def end_a_transaction(self, producer_id: int, commit: bool, bump: bool) -> None:
        epoch = max(self.producer(producer_id).epoch, 0) + bump
        self.appended(
            ModelBatch(self.end_offset, (), (), producer_id, epoch, transactional=True, commit=commit)
        )

    # Invalid appends.

    @precondition(lambda self: self.online)
    @rule(producer_id=PRODUCERS)
    def repeat_the_last_batch(self, producer_id: int) -> None:
        last = self.producer(producer_id).last_batch
        if last is not None:
            again = self.on_disk.log.append(encoded(last, self.now))
            assert (True, last.base_offset, last.last_offset) == (
                again.duplicate,
                again.base_offset,
                again.last_offset,
            )

    @precondition(lambda self: self.online)
    @rule(content=CONTENT, producer_id=PRODUCERS, ahead=st.integers(1, 5))
    def skip_sequences(self, content: list[tuple[bytes, int]], producer_id: int, ahead: int) -> None:
        known = self.producer(producer_id)
        if known.last_batch is not None:
            batch = self.batch_of_producer(content, producer_id, transactional=known.open_since is not None)
            self.refused(batch._replace(sequence=batch.sequence + ahead), errors.OutOfOrderSequenceError)

    @precondition(lambda self: self.online)
    @rule(content=CONTENT, producer_id=PRODUCERS)
    def write_under_an_old_epoch(self, content: list[tuple[bytes, int]], producer_id: int) -> None:
        known = self.producer(producer_id)
        epoch = known.epoch
        # An epoch that only a marker shows may be lost with the marker, as in a broker.
        if epoch > 0 and known.last_batch is not None:
            self.refused(
                self.batch(content)._replace(producer_id=producer_id, epoch=epoch - 1, sequence=0),
                errors.ProducerFencedError,
            )

    @precondition(lambda self: self.online)
    @rule(content=CONTENT, producer_id=PRODUCERS)
    def write_plainly_inside_a_transaction(self, content: list[tuple[bytes, int]], producer_id: int) -> None:
        if self.producer(producer_id).open_since is not None:
            self.refused(self.batch_of_producer(content, producer_id), errors.InvalidTransactionStateError)

    # Failing disks.

    @precondition(lambda self: self.online)
    @rule(content=CONTENT, producer_id=PRODUCERS, free_bytes=st.integers(0, 1500))
    def append_on_a_full_disk(
        self, content: list[tuple[bytes, int]], producer_id: int, free_bytes: int
    ) -> None:
        self.on_disk.disk.fill(free_bytes)
        self.appended_or_not(self.batch_of_producer(content, producer_id, transactional=True))
        self.on_disk.disk.fill(None)

    @precondition(lambda self: self.online)
    @rule(content=CONTENT, producer_id=PRODUCERS, failure=FAILURES)
    def append_with_a_failure(
        self, content: list[tuple[bytes, int]], producer_id: int, failure: tuple[str, int]
    ) -> None:
        self.on_disk.disk.fail(failure[0], after=failure[1])
        self.appended_or_not(self.batch_of_producer(content, producer_id, transactional=True))
        self.on_disk.disk.heal()

    @precondition(lambda self: self.online)
    @rule(producer_id=PRODUCERS, failure=FAILURES)
    def abort_with_a_failure(self, producer_id: int, failure: tuple[str, int]) -> None:
        self.on_disk.disk.fail(failure[0], after=failure[1])
        epoch = max(self.producer(producer_id).epoch, 0)
        self.appended_or_not(
            ModelBatch(self.end_offset, (), (), producer_id, epoch, transactional=True, commit=False)
        )
        self.on_disk.disk.heal()

    @precondition(lambda self: self.online)
    @rule(after=st.integers(0, 6))
    def sync_that_may_fail(self, after: int) -> None:
        self.on_disk.disk.fail("sync", after=after)
        try:
            self.on_disk.log.sync()
        except OSError:
            assert not self.online
        else:
            self.synced = self.end_offset
        self.on_disk.disk.heal()

    # Duties.

    @precondition(lambda self: self.online)
    @rule()
    def roll(self) -> None:
        assert self.end_offset == self.on_disk.log.appender.roll()

    @precondition(lambda self: self.online)
    @rule(later=st.sampled_from([0, 2 * DELETE_RETENTION_MS]), map_slots=st.sampled_from([4, 6, 100]))
    def clean(self, later: int, map_slots: int) -> None:
        self.on_disk.clock.advance(later)
        self.clean_once(map_slots)

    @precondition(lambda self: self.online)
    @rule(failure=FAILURES, keep=st.sampled_from([0.0, 0.5, 1.0]))
    def clean_with_a_failure_and_restart(self, failure: tuple[str, int], keep: float) -> None:
        self.on_disk.disk.fail(failure[0], after=failure[1])
        try:
            self.clean_once(100)
        except (OSError, errors.StorageError):
            self.on_disk.disk.heal()
            self.crash(keep)
        self.on_disk.disk.heal()

    def clean_once(self, map_slots: int) -> None:
        log = self.on_disk.log
        chosen = plan(cleaning_params(log, Offset(self.clean_end), self.now))
        if chosen.end_offset <= chosen.first_dirty_offset:
            return
        self.clean_end = max(self.clean_end, chosen.end_offset)
        try:
            clean(log, chosen, now=self.now, map_bytes=24 * map_slots)
        finally:
            # A cleaning flushes newer records before it removes older ones.
            self.synced = max(self.synced, log.recovery_point)

    @rule()
    def remove_deleted(self) -> None:
        self.on_disk.clock.advance(400)
        self.on_disk.log.replacer.remove_deleted_files(self.now)

    @rule()
    def write_checkpoint(self) -> None:
        self.checkpoint = self.on_disk.log.recovery_point
        assert self.checkpoint <= self.synced

    # Calls of users, and failures.

    @precondition(lambda self: self.online)
    @rule()
    def restart(self) -> None:
        self.on_disk.reopen(recovery_point=self.checkpoint)
        self.synced = self.end_offset

    @precondition(lambda self: self.online)
    @rule()
    def kill(self) -> None:
        self.on_disk.kill(recovery_point=self.checkpoint)
        assert self.end_offset == self.on_disk.log.log_end_offset

    @rule(keep=st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    def crash(self, keep: float) -> None:
        """Lose power: each batch above the last sync is lost or stored completely."""
        log = self.on_disk.crash(keep=keep, recovery_point=self.checkpoint)
        left = self.headers()
        lost = [
            batch
            for batch in self.batches
            if batch.base_offset >= self.synced and (batch.base_offset, batch.last_offset) not in left
        ]
        self.batches = [batch for batch in self.batches if batch not in lost]
        assert all(batch.end_offset <= log.log_end_offset for batch in self.batches)
        assert self.synced <= log.log_end_offset <= self.end_offset
        self.end_offset = log.log_end_offset
        self.synced = min(self.synced, self.end_offset)

    # Invariants.

    @invariant()
    def ends_and_bounds_are_the_lists(self) -> None:
        log = self.on_disk.log
        assert self.end_offset == log.log_end_offset
        assert self.replayed().last_stable_offset == log.offsets().last_stable_offset

    @invariant()
    def committed_records_are_the_lists(self) -> None:
        expected = self.replayed().committed
        shown = self.shown(Isolation.READ_COMMITTED)
        assert shown.items() <= expected.items()
        assert {at for at in expected if at >= self.clean_end} <= set(shown)
        assert table_of(expected) == table_of(shown)

    @invariant()
    def every_record_is_one_that_was_written(self) -> None:
        written = {at: (key, value) for batch in self.batches for at, key, value in batch.records()}
        assert self.shown(Isolation.READ_UNCOMMITTED).items() <= written.items()

    @invariant()
    def producers_are_the_lists(self) -> None:
        expected = {
            producer_id: (known.epoch, known.open_since, last.base_offset, last.last_sequence)
            for producer_id, known in self.replayed().producers.items()
            if producer_id >= 0 and (last := known.last_batch) is not None
        }
        found = {
            entry.producer_id: (
                entry.epoch,
                entry.transaction_first_offset,
                entry.batches[-1].base_offset,
                entry.last_sequence,
            )
            for entry in self.on_disk.log.producers()
            if entry.batches
        }
        assert expected == found

    @precondition(lambda self: self.online)
    @invariant()
    def aborts_are_the_lists(self) -> None:
        indexed = {
            (span.producer_id, span.last_offset): span.first_offset
            for segment in self.on_disk.log.chain.segments
            for span in segment.transaction_index
        }
        expected = self.replayed().aborted
        assert indexed.keys() <= expected.keys()
        assert {span for span, written in expected.items() if written[-1] >= self.clean_end} <= indexed.keys()
        for span, first in indexed.items():
            # After a cleaning, recovery begins a transaction at its first remaining batch.
            assert first in expected[span]
            assert all(earlier < self.clean_end for earlier in expected[span] if earlier < first)

    @invariant()
    def nothing_is_left_lying_about(self) -> None:
        assert not [name for name in self.on_disk.names() if name.endswith((".cleaned", ".swap"))]

    # Helpers.

    def batch(self, content: list[tuple[bytes, int]]) -> ModelBatch:
        keys = tuple(key for key, _ in content)
        values = []
        for _, size in content:
            values.append(None if size < 0 else b"%d" % self.numbered + b"." * size)
            self.numbered += 1
        return ModelBatch(self.end_offset, keys, tuple(values))

    def batch_of_producer(
        self,
        content: list[tuple[bytes, int]],
        producer_id: int,
        *,
        transactional: bool = False,
        newer_epoch: bool = False,
    ) -> ModelBatch:
        known = self.producer(producer_id)
        return self.batch(content)._replace(
            producer_id=producer_id,
            epoch=max(known.epoch, 0) + newer_epoch,
            sequence=0 if newer_epoch else known.next_sequence,
            transactional=transactional,
        )

    def appended(self, batch: ModelBatch) -> None:
        origin = Origin.COORDINATOR if batch.is_marker else Origin.CLIENT
        done = self.on_disk.log.append(encoded(batch, self.now), origin=origin)
        assert (batch.base_offset, batch.last_offset) == (done.base_offset, done.last_offset)
        self.batches.append(batch)
        self.end_offset = batch.end_offset

    def appended_or_not(self, batch: ModelBatch) -> None:
        origin = Origin.COORDINATOR if batch.is_marker else Origin.CLIENT
        try:
            self.on_disk.log.append(encoded(batch, self.now), origin=origin)
        except (OSError, errors.PartitionOfflineError):
            if self.on_disk.log.log_end_offset == self.end_offset:
                return
            # The batch was written, but a file next to the log was not.
            assert not self.online
        self.batches.append(batch)
        self.end_offset = batch.end_offset

    def refused(self, batch: ModelBatch, error: type[errors.StorageError]) -> None:
        try:
            self.on_disk.log.append(encoded(batch, self.now))
        except error:
            return
        raise AssertionError(f"{batch} was taken")

    def headers(self) -> set[tuple[int, int]]:
        """Return the first and last offset of each batch in the segments."""
        return {
            (header.base_offset, header.last_offset)
            for segment in self.on_disk.log.chain.segments
            for window in windows(segment.log, 0, segment.size, window_bytes=10_000)
            for header in window.batches
        }

    def shown(self, isolation: Isolation) -> dict[int, tuple[bytes | None, bytes | None]]:
        log, offset = self.on_disk.log, self.on_disk.log.log_start_offset
        found: dict[int, tuple[bytes | None, bytes | None]] = {}
        while len((fetched := log.read(offset, max_bytes=300, isolation=isolation)).data):
            for columns in decode(fetched.data, aborted=fetched.aborted):
                found |= {each.offset: (each.key, each.value) for each in columns if each.offset >= offset}
            assert fetched.next_offset > offset
            offset = fetched.next_offset
        return found


def encoded(batch: ModelBatch, now: Timestamp) -> bytearray:
    """Return the batch as its producer or a coordinator sends it."""
    if batch.is_marker:
        return encode_marker(
            EndTransactionMarker(ControlType.COMMIT if batch.commit else ControlType.ABORT, 0),
            timestamp=now,
            producer_id=ProducerId(batch.producer_id),
            producer_epoch=batch.epoch,
        )
    stamp = BatchStamp(
        producer_id=ProducerId(batch.producer_id),
        producer_epoch=batch.epoch,
        base_sequence=batch.sequence,
        transactional=batch.transactional,
    )
    records = [
        Record(Offset(number), now, key, value)
        for number, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True))
    ]
    data = encode(records, stamp)
    assign_offsets(data, 0, base_offset=0, leader_epoch=0)
    return data


TestPartitionModel = PartitionModel.TestCase
TestPartitionModel.settings = settings(stateful_step_count=30)
