"""Requests about transactions and their answers: producers' ids, a transaction's partitions and end, descriptions.

`protocol.messages` explains which versions are listed.
"""

from __future__ import annotations

from topicfs.protocol.notation import api

ADD_PARTITIONS_TO_TXN = api(
    24,
    "AddPartitionsToTxn",
    range(6),
    request="""
        v3AndBelowTransactionalId string 0-3, v3AndBelowProducerId int64 0-3, v3AndBelowProducerEpoch int16 0-3,
        v3AndBelowTopics [name string, partitions [int32]] 0-3,
        transactions [
            transactionalId string, producerId int64, producerEpoch int16, verifyOnly bool,
            topics [name string, partitions [int32]]
        ] 4+""",
    response="""
        throttleTimeMs int32, errorCode int16 4+,
        resultsByTransaction [
            transactionalId string,
            topicResults [name string, resultsByPartition [partitionIndex int32, partitionErrorCode int16]]
        ] 4+,
        resultsByTopicV3AndBelow [
            name string, resultsByPartition [partitionIndex int32, partitionErrorCode int16]
        ] 0-3""",
    flexible_since=3,
)
"""Clients use the versions up to 3, brokers the later ones."""

ADD_OFFSETS_TO_TXN = api(
    25,
    "AddOffsetsToTxn",
    range(5),
    request="transactionalId string, producerId int64, producerEpoch int16, groupId string",
    response="throttleTimeMs int32, errorCode int16",
    flexible_since=3,
)

END_TXN = api(
    26,
    "EndTxn",
    range(6),
    request="transactionalId string, producerId int64, producerEpoch int16, committed bool",
    response="throttleTimeMs int32, errorCode int16, producerId int64 5+ =-1, producerEpoch int16 5+ =-1",
    flexible_since=3,
)
"""From version 5 on, the producer continues with the id and epoch in the answer."""

WRITE_TXN_MARKERS = api(
    27,
    "WriteTxnMarkers",
    range(1, 3),
    request="""
        markers [
            producerId int64, producerEpoch int16, transactionResult bool,
            topics [name string, partitionIndexes [int32]],
            coordinatorEpoch int32, transactionVersion int8 2+
        ]""",
    response="""
        markers [
            producerId int64,
            topics [name string, partitions [partitionIndex int32, errorCode int16]]
        ]""",
    flexible_since=1,
)
"""Coordinators use it to end transactions; `kafka-transactions abort` uses it to end a hanging transaction."""

TXN_OFFSET_COMMIT = api(
    28,
    "TxnOffsetCommit",
    range(6),
    request="""
        transactionalId string, groupId string, producerId int64, producerEpoch int16,
        generationId int32 3+ =-1, memberId string 3+, groupInstanceId string? 3+ =null,
        topics [
            name string,
            partitions [
                partitionIndex int32, committedOffset int64, committedLeaderEpoch int32 2+ =-1,
                committedMetadata string?
            ]
        ]""",
    response="throttleTimeMs int32, topics [name string, partitions [partitionIndex int32, errorCode int16]]",
    flexible_since=3,
)
"""From version 5 on, the request also adds the group's partition to the transaction."""

DESCRIBE_PRODUCERS = api(
    61,
    "DescribeProducers",
    range(1),
    request="topics [name string, partitionIndexes [int32]]",
    response="""
        throttleTimeMs int32,
        topics [
            name string,
            partitions [
                partitionIndex int32, errorCode int16, errorMessage string?,
                activeProducers [
                    producerId int64, producerEpoch int32, lastSequence int32, lastTimestamp int64,
                    coordinatorEpoch int32, currentTxnStartOffset int64
                ]
            ]
        ]""",
)

DESCRIBE_TRANSACTIONS = api(
    65,
    "DescribeTransactions",
    range(1),
    request="transactionalIds [string]",
    response="""
        throttleTimeMs int32,
        transactionStates [
            errorCode int16, transactionalId string, transactionState string, transactionTimeoutMs int32,
            transactionStartTimeMs int64, producerId int64, producerEpoch int16,
            topics [topic string, partitions [int32]]
        ]""",
)

LIST_TRANSACTIONS = api(
    66,
    "ListTransactions",
    range(2),
    request="stateFilters [string], producerIdFilters [int64], durationFilter int64 1+ =-1",
    response="""
        throttleTimeMs int32, errorCode int16, unknownStateFilters [string],
        transactionStates [transactionalId string, producerId int64, transactionState string]""",
)

"""Version 2 is not served: it adds a regular expression, with which a client could block the server."""

TRANSACTION_APIS = (
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    WRITE_TXN_MARKERS,
    TXN_OFFSET_COMMIT,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
)
