"""The requests of Kafka's protocol and their answers, with Kafka's names and order of fields.

`protocol.notation` explains the notation, and a test compares the fields with those in Kafka's jar. A server reads
every listed version. A client uses only versions from `asked_since` on, which Kafka 2.8 supports. Requests about
groups are in `protocol.group_messages`.
"""

from __future__ import annotations

from topicfs.protocol.group_messages import GROUP_APIS
from topicfs.protocol.notation import api
from topicfs.protocol.transaction_messages import TRANSACTION_APIS
from topicfs.storage.wire import NEWEST

API_VERSIONS = api(
    18,
    "ApiVersions",
    range(5),
    request="clientSoftwareName string 3+, clientSoftwareVersion string 3+",
    response="""
        errorCode int16, apiKeys [apiKey int16, minVersion int16, maxVersion int16], throttleTimeMs int32 1+,
        supportedFeatures [name string, minVersion int16, maxVersion int16] @0 3+,
        finalizedFeaturesEpoch int64 @1 3+ =-1,
        finalizedFeatures [name string, maxVersionLevel int16, minVersionLevel int16] @2 3+""",
    flexible_since=3,
)
"""In every version the answer's header has the oldest form, because the client does not know yet which versions the
server supports.
"""

METADATA = api(
    3,
    "Metadata",
    range(14),
    request="""
        topics [topicId uuid 10+, name string?10+]?1+,
        allowAutoTopicCreation bool 4+,
        includeClusterAuthorizedOperations bool 8-10,
        includeTopicAuthorizedOperations bool 8+""",
    response="""
        throttleTimeMs int32 3+,
        brokers [nodeId int32, host string, port int32, rack string? 1+],
        clusterId string? 2+,
        controllerId int32 1+,
        topics [
            errorCode int16, name string?12+, topicId uuid 10+, isInternal bool 1+,
            partitions [
                errorCode int16, partitionIndex int32, leaderId int32, leaderEpoch int32 7+,
                replicaNodes [int32], isrNodes [int32], offlineReplicas [int32] 5+
            ],
            topicAuthorizedOperations int32 8+
        ],
        clusterAuthorizedOperations int32 8-10,
        errorCode int16 13+""",
    flexible_since=9,
).asked_from(10)
METADATA_BY_ID = METADATA.asked_from(12)
"""Metadata from version 12 on (Kafka 3.1), which accepts topic IDs. Kafka 2.8 does not answer these versions."""

FETCH = api(
    1,
    "Fetch",
    range(4, 19),
    request="""
        replicaId int32 0-14, maxWaitMs int32, minBytes int32, maxBytes int32, isolationLevel int8,
        sessionId int32 7+, sessionEpoch int32 7+,
        topics [
            topic string 0-12, topicId uuid 13+,
            partitions [
                partition int32, currentLeaderEpoch int32 9+, fetchOffset int64, lastFetchedEpoch int32 12+,
                logStartOffset int64 5+, partitionMaxBytes int32
            ]
        ],
        forgottenTopicsData [topic string 7-12, topicId uuid 13+, partitions [int32]] 7+,
        rackId string 11+""",
    response="""
        throttleTimeMs int32, errorCode int16 7+, sessionId int32 7+,
        responses [
            topic string 0-12, topicId uuid 13+,
            partitions [
                partitionIndex int32, errorCode int16, highWatermark int64, lastStableOffset int64,
                logStartOffset int64 5+,
                divergingEpoch {epoch int32, endOffset int64} @0 12+,
                abortedTransactions [producerId int64, firstOffset int64]?,
                preferredReadReplica int32 11+, records records?
            ]
        ]""",
    flexible_since=12,
).asked_from(12)
"""From version 13 on, a topic is identified by its ID, so that a re-created topic is not taken for the deleted one."""

PRODUCE = api(
    0,
    "Produce",
    range(3, 14),
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
                index int32, errorCode int16, baseOffset int64, logAppendTimeMs int64, logStartOffset int64 5+,
                recordErrors [batchIndex int32, batchIndexErrorMessage string?] 8+, errorMessage string? 8+
            ]
        ],
        throttleTimeMs int32""",
    flexible_since=9,
).asked_from(9)
"""A request has one batch for each partition."""

INIT_PRODUCER_ID = api(
    22,
    "InitProducerId",
    range(6),
    request="transactionalId string?, transactionTimeoutMs int32, producerId int64 3+, producerEpoch int16 3+",
    response="throttleTimeMs int32, errorCode int16, producerId int64, producerEpoch int16",
    flexible_since=2,
).asked_from(4)

LIST_OFFSETS = api(
    2,
    "ListOffsets",
    range(1, 12),
    request="""
        replicaId int32, isolationLevel int8 2+,
        topics [name string, partitions [partitionIndex int32, currentLeaderEpoch int32 4+, timestamp int64]],
        timeoutMs int32 10+""",
    response="""
        throttleTimeMs int32 2+,
        topics [
            name string,
            partitions [partitionIndex int32, errorCode int16, timestamp int64, offset int64, leaderEpoch int32 4+]
        ]""",
    flexible_since=6,
).asked_from(6)

OFFSET_FOR_LEADER_EPOCH = api(
    23,
    "OffsetForLeaderEpoch",
    range(2, 5),
    request="""
        replicaId int32 3+,
        topics [topic string, partitions [partition int32, currentLeaderEpoch int32, leaderEpoch int32]]""",
    response="""
        throttleTimeMs int32,
        topics [topic string, partitions [errorCode int16, partition int32, leaderEpoch int32, endOffset int64]]""",
    flexible_since=4,
).asked_from(4)

CREATE_TOPICS = api(
    19,
    "CreateTopics",
    range(2, 8),
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
            name string, topicId uuid 7+, errorCode int16, errorMessage string?,
            topicConfigErrorCode int16 @0 5+, numPartitions int32 5+, replicationFactor int16 5+,
            configs [name string, value string?, readOnly bool, configSource int8, isSensitive bool]? 5+
        ]""",
    flexible_since=5,
).asked_from(7)

CREATE_PARTITIONS = api(
    37,
    "CreatePartitions",
    range(4),
    request="""
        topics [name string, count int32, assignments [brokerIds [int32]]?],
        timeoutMs int32, validateOnly bool""",
    response="throttleTimeMs int32, results [name string, errorCode int16, errorMessage string?]",
    flexible_since=2,
).asked_from(2)

DELETE_TOPICS = api(
    20,
    "DeleteTopics",
    range(1, 7),
    request="topics [name string?, topicId uuid] 6+, topicNames [string] 0-5, timeoutMs int32",
    response="""
        throttleTimeMs int32,
        responses [name string?6+, topicId uuid 6+, errorCode int16, errorMessage string? 5+]""",
    flexible_since=4,
).asked_from(6)

DELETE_RECORDS = api(
    21,
    "DeleteRecords",
    range(3),
    request="topics [name string, partitions [partitionIndex int32, offset int64]], timeoutMs int32",
    response="""
        throttleTimeMs int32,
        topics [name string, partitions [partitionIndex int32, lowWatermark int64, errorCode int16]]""",
    flexible_since=2,
).asked_from(2)

INCREMENTAL_ALTER_CONFIGS = api(
    44,
    "IncrementalAlterConfigs",
    range(2),
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
).asked_from(1)

ALTER_CONFIGS = api(
    33,
    "AlterConfigs",
    range(3),
    request="""
        resources [resourceType int8, resourceName string, configs [name string, value string?]],
        validateOnly bool""",
    response="""
        throttleTimeMs int32,
        responses [errorCode int16, errorMessage string?, resourceType int8, resourceName string]""",
    flexible_since=2,
)

DESCRIBE_CONFIGS = api(
    32,
    "DescribeConfigs",
    range(1, 5),
    request="""
        resources [resourceType int8, resourceName string, configurationKeys [string]?],
        includeSynonyms bool, includeDocumentation bool 3+""",
    response="""
        throttleTimeMs int32,
        results [
            errorCode int16, errorMessage string?, resourceType int8, resourceName string,
            configs [
                name string, value string?, readOnly bool, configSource int8, isSensitive bool,
                synonyms [name string, value string?, source int8],
                configType int8 3+, documentation string? 3+
            ]
        ]""",
    flexible_since=4,
).asked_from(4)

DESCRIBE_LOG_DIRS = api(
    35,
    "DescribeLogDirs",
    range(1, 6),
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
).asked_from(2)

DESCRIBE_CLUSTER = api(
    60,
    "DescribeCluster",
    range(3),
    request="includeClusterAuthorizedOperations bool, endpointType int8 1+, includeFencedBrokers bool 2+",
    response="""
        throttleTimeMs int32, errorCode int16, errorMessage string?, endpointType int8 1+,
        clusterId string, controllerId int32,
        brokers [brokerId int32, host string, port int32, rack string?, isFenced bool 2+],
        clusterAuthorizedOperations int32""",
)

DESCRIBE_TOPIC_PARTITIONS = api(
    75,
    "DescribeTopicPartitions",
    range(1),
    request="""
        topics [name string], responsePartitionLimit int32,
        cursor {topicName string, partitionIndex int32}?""",
    response="""
        throttleTimeMs int32,
        topics [
            errorCode int16, name string?, topicId uuid, isInternal bool,
            partitions [
                errorCode int16, partitionIndex int32, leaderId int32, leaderEpoch int32,
                replicaNodes [int32], isrNodes [int32], eligibleLeaderReplicas [int32]?, lastKnownElr [int32]?,
                offlineReplicas [int32]
            ],
            topicAuthorizedOperations int32
        ],
        nextCursor {topicName string, partitionIndex int32}?""",
)

SASL_HANDSHAKE = api(
    17,
    "SaslHandshake",
    range(2),
    request="mechanism string",
    response="errorCode int16, mechanisms [string]",
    flexible_since=NEWEST,
).asked_from(1)

SASL_AUTHENTICATE = api(
    36,
    "SaslAuthenticate",
    range(3),
    request="authBytes bytes",
    response="errorCode int16, errorMessage string?, authBytes bytes, sessionLifetimeMs int64 1+",
    flexible_since=2,
).asked_from(2)

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
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    SASL_HANDSHAKE,
    SASL_AUTHENTICATE,
    *GROUP_APIS,
    *TRANSACTION_APIS,
)
