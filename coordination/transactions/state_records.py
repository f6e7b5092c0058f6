"""The state of a transactional id as a record of `__transaction_state`, byte for byte as a broker writes it.

A broker writes a transaction's partitions in the order of a Java HashMap and a HashSet, which readers ignore.
"""

from __future__ import annotations

from collections.abc import Collection

from topicfs.coordination.records.group_records import number_and_rest, version_and_rest, with_number
from topicfs.coordination.records.transaction_records import TRANSACTION_KEY, TRANSACTION_VALUE
from topicfs.coordination.transactions.transaction import Status, Transaction
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.model import ProducerId, Timestamp, TopicPartition
from topicfs.storage.partitioning import hash_map_order, java_string_hash
from topicfs.storage.wire import Values

_KEY_TYPE = 0
_VALUE_VERSION = 1


def write_key(name: str) -> bytes:
    return with_number(_KEY_TYPE, TRANSACTION_KEY.write({"transactionalId": name}, 0))


def read_name(key: bytes) -> str | None:
    """Return the transactional id in a record's key; None for an unknown type. Raises CorruptBatchError."""
    number, rest = number_and_rest(key)
    if number != _KEY_TYPE:
        return None
    name: str = TRANSACTION_KEY.read(rest, 0)["transactionalId"]
    return name


def write_state(state: Transaction) -> bytes:
    values: Values = {
        "producerId": state.producer_id,
        "previousProducerId": state.previous_producer_id,
        "nextProducerId": state.next_producer_id,
        "producerEpoch": state.epoch,
        "transactionTimeoutMs": state.timeout_ms,
        "transactionStatus": state.status,
        "transactionPartitions": None if state.status is Status.EMPTY else _by_topic(state.partitions),
        "transactionLastUpdateTimestampMs": state.updated,
        "transactionStartTimestampMs": state.started,
        "clientTransactionVersion": state.version,
    }
    return with_number(_VALUE_VERSION, TRANSACTION_VALUE.write(values, _VALUE_VERSION))


def read_state(value: bytes) -> Transaction:
    """Return the state in a record's value. Raises CorruptBatchError, also for an unknown version or status."""
    version, rest = version_and_rest(value, TRANSACTION_VALUE)
    values = TRANSACTION_VALUE.read(rest, version)
    if values["transactionStatus"] not in set(Status):
        raise CorruptBatchError(0, f"a transactional id has the unknown status {values['transactionStatus']}")
    return Transaction(
        producer_id=ProducerId(values["producerId"]),
        epoch=values["producerEpoch"],
        timeout_ms=values["transactionTimeoutMs"],
        status=Status(values["transactionStatus"]),
        partitions=frozenset(
            TopicPartition(one["topic"], number)
            for one in values["transactionPartitions"] or ()
            for number in one["partitionIds"]
        ),
        updated=Timestamp(values["transactionLastUpdateTimestampMs"]),
        started=Timestamp(values["transactionStartTimestampMs"]),
        previous_producer_id=ProducerId(values.get("previousProducerId", -1)),
        next_producer_id=ProducerId(values.get("nextProducerId", -1)),
        version=values.get("clientTransactionVersion", 0),
    )


def _by_topic(partitions: Collection[TopicPartition]) -> list[Values]:
    """Return the partitions by topic, both in the order of a Java hash table."""
    numbers: dict[str, list[int]] = {}
    for topic, number in hash_map_order(sorted(partitions), _hash):
        numbers.setdefault(topic, []).append(number)
    return [{"topic": name, "partitionIds": numbers[name]} for name in hash_map_order(numbers)]


def _hash(partition: TopicPartition) -> int:
    """Return Java's TopicPartition.hashCode, up to its sign."""
    return 31 * (31 + partition.partition) + java_string_hash(partition.topic)
