"""A log compared with a list, through power losses, full disks, failing writes and failing syncs.

After each failure all synced records are stored. The records after them are a prefix of the appended records, in
complete batches. A failed append has left nothing, and the indexes match the log.
"""

from __future__ import annotations

import errno

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.doubles.logs import LogOnDisk, records_of
from tests.doubles.records import batch
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.errors import PartitionOfflineError

pytestmark = pytest.mark.slow

BATCHES = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 80), st.integers(-1, 40)), min_size=1, max_size=4
)
"""The batches of one append: number of records, size of each value in bytes, and timestamp."""
FAILING = st.tuples(
    st.sampled_from(["pwrite", "open", "write_bytes", "truncate", "rename"]), st.integers(0, 4)
)


class LogModel(RuleBasedStateMachine):
    """Compares a log with `values`, which has the value at each offset whose record was not lost.

    The attribute `ends` has the end offsets of the batches.
    """

    def __init__(self) -> None:
        super().__init__()
        self.values: list[tuple[bytes, int]] = []
        self.ends: list[int] = [0]
        self.synced = 0
        self.checkpoint = 0
        self.numbered = 0

    @initialize(
        seed=st.integers(0, 2**16), interval=st.sampled_from([0, 150, 4096]), preallocate=st.booleans()
    )
    def begin(self, seed: int, interval: int, preallocate: bool) -> None:
        self.on_disk = LogOnDisk(
            disk=SimulatedDisk(seed=seed),
            internal_segment_bytes=1500,
            segment_index_bytes=72,
            index_interval_bytes=interval,
            preallocate=preallocate,
        )

    @property
    def online(self) -> bool:
        return self.on_disk.log.offline_reason is None

    # Calls of users.

    @precondition(lambda self: self.online)
    @rule(shapes=BATCHES, durable=st.booleans())
    def append(self, shapes: list[tuple[int, int, int]], durable: bool) -> None:
        data, values, ends = self.build(shapes)
        appended = self.on_disk.log.append(data, durable=durable)
        assert len(self.values) == appended.base_offset
        self.values += values
        self.ends += ends
        assert len(self.values) == appended.last_offset + 1
        if durable:
            self.synced = len(self.values)

    @precondition(lambda self: self.online)
    @rule(shapes=BATCHES, free_bytes=st.integers(0, 3000))
    def append_on_a_full_disk(self, shapes: list[tuple[int, int, int]], free_bytes: int) -> None:
        self.on_disk.disk.fill(free_bytes)
        self.append_that_may_fail(shapes, errno.ENOSPC)
        self.on_disk.disk.fill(None)

    @precondition(lambda self: self.online)
    @rule(shapes=BATCHES, failing=FAILING)
    def append_with_a_failure(self, shapes: list[tuple[int, int, int]], failing: tuple[str, int]) -> None:
        operation, after = failing
        self.on_disk.disk.fail(operation, after=after)
        self.append_that_may_fail(shapes, errno.EIO)
        self.on_disk.disk.heal()

    @precondition(lambda self: self.online)
    @rule()
    def sync(self) -> None:
        self.on_disk.log.sync()
        self.synced = len(self.values)

    @precondition(lambda self: self.online)
    @rule(after=st.integers(0, 3))
    def sync_that_fails(self, after: int) -> None:
        self.on_disk.disk.fail("sync", after=after)
        try:
            self.on_disk.log.sync()
        except OSError:
            assert not self.online
        else:
            self.synced = len(self.values)
        self.on_disk.disk.heal()

    @precondition(lambda self: self.online)
    @rule()
    def roll(self) -> None:
        assert len(self.values) == self.on_disk.log.appender.roll()

    @precondition(lambda self: self.online)
    @rule(count=st.integers(1, 3))
    def delete_oldest(self, count: int) -> None:
        log = self.on_disk.log
        log.replacer.delete_oldest_segments(count, "test")
        assert log.log_start_offset == log.chain.base_offsets[0]

    @rule()
    def remove_deleted(self) -> None:
        self.on_disk.clock.advance(400)
        self.on_disk.log.replacer.remove_deleted_files(self.on_disk.clock.now)

    @rule()
    def write_checkpoint(self) -> None:
        self.checkpoint = self.on_disk.log.recovery_point
        assert self.checkpoint <= self.synced

    # Failures.

    @precondition(lambda self: self.online)
    @rule()
    def restart(self) -> None:
        self.on_disk.reopen(recovery_point=self.checkpoint)
        self.synced = len(self.values)

    @precondition(lambda self: self.online)
    @rule()
    def kill(self) -> None:
        self.on_disk.kill(recovery_point=self.checkpoint)
        assert len(self.values) == self.on_disk.log.log_end_offset

    @rule(keep=st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    def crash(self, keep: float) -> None:
        log = self.on_disk.crash(keep=keep, dense=True, recovery_point=self.checkpoint)
        end_offset = log.log_end_offset
        assert self.synced <= end_offset <= len(self.values)
        assert end_offset in self.ends
        del self.values[end_offset:]
        self.ends = [end for end in self.ends if end <= end_offset]

    # Invariants.

    @invariant()
    def the_log_is_the_list(self) -> None:
        log = self.on_disk.log
        start, end = log.log_start_offset, log.log_end_offset
        assert len(self.values) == end
        shown = dict(records_of(log, max_bytes=700))
        assert set(range(start, end)) == set(shown)
        assert [value for value, _ in self.values[start:end]] == [
            shown[offset] for offset in range(start, end)
        ]

    @invariant()
    def indexes_point_at_batches(self) -> None:
        log = self.on_disk.log
        for segment in log.chain.segments:
            for offset, position in segment.offset_index:
                found = log.locate(offset).batch if offset >= log.log_start_offset else None
                assert found is None or (position, offset) == (found.position, found.last_offset)
            for timestamp, offset in segment.time_index:
                times = [time for _, time in self.values[segment.base_offset : offset + 1]]
                assert timestamp == max(times)

    @invariant()
    def times_are_found(self) -> None:
        log = self.on_disk.log
        for target in (0, 13, 40):
            later = (
                offset
                for offset in range(log.log_start_offset, log.log_end_offset)
                if self.values[offset][1] >= target
            )
            found = log.offset_for_timestamp(target)
            assert next(later, None) == (None if found is None else found.offset)

    def append_that_may_fail(self, shapes: list[tuple[int, int, int]], number: int) -> None:
        data, values, ends = self.build(shapes)
        try:
            self.on_disk.log.append(data)
        except PartitionOfflineError:
            failure = None
            assert not self.online
        except OSError as error:
            failure = error.errno
        else:
            failure = None
            self.values += values
            self.ends += ends
        assert failure in (None, number)

    def build(
        self, shapes: list[tuple[int, int, int]]
    ) -> tuple[bytearray, list[tuple[bytes, int]], list[int]]:
        """Return batches of unique values, the values with timestamps, and the batches' end offsets."""
        data, values, ends = bytearray(), [], []
        for count, size, timestamp in shapes:
            texts = [b"%d" % (self.numbered + number) + b"." * size for number in range(count)]
            self.numbered += count
            data += batch(*texts, timestamp=timestamp)
            values += [(text, timestamp) for text in texts]
            ends.append(len(self.values) + len(values))
        return data, values, ends


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(stateful_step_count=25)
