"""One partition of a share group: combines the state machine (`records`), the log and the stored state (`state`)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from topicfs.coordination.records.share_state_records import (
    NO_START,
    SharePartitionKey,
    ShareState,
    StateBatch,
)
from topicfs.coordination.share_groups import Acknowledgement, Leased, RecordName, RejectedBy
from topicfs.coordination.shares.memberships import Memberships
from topicfs.coordination.shares.records.acknowledgement import GAP, AckBatch, NotAcquiredError, StateChange
from topicfs.coordination.shares.records.acquisition import Acquired, AcquireRequest, LogBatch
from topicfs.coordination.shares.records.partition_state import Limits
from topicfs.coordination.shares.records.share_partition import HeldRecords, SharePartition
from topicfs.coordination.shares.records.states import ARCHIVED, RecordState
from topicfs.coordination.shares.state.shard import StateWrite
from topicfs.coordination.shares.state.store import StateStore
from topicfs.storage.codec.aborted_filter import hide_aborted
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.columns import Columns, decode
from topicfs.storage.config.group import BY_DURATION, LATEST, OffsetReset
from topicfs.storage.config.share_group import ShareGroupSettings
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.engine import LogEngine, Partition
from topicfs.storage.errors import CorruptBatchError, CorruptionError, RecordNotHeldError, StorageError
from topicfs.storage.model import Isolation, Offset, Position, Timestamp, TopicPartition

KEPT_BATCHES = 4
"""Number of decoded batches that are cached per partition."""
QUEUE_FETCH_BYTES = 1 << 20
"""Size of a fetch for more than one record."""


class FetchedBatch(NamedTuple):
    base: Offset
    last: Offset
    data: memoryview
    segment_base_offset: Offset
    position: Position
    """Position of the batch in its segment's file."""
    is_hidden: bool
    """True if the batch belongs to an aborted transaction."""
    is_control: bool

    @property
    def bounds(self) -> LogBatch:
        return LogBatch(self.base, self.last)


class RecordReader:
    """Reads the records of one partition, and caches the last decoded batches. The group's lock guards it."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._kept: OrderedDict[Offset, tuple[FetchedBatch, Columns | None]] = OrderedDict()

    def fetch(self, offset: Offset, isolation: Isolation, *, most: int) -> Sequence[FetchedBatch]:
        """Return batches, the first of which contains `offset`; empty at the end of the visible log.

        Raises OffsetOutOfRangeError, CorruptionError, PartitionOfflineError, OSError.
        """
        if most == 1:
            for batch, _columns in self._kept.values():
                if batch.base <= offset <= batch.last:
                    return (batch,)
        fetched = self._partition.read(
            offset, max_bytes=1 if most == 1 else QUEUE_FETCH_BYTES, isolation=isolation
        )
        if not fetched.data:
            return ()
        batches = scan(fetched.data)
        hide_aborted(batches, fetched.aborted)
        return [
            FetchedBatch(
                one.base_offset,
                one.last_offset,
                fetched.data[one.position : one.end_position],
                fetched.segment_base_offset,
                Position(fetched.position + one.position),
                one.is_hidden,
                one.is_control,
            )
            for one in batches
        ]

    def decode(self, batch: FetchedBatch) -> Columns | None:
        """Return the records of a batch; None if it is a control batch or was aborted. Raises CorruptionError."""
        if batch.is_control or batch.is_hidden:
            return None
        kept = self._kept.get(batch.base)
        if kept is not None:
            self._kept.move_to_end(batch.base)
            return kept[1]
        try:
            found = decode(batch.data)
        except CorruptBatchError as error:
            name = f"{batch.segment_base_offset:020}.log"
            directory = self._partition.directory
            where = name if directory is None else directory / name
            raise CorruptionError(where, batch.position + error.position, error.cause) from None
        columns = found[0] if found else None
        self._kept[batch.base] = (batch, columns)
        if len(self._kept) > KEPT_BATCHES:
            self._kept.popitem(last=False)
        return columns

    def forget(self) -> None:
        self._kept.clear()


def find(columns: Columns, offset: Offset) -> int | None:
    """Return the index of the record at `offset`; None if `columns` has no record there."""
    index = columns.find(offset)
    return index if index < len(columns) and columns.offsets[index] == offset else None


class GivenUp(NamedTuple):
    """A record that is about to be archived, and why."""

    offset: Offset
    by: RejectedBy
    deliveries: int
    member_id: str


NoteGivenUp = Callable[["Queue", Sequence[GivenUp]], None]
"""Adds rejections to the journal before their state is written. Raises OSError."""


class QueueServices(NamedTuple):
    """The services that all queues of a group share."""

    engine: LogEngine
    store: StateStore
    memberships: Memberships
    clock: Clock
    settings: Callable[[], ShareGroupSettings]
    note_given_up: NoteGivenUp
    records_came: Callable[[], None]
    """Called after records were appended to a partition, or its log start moved."""


class Queue:
    def __init__(self, key: SharePartitionKey, partition: Partition, services: QueueServices) -> None:
        """Continue from the stored state. Raises OSError, and StorageError if no state is stored."""
        self.key = key
        self.partition = partition
        self._services = services
        self._reader = RecordReader(partition)
        self._rewrites = partition.rewrites
        store = services.store
        known = store.peek(key)
        if known is None:
            raise StorageError(f"group {key.group}: has no state in {self.name}")
        # The owner of the directory is the leader, even if a leader of another cluster wrote the state.
        self._leader_epoch = max(partition.offsets().leader_epoch, known.leader_epoch)
        state = store.read(key, self._leader_epoch) or known
        self._state_epoch = state.state_epoch
        self.machine = SharePartition(self._limits)
        self._load(state, services.clock())

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.partition.topic, self.partition.number)

    def _limits(self) -> Limits:
        settings = self._services.settings()
        return Limits(
            settings.share_record_lock_duration_ms,
            settings.share_delivery_count_limit,
            settings.share_partition_max_record_locks,
        )

    @property
    def _isolation(self) -> Isolation:
        return Isolation(self._services.settings().share_isolation_level)

    def _load(self, state: ShareState, now: Timestamp) -> None:
        """Load the stored state, up to the log end. After a machine crash, the log may lack its last records."""
        start = state.start_offset
        if start == NO_START:
            reset = self._services.settings().share_auto_offset_reset
            start = first_offset(self.partition, reset, self._isolation, now)
        log_end = self.partition.offsets().log_end_offset
        batches = tuple(
            one._replace(last=min(one.last, log_end - 1)) for one in state.batches if one.first < log_end
        )
        if start > log_end or batches != state.batches:
            # New records will get the offsets after the log end: the stored state must not mark them as done.
            start = min(start, log_end)
            self._services.store.initialize(self.key, self._state_epoch, start)
            write = StateWrite(self._state_epoch, self._leader_epoch, start, batches, _done(batches))
            self._services.store.write(self.key, write)
        self.machine.load(start, batches)

    # Delivery.

    def take(self, member_id: str, most: int, now: Timestamp) -> list[Leased]:
        """Lease up to `most` records; unreadable records are released.

        Raises CorruptionError, PartitionOfflineError, OSError.
        """
        machine = self.machine
        while True:
            self._follow_log()
            offset = Offset(machine.next_fetch_offset())
            if offset >= self.partition.visible_end(self._isolation) or not machine.can_acquire():
                return []
            fetched = self._reader.fetch(offset, self._isolation, most=most)
            if not fetched:
                return []
            wanted = AcquireRequest(
                member_id,
                most,
                offset,
                [one.bounds for one in fetched],
                exactly=True,
                aborted=[one.bounds for one in fetched if one.is_hidden],
            )
            acquired = machine.acquire(wanted, now)
            leased = self._leased(member_id, acquired, fetched, now)
            if leased:
                return leased
            moved = machine.advance()
            if not acquired and not moved and machine.next_fetch_offset() == offset:
                return []

    def _follow_log(self) -> None:
        if self._rewrites != self.partition.rewrites:
            self._rewrites = self.partition.rewrites
            self._reader.forget()
        log_start = self.partition.log_start_offset
        if log_start > self.machine.start_offset:
            self.machine.move_log_start(log_start)

    def _leased(
        self, member_id: str, acquired: Sequence[Acquired], fetched: Sequence[FetchedBatch], now: Timestamp
    ) -> list[Leased]:
        """Return the acquired records. An offset that has no record is acknowledged as a gap."""
        leased: list[Leased] = []
        gaps: list[AckBatch] = []
        lease_end = Timestamp(now + self._services.settings().share_record_lock_duration_ms)
        try:
            for offset, deliveries in _each(acquired):
                one = self._record(offset, deliveries, lease_end, fetched)
                if one is None:
                    gaps.append(AckBatch(offset, offset, (GAP,)))
                else:
                    leased.append(one)
        except CorruptionError:
            self._give_back(member_id, acquired, now)
            raise
        if gaps:
            self._write(self.machine.acknowledge(member_id, gaps, now), now)
        return leased

    def _record(
        self, offset: Offset, deliveries: int, lease_end: Timestamp, fetched: Sequence[FetchedBatch]
    ) -> Leased | None:
        batch = next((one for one in fetched if one.base <= offset <= one.last), None)
        if batch is None:
            return None
        columns = self._reader.decode(batch)
        index = None if columns is None else find(columns, offset)
        if columns is None or index is None:
            return None
        record_name = RecordName(self.partition.topic, self.partition.number, offset)
        return Leased(record_name, columns, index, batch.data, deliveries, lease_end)

    def _give_back(self, member_id: str, acquired: Sequence[Acquired], now: Timestamp) -> None:
        """Release records that cannot be read. Like any released record, they are delivered again up to the limit."""
        acks = [AckBatch(one.first, one.last, (Acknowledgement.RELEASE,)) for one in acquired]
        self._apply(member_id, acks, now)

    # Answers.

    def acknowledge(self, member_id: str, words: Mapping[Offset, Acknowledgement], now: Timestamp) -> None:
        """Apply acknowledgements to a member's records.

        Raises RecordNotHeldError, and the errors of `StateStore.write`.
        """
        acks = [AckBatch(offset, offset, (word,)) for offset, word in sorted(words.items())]
        for offset in words:
            held = self.machine.holder(offset)
            if held is None or held.member != member_id:
                raise RecordNotHeldError(
                    f"{self.name}-{offset}: this session does not hold the record, or no longer"
                )
        self._apply(member_id, acks, now)

    def _apply(self, member_id: str, acks: Sequence[AckBatch], now: Timestamp) -> None:
        try:
            change = self.machine.acknowledge(member_id, acks, now)
        except NotAcquiredError as error:
            raise RecordNotHeldError(f"{self.name}: {error}") from None
        rejected = {ack.first for ack in acks if ack.types == (Acknowledgement.REJECT,)}
        self._write(change, now, given_up=self._given_up(change, member_id, rejected))

    def expire(self, now: Timestamp) -> list[tuple[Offset, str]]:
        """End overdue leases, even if the change cannot be written. Return their records with the former holders."""
        next_end = self.machine.next_lease_end
        if next_end is None or now < next_end:
            return []
        holders = {offset: held.member for offset, held in self.held()}
        change = self.machine.expire(now)
        if not change:
            return []
        given_up = self._given_up(change, "", set())
        try:
            if given_up:
                named = [one._replace(member_id=holders.get(one.offset, "")) for one in given_up]
                self._services.note_given_up(self, named)
            self._keep(change)
        except (StorageError, OSError):
            pass
        finally:
            change.commit()
        return [(offset, member) for offset, member in holders.items() if self.machine.holder(offset) is None]

    def release(self, member_id: str, now: Timestamp) -> bool:
        """Release all records that a member holds, even if the change cannot be written. Return whether it held any."""
        change = self.machine.release(member_id)
        if not change:
            return False
        try:
            self._write(change, now, given_up=self._given_up(change, member_id, set()))
        except (StorageError, OSError):
            self.machine.drop(member_id).commit()
        return True

    def _given_up(self, change: StateChange, member_id: str, rejected: set[int]) -> list[GivenUp]:
        return [
            GivenUp(
                Offset(offset),
                RejectedBy.REJECT if offset in rejected else RejectedBy.LIMIT,
                one.deliveries,
                member_id,
            )
            for one in change.batches
            if one.state == ARCHIVED
            for offset in range(max(one.first, self.machine.start_offset), one.last + 1)
        ]

    def _write(self, change: StateChange, now: Timestamp, *, given_up: Sequence[GivenUp] = ()) -> None:
        """Store a change and complete it, or undo it if it cannot be stored."""
        if not change:
            return
        try:
            if given_up:
                self._services.note_given_up(self, given_up)
            self._keep(change)
        except BaseException:
            change.undo(now)
            raise
        change.commit()

    def _keep(self, change: StateChange) -> None:
        machine = self.machine
        write = StateWrite(
            self._state_epoch,
            self._leader_epoch,
            machine.start_offset,
            change.batches,
            machine.complete_count,
        )
        self._services.store.write(self.key, write)

    # Queries.

    def held(self) -> Iterator[tuple[Offset, HeldRecords]]:
        for held in self.machine.held():
            for offset in range(held.first, held.last + 1):
                yield Offset(offset), held


def first_offset(partition: Partition, reset: OffsetReset, isolation: Isolation, now: Timestamp) -> Offset:
    """Return the offset at which a new group starts in a partition. Raises CorruptionError, OSError."""
    if reset.kind == LATEST:
        return partition.visible_end(isolation)
    if reset.kind == BY_DURATION:
        since = Timestamp(max(0, now - reset.milliseconds))
        found = partition.offset_for_timestamp(since, isolation=isolation)
        return partition.visible_end(isolation) if found is None else found.offset
    return partition.log_start_offset


def _done(batches: Sequence[StateBatch]) -> int:
    return sum(one.last - one.first + 1 for one in batches if RecordState(one.state).is_final)


def _each(acquired: Sequence[Acquired]) -> Iterator[tuple[Offset, int]]:
    for one in acquired:
        for offset in range(one.first, one.last + 1):
            yield Offset(offset), one.deliveries
