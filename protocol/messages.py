"""The requests that are made of a cluster, and their answers: Kafka's own names and order of fields.

Each is known in a range of versions; which one is spoken is agreed upon with each broker (`cluster.protocol.connection`). The
schemas' notation is explained in `protocol.notation`; a test compares them with those in Kafka's jar. The oldest versions are those of
Kafka 2.8. Those about groups are in `protocol.group_messages`.
"""

from __future__ import annotations

from dataclasses import replace

from topicfs.protocol.group_messages import GROUP_APIS
from topicfs.protocol.notation import api
from topicfs.storage.wire import NEWEST

API_VERSIONS = api(
    18,
    "ApiVersions",
    range(5),
    request="clientSoftwareName string 3+, clientSoftwareVersion string 3+",
    response="errorCode int16, apiKeys [apiKey int16, minVersion int16, maxVersion int16], throttleTimeMs int32 1+",
    flexible_since=3,
)
"""Answered with a header of the oldest form, whatever its version: the client cannot know yet which ones there are."""

METADATA = api(
    3,
    "Metadata",
    range(10, 14),
    request="""
        topics [topicId uuid, name string?]?,
        allowAutoTopicCreation bool,
        includeClusterAuthorizedOperations bool 8-10,
        includeTopicAuthorizedOperations bool""",
    response="""
        throttleTimeMs int32,
        brokers [nodeId int32, host string, port int32, rack string?],
        clusterId string?,
        controllerId int32,
        topics [
            errorCode int16, name string?12+, topicId uuid, isInternal bool,
            partitions [
                errorCode int16, partitionIndex int32, leaderId int32, leaderEpoch int32,
                replicaNodes [int32], isrNodes [int32], offlineReplicas [int32]
            ],
            topicAuthorizedOperations int32
        ],
        clusterAuthorizedOperations int32 8-10,
        errorCode int16 13+""",
)
METADATA_BY_ID = replace(METADATA, request=replace(METADATA.request, versions=METADATA.request.versions[2:]))
"""Metadata from version 12 on, that of Kafka 3.1: they take ids in place of names. Kafka 2.8 would never answer."""

FETCH = api(
    1,
    "Fetch",
    range(12, 19),
    request="""
        replicaId int32 0-14, maxWaitMs int32, minBytes int32, maxBytes int32, isolationLevel int8,
        sessionId int32, sessionEpoch int32,
        topics [
            topic string 0-12, topicId uuid 13+,
            partitions [
                partition int32, currentLeaderEpoch int32, fetchOffset int64, lastFetchedEpoch int32,
                logStartOffset int64, partitionMaxBytes int32
            ]
        ],
        forgottenTopicsData [topic string 0-12, topicId uuid 13+, partitions [int32]],
        rackId string""",
    response="""
        throttleTimeMs int32, errorCode int16, sessionId int32,
        responses [
            topic string 0-12, topicId uuid 13+,
            partitions [
                partitionIndex int32, errorCode int16, highWatermark int64, lastStableOffset int64,
                logStartOffset int64,
                divergingEpoch {epoch int32, endOffset int64} @0,
                abortedTransactions [producerId int64, firstOffset int64]?,
                preferredReadReplica int32, records records?
            ]
        ]""",
)
"""From version 13 on topics are named by their ids: one that was deleted and created again is not taken for the old one."""

PRODUCE = api(
    0,
    "Produce",
    range(9, 14),
    request="""
        transactionalId string?, acks int16, timeoutMs int32,
        topicData [
            name string 0-12, topicId uuid 13+,
            partitionData [index int32, records records?]
        ]""",
    response="""
        responses [
            name string 0-12, topicId uuid 13+,
            partitionResponses [
                index int32, errorCode int16, baseOffset int64, logAppendTimeMs int64, logStartOffset int64,
                recordErrors [batchIndex int32, batchIndexErrorMessage string?], errorMessage string?
            ]
        ],
        throttleTimeMs int32""",
    flexible_since=9,
)
"""A partition gets one batch in a request."""

INIT_PRODUCER_ID = api(
    22,
    "InitProducerId",
    range(4, 6),
    request="transactionalId string?, transactionTimeoutMs int32, producerId int64, producerEpoch int16",
    response="throttleTimeMs int32, errorCode int16, producerId int64, producerEpoch int16",
    flexible_since=2,
)

LIST_OFFSETS = api(
    2,
    "ListOffsets",
    range(6, 12),
    request="""
        replicaId int32, isolationLevel int8,
        topics [name string, partitions [partitionIndex int32, currentLeaderEpoch int32, timestamp int64]],
        timeoutMs int32 10+""",
    response="""
        throttleTimeMs int32,
        topics [
            name string,
            partitions [partitionIndex int32, errorCode int16, timestamp int64, offset int64, leaderEpoch int32]
        ]""",
)

OFFSET_FOR_LEADER_EPOCH = api(
    23,
    "OffsetForLeaderEpoch",
    range(4, 5),
    request="""
        replicaId int32,
        topics [topic string, partitions [partition int32, currentLeaderEpoch int32, leaderEpoch int32]]""",
    response="""
        throttleTimeMs int32,
        topics [topic string, partitions [errorCode int16, partition int32, leaderEpoch int32, endOffset int64]]""",
)

CREATE_TOPICS = api(
    19,
    "CreateTopics",
    range(7, 8),
    request="""
        topics [
            name string, numPartitions int32, replicationFactor int16,
            assignments [partitionIndex int32, brokerIds [int32]],
            configs [name string, value string?]
        ],
        timeoutMs int32, validateOnly bool""",
    response="""
        throttleTimeMs int32,
        topics [
            name string, topicId uuid, errorCode int16, errorMessage string?,
            topicConfigErrorCode int16 @0, numPartitions int32, replicationFactor int16,
            configs [name string, value string?, readOnly bool, configSource int8, isSensitive bool]?
        ]""",
    flexible_since=5,
)

CREATE_PARTITIONS = api(
    37,
    "CreatePartitions",
    range(2, 4),
    request="""
        topics [name string, count int32, assignments [brokerIds [int32]]?],
        timeoutMs int32, validateOnly bool""",
    response="throttleTimeMs int32, results [name string, errorCode int16, errorMessage string?]",
    flexible_since=2,
)

DELETE_TOPICS = api(
    20,
    "DeleteTopics",
    range(6, 7),
    request="topics [name string?, topicId uuid], timeoutMs int32",
    response="""
        throttleTimeMs int32,
        responses [name string?, topicId uuid, errorCode int16, errorMessage string?]""",
    flexible_since=4,
)

DELETE_RECORDS = api(
    21,
    "DeleteRecords",
    range(2, 3),
    request="topics [name string, partitions [partitionIndex int32, offset int64]], timeoutMs int32",
    response="""
        throttleTimeMs int32,
        topics [name string, partitions [partitionIndex int32, lowWatermark int64, errorCode int16]]""",
    flexible_since=2,
)

INCREMENTAL_ALTER_CONFIGS = api(
    44,
    "IncrementalAlterConfigs",
    range(1, 2),
    request="""
        resources [
            resourceType int8, resourceName string,
            configs [name string, configOperation int8, value string?]
        ],
        validateOnly bool""",
    response="""
        throttleTimeMs int32,
        responses [errorCode int16, errorMessage string?, resourceType int8, resourceName string]""",
    flexible_since=1,
)

DESCRIBE_CONFIGS = api(
    32,
    "DescribeConfigs",
    range(4, 5),
    request="""
        resources [resourceType int8, resourceName string, configurationKeys [string]?],
        includeSynonyms bool, includeDocumentation bool""",
    response="""
        throttleTimeMs int32,
        results [
            errorCode int16, errorMessage string?, resourceType int8, resourceName string,
            configs [
                name string, value string?, readOnly bool, configSource int8, isSensitive bool,
                synonyms [name string, value string?, source int8],
                configType int8, documentation string?
            ]
        ]""",
)

DESCRIBE_LOG_DIRS = api(
    35,
    "DescribeLogDirs",
    range(2, 6),
    request="topics [topic string, partitions [int32]]?",
    response="""
        throttleTimeMs int32, errorCode int16 3+,
        results [
            errorCode int16, logDir string,
            topics [
                name string,
                partitions [partitionIndex int32, partitionSize int64, offsetLag int64, isFutureKey bool]
            ],
            totalBytes int64 4+, usableBytes int64 4+, isCordoned bool 5+
        ]""",
    flexible_since=2,
)

SASL_HANDSHAKE = api(
    17,
    "SaslHandshake",
    range(1, 2),
    request="mechanism string",
    response="errorCode int16, mechanisms [string]",
    flexible_since=NEWEST,
)

SASL_AUTHENTICATE = api(
    36,
    "SaslAuthenticate",
    range(2, 3),
    request="authBytes bytes",
    response="errorCode int16, errorMessage string?, authBytes bytes, sessionLifetimeMs int64",
)

APIS = (
    API_VERSIONS,
    METADATA,
    FETCH,
    PRODUCE,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    CREATE_TOPICS,
    CREATE_PARTITIONS,
    DELETE_TOPICS,
    DELETE_RECORDS,
    INCREMENTAL_ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    SASL_HANDSHAKE,
    SASL_AUTHENTICATE,
    *GROUP_APIS,
)
