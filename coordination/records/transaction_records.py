"""Records of `__transaction_state`: the states of transactional ids. Source: kafka-coordinators.md#transaction-records."""

from __future__ import annotations

from topicfs.storage.wire import Schema, parse_fields

STATUSES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)

TRANSACTION_KEY = Schema(
    name="TransactionLogKey", versions=range(1), fields=parse_fields("transactionalId string")
)
TRANSACTION_VALUE = Schema(
    name="TransactionLogValue",
    versions=range(2),
    flexible_since=1,
    fields=parse_fields("""
        producerId int64, previousProducerId int64 1+ @0 =-1, nextProducerId int64 1+ @1 =-1, producerEpoch int16,
        nextProducerEpoch int16 1+ @3 =-1, transactionTimeoutMs int32, transactionStatus int8,
        transactionPartitions [topic string, partitionIds [int32]]?, transactionLastUpdateTimestampMs int64,
        transactionStartTimestampMs int64, clientTransactionVersion int16 1+ @2"""),
)


def status_name(status: int) -> str:
    """Return the name of a transaction's status as Kafka's tools print it."""
    return STATUSES[status] if 0 <= status < len(STATUSES) else f"Unknown({status})"
