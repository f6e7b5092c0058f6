"""One partition of `__transaction_state`, and the transactional ids that belong to it.

The shard appends each new state as the partition's leader, and the state takes effect after its append. When a
transaction is prepared, the shard writes the transaction's markers immediately, and later retries those that failed.
The caller holds the shard's `lock`, which may be held during writes to disks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from enum import Enum
from typing import NamedTuple, Protocol

from topicfs.coordination.groups.requests import Code, RequestError
from topicfs.coordination.groups.runtime.shard import code_of
from topicfs.coordination.transactions.state_records import read_name, read_state, write_key, write_state
from topicfs.coordination.transactions.transaction import (
    PREPARED,
    ProducerRun,
    Status,
    Transaction,
    completed,
    has_expired,
)
from topicfs.storage import errors
from topicfs.storage.codec.columns import decode_each
from topicfs.storage.codec.control import ControlType, EndTransactionMarker
from topicfs.storage.codec.records import encode
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.engine import Partition
from topicfs.storage.messages import reason_of
from topicfs.storage.model import Isolation, Offset, Record, Timestamp, TopicPartition

_LOGGER = logging.getLogger(__name__)

LOAD_BYTES = 5 << 20
"""Kafka's transaction.state.log.load.buffer.size."""
MAX_TOMBSTONES = 1_000


class WriteMarker(Protocol):
    """Writes a transaction's marker to a partition."""

    def __call__(self, place: TopicPartition, run: ProducerRun, marker: EndTransactionMarker, /) -> None:
        """Return once the marker is on disk, or the partition was deleted. Raises StorageError, OSError."""


class TransactionShardState(Enum):
    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"


class _Owed(NamedTuple):
    """The work that remains for a prepared transaction."""

    partitions: set[TopicPartition]
    """The partitions that do not have the marker yet."""
    after: Transaction
    """The state once all partitions have the marker."""
    reported: set[TopicPartition]
    """The partitions whose errors were logged."""


def _owed_by(prepared: Transaction, now: Timestamp) -> _Owed:
    return _Owed(set(prepared.partitions), completed(prepared, now), set())


class TransactionShard:
    """The states of one partition's transactional ids, and the work that remains for prepared transactions."""

    def __init__(self, partition: Partition, clock: Clock, write_marker: WriteMarker) -> None:
        self.partition = partition
        self.lock = threading.Lock()
        self.state = TransactionShardState.LOADING
        self.transactions: dict[str, Transaction] = {}
        self._owed: dict[str, _Owed] = {}
        self._clock = clock
        self._write_marker = write_marker
        self._place = TopicPartition(partition.topic, partition.number)

    def load(self) -> None:
        """Read the partition (blocking). If it cannot be read, the shard fails: its transactional ids are unknown."""
        try:
            self._read()
        except (errors.StorageError, OSError, ValueError) as error:
            self.transactions.clear()
            if self.state is TransactionShardState.LOADING:
                _LOGGER.warning(
                    "%s: cannot be loaded, its transactions wait: %s", self._place, reason_of(error)
                )
            self.state = TransactionShardState.FAILED
            return
        now = self._clock()
        for name, known in self.transactions.items():
            if known.status in PREPARED:
                self._owed[name] = _owed_by(known, now)
        self.state = TransactionShardState.ACTIVE

    def _read(self) -> None:
        offset = self.partition.log_start_offset
        while True:
            fetched = self.partition.read(offset, max_bytes=LOAD_BYTES, isolation=Isolation.READ_UNCOMMITTED)
            if not fetched.data:
                return
            for columns in decode_each(fetched.data):
                for record in columns:
                    self._replay(record)
            offset = fetched.next_offset

    def _replay(self, record: Record) -> None:
        if record.key is None:
            raise errors.CorruptBatchError(0, f"the record at offset {record.offset} has no key")
        name = read_name(record.key)
        if name is None:
            _LOGGER.warning(
                "%s: ignoring a record of an unknown type at offset %d", self._place, record.offset
            )
        elif record.value is None:
            self.transactions.pop(name, None)
        else:
            self.transactions[name] = read_state(record.value)

    def check(self) -> None:
        """Raise RequestError if the shard does not serve."""
        if self.state is TransactionShardState.LOADING:
            raise RequestError(Code.COORDINATOR_LOAD_IN_PROGRESS)
        if self.state is TransactionShardState.FAILED:
            raise RequestError(Code.NOT_COORDINATOR)

    # Changes.

    def put(self, name: str, state: Transaction) -> None:
        """Write a state to disk, then use it. Raises RequestError if the state was not written.

        If the state is prepared, also write the markers. Markers that fail now are written later.
        """
        self._append([(write_key(name), write_state(state))], durable=True)
        self.transactions[name] = state
        if state.status in PREPARED:
            self._owed[name] = _owed_by(state, self._clock())
            self._end(name)

    @property
    def owes_markers(self) -> bool:
        return bool(self._owed)

    def end_prepared(self) -> None:
        """Write the markers that could not be written before."""
        for name in list(self._owed):
            self._end(name)

    def _end(self, name: str) -> None:
        known, owed = self.transactions[name], self._owed[name]
        kind = ControlType.COMMIT if known.status is Status.PREPARE_COMMIT else ControlType.ABORT
        marker = EndTransactionMarker(kind, max(self.partition.offsets().leader_epoch, 0))
        for place in sorted(owed.partitions):
            try:
                self._write_marker(place, known.run, marker)
            except (errors.StorageError, OSError) as error:
                if place not in owed.reported:
                    _LOGGER.warning("%s: the end of transaction %s waits: %s", place, name, reason_of(error))
                owed.reported.add(place)
            else:
                owed.partitions.discard(place)
        if not owed.partitions:
            # This record needs no flush: without it, the next coordinator writes the same markers again.
            try:
                self._append([(write_key(name), write_state(owed.after))], durable=False)
            except RequestError:
                return
            self.transactions[name] = owed.after
            del self._owed[name]

    def expire(self, now: Timestamp, expiration_ms: int) -> None:
        """Forget the transactional ids that were not used for `expiration_ms`."""
        gone = [name for name, one in self.transactions.items() if has_expired(one, now, expiration_ms)]
        for at in range(0, len(gone), MAX_TOMBSTONES):
            chunk = gone[at : at + MAX_TOMBSTONES]
            self._append([(write_key(name), None) for name in chunk], durable=False)
            for name in chunk:
                del self.transactions[name]

    def _append(self, records: Collection[tuple[bytes, bytes | None]], *, durable: bool) -> None:
        now = Timestamp(max(self._clock(), 0))
        batch = encode([Record(Offset(at), now, key, value) for at, (key, value) in enumerate(records)])
        try:
            self.partition.check_in_sync()
            self.partition.append(batch, durable=durable, encoded_here=True)
        except (errors.StorageError, OSError) as error:
            _LOGGER.warning("%s: append failed: %s", self._place, reason_of(error))
            raise RequestError(code_of(error)) from error
