"""Moves the unfinished transactions of a stopped broker from its `__transaction_state` to that of a data directory.

The coordinator of the data directory then writes the markers that are missing, and aborts transactions that the broker
had not decided (kafka-coordinators.md#transactions).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from topicfs.coordination.engine import Engine
from topicfs.coordination.transactions.state_records import read_name, read_state, write_key, write_state
from topicfs.coordination.transactions.transaction import PREPARED, Status, Transaction
from topicfs.migration.positions import read_batches
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.codec.records import encode
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import TRANSACTION_STATE
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.model import Offset, ProducerId, Record, Timestamp, TopicPartition
from topicfs.storage.partitioning import coordinator_partition

TOPIC = TRANSACTION_STATE


def read_transactions(files: FileSystem, directories: Iterable[Path]) -> dict[str, Transaction]:
    """Read the state of each transactional id (blocking). Raises CorruptionError, OSError."""
    newest: dict[str, Transaction] = {}

    def take(batch: BatchHeader, records: Iterable[Record]) -> None:
        for record in () if batch.is_control else records:
            name = read_name(record.key or b"")
            if name is None:
                continue
            newest.pop(name, None)
            if record.value is not None:
                with suppress(CorruptBatchError):  # A version of a later Kafka.
                    newest[name] = read_state(record.value)

    for directory in directories:
        read_batches(files, directory, take)
    return newest


def committing(transactions: Mapping[str, Transaction]) -> set[ProducerId]:
    """Return the producers whose transactions are committed, although partitions may lack the marker."""
    return {one.producer_id for one in transactions.values() if one.status is Status.PREPARE_COMMIT}


def unfinished(
    transactions: Mapping[str, Transaction], taken: Collection[TopicPartition]
) -> dict[str, Transaction]:
    """Return the open and prepared transactions, limited to the partitions in `taken`; leave out those without any."""
    found = {
        name: one._replace(partitions=one.partitions.intersection(taken))
        for name, one in transactions.items()
        if one.status is Status.ONGOING or one.status in PREPARED
    }
    return {name: one for name, one in found.items() if one.partitions}


def put_transactions(
    engine: Engine, transactions: Mapping[str, Transaction], present: Mapping[str, Transaction]
) -> Iterator[str]:
    """Write states to `__transaction_state`, except for ids in `present`; yield a line for each written id."""
    partitions = EngineConfig().transaction_topic_num_partitions
    for name, state in sorted(transactions.items()):
        places = ", ".join(map(str, sorted(state.partitions)))
        if name in present and present[name].producer_id == state.producer_id:
            continue  # An earlier run wrote it.
        if name in present:
            yield f"transactional id {name}: is known here, so its transaction over {places} was not taken over"
            continue
        topic = engine.topics().get(TOPIC) or engine.create_topic(TOPIC, partitions=partitions)
        logs = topic.partitions()
        record = Record(Offset(0), Timestamp(max(0, state.updated)), write_key(name), write_state(state))
        logs[coordinator_partition(name, len(logs))].append(encode([record]), durable=True, encoded_here=True)
        end = "commits" if state.status is Status.PREPARE_COMMIT else "aborts"
        yield f"transactional id {name}: topicfs serve {end} its transaction over {places}"
