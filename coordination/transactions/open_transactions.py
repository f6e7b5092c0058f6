"""Finds open transactions in partitions.

A transaction hangs if no transactional id's state contains it, because then no coordinator will end it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from topicfs.coordination.transactions.coordinator import TransactionCoordinator
from topicfs.coordination.transactions.transaction import ProducerRun
from topicfs.storage.codec.control import ControlType, EndTransactionMarker
from topicfs.storage.engine import LogEngine
from topicfs.storage.errors import InvalidTransactionStateError, PartitionOfflineError
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.producers.entry import ProducerEntry
from topicfs.storage.producers.progress import own


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    place: TopicPartition
    producer: ProducerEntry
    first_offset: Offset


def open_transactions(engine: LogEngine) -> Iterator[OpenTransaction]:
    """Yield the transactions that are open in any partition. Partitions that are offline are left out. Blocks."""
    for name, topic in engine.topics().items():
        for number, partition in topic.partitions().items():
            try:
                producers = own(partition).producers()
            except PartitionOfflineError:
                continue
            for one in producers:
                if one.transaction_first_offset is not None:
                    yield OpenTransaction(TopicPartition(name, number), one, one.transaction_first_offset)


def hanging_transactions(engine: LogEngine, coordinator: TransactionCoordinator) -> list[OpenTransaction]:
    """Return the open transactions that no transactional id's state contains (blocking). Raises RequestError."""
    known = {(one.producer_id, place) for one in coordinator.listed().values() for place in one.partitions}
    return [one for one in open_transactions(engine) if (one.producer.producer_id, one.place) not in known]


def abort_hanging(coordinator: TransactionCoordinator, hanging: OpenTransaction) -> None:
    """Abort a transaction in its partition. Raises StorageError, OSError."""
    run = ProducerRun(hanging.producer.producer_id, hanging.producer.epoch)
    marker = EndTransactionMarker(ControlType.ABORT, max(hanging.producer.coordinator_epoch, 0))
    coordinator.write_marker(hanging.place, run, marker)


def find_open(engine: LogEngine, place: TopicPartition, first_offset: Offset) -> OpenTransaction:
    """Return the transaction that began at an offset of a partition. Raises InvalidTransactionStateError."""
    for one in open_transactions(engine):
        if (one.place, one.first_offset) == (place, first_offset):
            return one
    raise InvalidTransactionStateError(
        f"{place}: no open transaction begins at offset {first_offset}; topicfs transactions find-hanging shows "
        "those that hang"
    )
