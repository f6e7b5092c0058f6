"""The transaction coordinator of an engine over data directories: requests of clients, timeouts, and recovery.

A request runs in its caller's thread, and holds the lock of its transactional id's shard. The coordinator's own
thread loads `__transaction_state`, writes markers that failed before, aborts transactions whose timeout has passed,
and forgets unused transactional ids. If the topic does not exist, the thread has nothing to read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from topicfs.coordination.engine import Engine
from topicfs.coordination.groups.requests import Code, RequestError
from topicfs.coordination.records.group_records import fits_key
from topicfs.coordination.transactions.shard import TransactionShard, TransactionShardState
from topicfs.coordination.transactions.transaction import (
    PREPARED,
    End,
    ProducerRun,
    Transaction,
    aborted_by_coordinator,
    check_partitions,
    completed,
    ended,
    has_timed_out,
    initialized,
    with_partitions,
)
from topicfs.storage import errors
from topicfs.storage.codec.control import EndTransactionMarker, encode_marker
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.disk.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from topicfs.storage.messages import reason_of
from topicfs.storage.model import ProducerId, Timestamp, TopicPartition
from topicfs.storage.partitioning import partition_of_name
from topicfs.storage.producers.append import Origin
from topicfs.storage.producers.entry import next_run
from topicfs.storage.producers.progress import own

if TYPE_CHECKING:
    from topicfs.coordination.groups.runtime.service import EmbeddedGroups

_LOGGER = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""Pause before a failed write of a marker, or a failed load of a partition, is retried."""


class _Due(NamedTuple):
    """When the regular duties are due."""

    timeouts: Timestamp
    expiry: Timestamp


class TransactionCoordinator:
    """The coordinator of all transactional ids of an engine. Methods are thread-safe, block, and raise RequestError."""

    def __init__(self, engine: Engine, groups: EmbeddedGroups, config: EngineConfig, clock: Clock) -> None:
        self._engine, self._groups, self._config, self._clock = engine, groups, config, clock
        self._read_only = engine.read_only or config.follows
        self._lock = threading.Lock()
        """Held while shards are added or removed. It is taken before the lock of a shard."""
        self._shards: Mapping[int, TransactionShard] = {}
        self._has_looked = False
        now = clock()
        self._due = _Due(now, Timestamp(now + config.transactional_id_check_interval_ms))
        self._ended = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transactions", daemon=True)
        self._cancel = engine.listen(self._wake.set)

    def start(self) -> None:
        """Start the thread, which first loads the state of all transactions."""
        self._thread.start()

    def close(self) -> None:
        """End the thread (blocking). The coordinator of a later start completes the remaining work."""
        self._cancel()
        self._ended = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    # Requests.

    def init_producer_id(self, name: str, timeout_ms: int, expected: ProducerRun | None) -> ProducerRun:
        """Return the id and epoch with which a producer begins; fence older producers with this transactional id."""
        if not name or not fits_key(name):
            raise RequestError(Code.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise RequestError(Code.INVALID_TRANSACTION_TIMEOUT)
        if self._read_only:
            raise RequestError(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        self._make_topic()
        with self._serving(name) as shard:
            assert shard is not None
            known = shard.transactions.get(name)
            state = initialized(known, expected, timeout_ms, self._clock(), _new_id)
            shard.put(name, state)
        if state.status in PREPARED:
            raise RequestError(Code.CONCURRENT_TRANSACTIONS)  # The client tries again after the abort.
        return state.run

    def add_partitions(
        self, name: str, run: ProducerRun, partitions: Collection[TopicPartition], version: int
    ) -> None:
        """Add partitions to the producer's transaction, and begin the transaction if none is open."""
        with self._serving(name) as shard:
            known = None if shard is None else shard.transactions.get(name)
            state = with_partitions(known, run, partitions, self._clock(), version)
            if state is not None and shard is not None:
                shard.put(name, state)

    def check_partitions(self, name: str, run: ProducerRun, partitions: Collection[TopicPartition]) -> None:
        """Check that partitions belong to the producer's transaction."""
        with self._serving(name) as shard:
            check_partitions(None if shard is None else shard.transactions.get(name), run, partitions)

    def end(self, name: str, request: End) -> ProducerRun:
        """End a producer's transaction; return the id and epoch with which the producer continues.

        On return the decision is on disk. Markers that cannot be written now are written later.
        """
        with self._serving(name) as shard:
            known = None if shard is None else shard.transactions.get(name)
            state = ended(known, request, self._clock(), _new_id)
            assert shard is not None
            assert known is not None
            if state is None:
                return known.run
            shard.put(name, state)
            return completed(state, state.updated).run

    def describe(self, name: str) -> Transaction:
        with self._serving(name) as shard:
            known = None if shard is None else shard.transactions.get(name)
        if known is None:
            raise RequestError(Code.TRANSACTIONAL_ID_NOT_FOUND)
        return known

    def listed(self) -> Mapping[str, Transaction]:
        """Return all transactional ids by name. Raises RequestError also if some of them cannot be read."""
        shards = list(self._shards.values())
        if not self._has_looked or any(one.state is TransactionShardState.LOADING for one in shards):
            raise RequestError(Code.COORDINATOR_LOAD_IN_PROGRESS)
        if self.failed:
            raise RequestError(Code.NOT_COORDINATOR)
        return dict(sorted(pair for shard in shards for pair in list(shard.transactions.items())))

    @contextmanager
    def _serving(self, name: str) -> Iterator[TransactionShard | None]:
        """Hold the lock of a transactional id's shard during the `with` block.

        Yield the shard; None if the topic does not exist.
        """
        if not name:
            raise RequestError(Code.INVALID_REQUEST)
        if not self._has_looked:
            raise RequestError(Code.COORDINATOR_LOAD_IN_PROGRESS)
        shards = self._shards
        if not shards:
            yield None
            return
        try:
            number = partition_of_name(
                TRANSACTION_STATE, name, shards, lambda one: name in shards[one].transactions
            )
        except errors.PartitionOfflineError as error:
            raise RequestError(Code.NOT_COORDINATOR) from error
        shard = shards[number]
        with shard.lock:
            shard.check()
            yield shard

    # The shards.

    def _make_topic(self) -> None:
        """Create `__transaction_state` if it is missing."""
        if self._shards or not self._has_looked:
            return
        try:
            with suppress(errors.TopicExistsError):
                self._engine.create_topic(
                    TRANSACTION_STATE, partitions=self._config.transaction_topic_num_partitions
                )
        except (errors.StorageError, OSError) as error:
            _LOGGER.warning("%s: cannot be created: %s", TRANSACTION_STATE, error)
            raise RequestError(Code.COORDINATOR_NOT_AVAILABLE) from error
        self.load()

    @property
    def failed(self) -> list[str]:
        """The partitions of `__transaction_state` that could not be read."""
        failed = TransactionShardState.FAILED
        return [
            f"{TRANSACTION_STATE}-{number}" for number, one in self._shards.items() if one.state is failed
        ]

    def load(self) -> None:
        """Load partitions of the topic that are new, were reopened, or could not be loaded before (blocking)."""
        with self._lock:
            topic = self._engine.topics().get(TRANSACTION_STATE)
            partitions = {} if topic is None else topic.partitions()
            shards = {}
            for number in partitions:
                partition, shard = partitions[number], self._shards.get(number)
                if shard is None or shard.partition is not partition:
                    shard = TransactionShard(partition, self._clock, self._end_in)
                shards[number] = shard
            self._shards, self._has_looked = shards, True
            for shard in shards.values():
                if shard.state is not TransactionShardState.ACTIVE and not self._ended:
                    with shard.lock:
                        shard.load()

    def maintain(self) -> None:
        """Load missing shards, end prepared transactions, and do the duties that are due (blocking)."""
        self.load()
        if self._read_only:
            return
        now, due = self._clock(), self._due
        for shard in self._shards.values():
            if self._ended or shard.state is not TransactionShardState.ACTIVE:
                continue
            with shard.lock:
                shard.end_prepared()
                if now >= due.timeouts:
                    self._abort_timed_out(shard, now)
                if now >= due.expiry:
                    with suppress(RequestError):
                        shard.expire(now, self._config.transactional_id_expiration_ms)
        if now >= due.timeouts:
            due = due._replace(timeouts=Timestamp(now + self._config.transaction_timeout_check_interval_ms))
        if now >= due.expiry:
            due = due._replace(expiry=Timestamp(now + self._config.transactional_id_check_interval_ms))
        self._due = due

    def _abort_timed_out(self, shard: TransactionShard, now: Timestamp) -> None:
        for name, known in list(shard.transactions.items()):
            if has_timed_out(known, now):
                _LOGGER.info("aborting the transaction of %s, whose timeout has passed", name)
                with suppress(RequestError):  # The next call tries again.
                    shard.put(name, aborted_by_coordinator(known, now, _new_id))

    def _run(self) -> None:
        while not self._ended:
            self._wake.clear()
            try:
                self.maintain()
            except Exception:  # A bug with one transaction must not stop the timeouts of the others.
                _LOGGER.exception("unexpected error in the thread of the transactions")
            is_done = self._has_looked and all(
                one.state is TransactionShardState.ACTIVE and not one.owes_markers
                for one in self._shards.values()
            )
            interval = self._config.transaction_timeout_check_interval_ms / 1000
            self._wake.wait(interval if is_done else min(interval, RETRY_SECONDS))

    # Markers.

    def write_marker(self, place: TopicPartition, run: ProducerRun, marker: EndTransactionMarker) -> None:
        """Write a marker to disk, unless the partition was deleted. Raises StorageError, OSError."""
        topic = self._engine.topics().get(place.topic)
        if topic is None or place.partition not in topic.partitions():
            return  # It was deleted. Partitions of a missing data directory are known, and offline.
        if place.topic == CONSUMER_OFFSETS:
            self._groups.end_transaction(run.producer_id, run.epoch, [place.partition], marker)
            return
        batch = encode_marker(
            marker, timestamp=self._clock(), producer_id=run.producer_id, producer_epoch=run.epoch
        )
        partition = self._engine.partition(*place)
        partition.check_in_sync()  # With too few replicas, each attempt would append another marker.
        own(partition).append(batch, durable=True, origin=Origin.COORDINATOR)

    def _end_in(self, place: TopicPartition, run: ProducerRun, marker: EndTransactionMarker) -> None:
        """Write a marker as the directory's only coordinator. Raises StorageError, OSError.

        If a broker or an administrator wrote a later coordinator epoch to the partition, the marker is written with
        that epoch. If the partition knows a later epoch of the producer, the transaction has ended there, and no
        marker is written.
        """
        try:
            self.write_marker(place, run, marker)
        except errors.ProducerFencedError as error:
            producers = own(self._engine.partition(*place)).producers()
            known = next((one for one in producers if one.producer_id == run.producer_id), None)
            if known is None or known.epoch > run.epoch:
                _LOGGER.warning("%s: gets no marker: %s", place, reason_of(error))
                return
            self.write_marker(place, run, marker._replace(coordinator_epoch=known.coordinator_epoch))


def _new_id() -> ProducerId:
    return next_run(None)[0]
