"""Records of `__transaction_state`: the states of transactional ids. Source: kafka-coordinators.md#transaction-records."""

from __future__ import annotations

from topicfs.storage.wire import Field, Schema

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
"""The statuses by the number in the record."""

TRANSACTION_KEY = Schema(
    name="TransactionLogKey", versions=range(1), fields=(Field(name="transactionalId", kind="string"),)
)

_PARTITIONS = (
    Field(name="topic", kind="string"),
    Field(name="partitionIds", kind="array", of="int32"),
)

TRANSACTION_VALUE = Schema(
    name="TransactionLogValue",
    versions=range(2),
    flexible_since=1,
    fields=(
        Field(name="producerId", kind="int64"),
        Field(name="previousProducerId", kind="int64", since=1, tag=0, default=-1, has_default=True),
        Field(name="nextProducerId", kind="int64", since=1, tag=1, default=-1, has_default=True),
        Field(name="producerEpoch", kind="int16"),
        Field(name="nextProducerEpoch", kind="int16", since=1, tag=3, default=-1, has_default=True),
        Field(name="transactionTimeoutMs", kind="int32"),
        Field(name="transactionStatus", kind="int8"),
        Field(name="transactionPartitions", kind="array", of=_PARTITIONS, nullable_since=0),
        Field(name="transactionLastUpdateTimestampMs", kind="int64"),
        Field(name="transactionStartTimestampMs", kind="int64"),
        Field(name="clientTransactionVersion", kind="int16", since=1, tag=2),
    ),
)


def status_name(status: int) -> str:
    """Return a status as Kafka's tools print it."""
    return STATUSES[status] if 0 <= status < len(STATUSES) else f"Unknown({status})"
