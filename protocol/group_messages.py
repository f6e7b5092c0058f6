"""Requests about groups and their answers: members of the classic protocol, positions, share groups.

`protocol.messages` explains which versions are listed.
"""

from __future__ import annotations

from topicfs.protocol.notation import api
from topicfs.storage.wire import NEWEST

FIND_COORDINATOR = api(
    10,
    "FindCoordinator",
    range(7),
    request="key string 0-3, keyType int8 1+, coordinatorKeys [string] 4+",
    response="""
        throttleTimeMs int32 1+,
        errorCode int16 0-3, errorMessage string? 1-3, nodeId int32 0-3, host string 0-3, port int32 0-3,
        coordinators [
            key string, nodeId int32, host string, port int32, errorCode int16, errorMessage string?
        ] 4+""",
    flexible_since=3,
).asked_from(3)
"""Version 6 adds share groups as a key type."""

DESCRIBE_SHARE_GROUP_OFFSETS = api(
    90,
    "DescribeShareGroupOffsets",
    range(2),
    request="groups [groupId string, topics [topicName string, partitions [int32]]?]",
    response="""
        throttleTimeMs int32,
        groups [
            groupId string,
            topics [
                topicName string, topicId uuid,
                partitions [
                    partitionIndex int32, startOffset int64, leaderEpoch int32, lag int64 1+,
                    errorCode int16, errorMessage string?
                ]
            ],
            errorCode int16, errorMessage string?
        ]""",
)

ALTER_SHARE_GROUP_OFFSETS = api(
    91,
    "AlterShareGroupOffsets",
    range(1),
    request="groupId string, topics [topicName string, partitions [partitionIndex int32, startOffset int64]]",
    response="""
        throttleTimeMs int32, errorCode int16, errorMessage string?,
        responses [
            topicName string, topicId uuid,
            partitions [partitionIndex int32, errorCode int16, errorMessage string?]
        ]""",
)

WRITE_SHARE_GROUP_STATE = api(
    85,
    "WriteShareGroupState",
    range(2),
    request="""
        groupId string,
        topics [
            topicId uuid,
            partitions [
                partition int32, stateEpoch int32, leaderEpoch int32, startOffset int64,
                deliveryCompleteCount int32 1+,
                stateBatches [firstOffset int64, lastOffset int64, deliveryState int8, deliveryCount int16]
            ]
        ]""",
    response="results [topicId uuid, partitions [partition int32, errorCode int16, errorMessage string?]]",
)

JOIN_GROUP = api(
    11,
    "JoinGroup",
    range(10),
    request="""
        groupId string, sessionTimeoutMs int32, rebalanceTimeoutMs int32 1+, memberId string,
        groupInstanceId string? 5+, protocolType string, protocols [name string, metadata bytes], reason string? 8+""",
    response="""
        throttleTimeMs int32 2+, errorCode int16, generationId int32, protocolType string? 7+,
        protocolName string?7+, leader string, skipAssignment bool 9+, memberId string,
        members [memberId string, groupInstanceId string? 5+, metadata bytes]""",
    flexible_since=6,
).asked_from(7)
"""The broker answers once every member has joined, or has been removed because it did not join."""

SYNC_GROUP = api(
    14,
    "SyncGroup",
    range(6),
    request="""
        groupId string, generationId int32, memberId string, groupInstanceId string? 3+,
        protocolType string? 5+, protocolName string? 5+, assignments [memberId string, assignment bytes]""",
    response="""
        throttleTimeMs int32 1+, errorCode int16, protocolType string? 5+, protocolName string? 5+,
        assignment bytes""",
    flexible_since=4,
).asked_from(5)

HEARTBEAT = api(
    12,
    "Heartbeat",
    range(5),
    request="groupId string, generationId int32, memberId string, groupInstanceId string? 3+",
    response="throttleTimeMs int32 1+, errorCode int16",
    flexible_since=4,
).asked_from(4)

LEAVE_GROUP = api(
    13,
    "LeaveGroup",
    range(6),
    request="""
        groupId string, memberId string 0-2,
        members [memberId string, groupInstanceId string?, reason string? 5+] 3+""",
    response="""
        throttleTimeMs int32 1+, errorCode int16,
        members [memberId string, groupInstanceId string?, errorCode int16] 3+""",
    flexible_since=4,
).asked_from(4)

OFFSET_COMMIT = api(
    8,
    "OffsetCommit",
    range(2, 11),
    request="""
        groupId string, generationIdOrMemberEpoch int32, memberId string, groupInstanceId string? 7+,
        retentionTimeMs int64 2-4,
        topics [
            name string 0-9, topicId uuid 10+,
            partitions [
                partitionIndex int32, committedOffset int64, committedLeaderEpoch int32 6+, committedMetadata string?
            ]
        ]""",
    response="""
        throttleTimeMs int32 3+,
        topics [name string 0-9, topicId uuid 10+, partitions [partitionIndex int32, errorCode int16]]""",
    flexible_since=8,
).asked_from(8)
"""From version 10 on (Kafka 4.1), a topic is identified by its ID."""

OFFSET_FETCH = api(
    9,
    "OffsetFetch",
    range(1, 11),
    request="""
        groupId string 0-7, topics [name string, partitionIndexes [int32]]?2+ 0-7,
        groups [
            groupId string, memberId string? 9+, memberEpoch int32 9+,
            topics [name string 8-9, topicId uuid 10+, partitionIndexes [int32]]?
        ] 8+,
        requireStable bool 7+""",
    response="""
        throttleTimeMs int32 3+,
        topics [
            name string,
            partitions [
                partitionIndex int32, committedOffset int64, committedLeaderEpoch int32 5+, metadata string?,
                errorCode int16
            ]
        ] 0-7,
        errorCode int16 2-7,
        groups [
            groupId string,
            topics [
                name string 8-9, topicId uuid 10+,
                partitions [
                    partitionIndex int32, committedOffset int64, committedLeaderEpoch int32, metadata string?,
                    errorCode int16
                ]
            ],
            errorCode int16
        ] 8+""",
    flexible_since=6,
).asked_from(7, before=10)
"""If `topics` is null, the answer has all topics in which the group has positions.

From version 10 on (Kafka 4.1), a topic is identified by its ID.
"""

OFFSET_DELETE = api(
    47,
    "OffsetDelete",
    range(1),
    request="groupId string, topics [name string, partitions [partitionIndex int32]]",
    response="""
        errorCode int16, throttleTimeMs int32,
        topics [name string, partitions [partitionIndex int32, errorCode int16]]""",
    flexible_since=NEWEST,
)

LIST_GROUPS = api(
    16,
    "ListGroups",
    range(6),
    request="statesFilter [string] 4+, typesFilter [string] 5+",
    response="""
        throttleTimeMs int32 1+, errorCode int16,
        groups [groupId string, protocolType string, groupState string 4+, groupType string 5+]""",
    flexible_since=3,
).asked_from(4)
"""Each broker lists only the groups that it coordinates."""

DESCRIBE_GROUPS = api(
    15,
    "DescribeGroups",
    range(7),
    request="groups [string], includeAuthorizedOperations bool 3+",
    response="""
        throttleTimeMs int32 1+,
        groups [
            errorCode int16, errorMessage string? 6+, groupId string, groupState string,
            protocolType string, protocolData string,
            members [
                memberId string, groupInstanceId string? 4+, clientId string, clientHost string,
                memberMetadata bytes, memberAssignment bytes
            ],
            authorizedOperations int32 3+
        ]""",
    flexible_since=5,
).asked_from(5)

CONSUMER_GROUP_DESCRIBE = api(
    69,
    "ConsumerGroupDescribe",
    range(1),
    request="groupIds [string], includeAuthorizedOperations bool",
    response="""
        throttleTimeMs int32,
        groups [
            errorCode int16, errorMessage string?, groupId string, groupState string, groupEpoch int32,
            assignmentEpoch int32, assignorName string,
            members [
                memberId string, instanceId string?, rackId string?, memberEpoch int32, clientId string,
                clientHost string, subscribedTopicNames [string], subscribedTopicRegex string?,
                assignment {topicPartitions [topicId uuid, topicName string, partitions [int32]]},
                targetAssignment {topicPartitions [topicId uuid, topicName string, partitions [int32]]}
            ],
            authorizedOperations int32
        ]""",
)
"""Describes groups of Kafka 4's consumer protocol, which `DescribeGroups` does not know."""

DELETE_GROUPS = api(
    42,
    "DeleteGroups",
    range(3),
    request="groupsNames [string]",
    response="throttleTimeMs int32, results [groupId string, errorCode int16]",
    flexible_since=2,
).asked_from(2)

GROUP_APIS = (
    FIND_COORDINATOR,
    JOIN_GROUP,
    SYNC_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_DELETE,
    LIST_GROUPS,
    DESCRIBE_GROUPS,
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    ALTER_SHARE_GROUP_OFFSETS,
    WRITE_SHARE_GROUP_STATE,
)
