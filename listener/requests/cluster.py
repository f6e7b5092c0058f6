"""Requests about the cluster and its topics: ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from topicfs.listener.broker import Broker, Request
from topicfs.listener.errors import REFUSALS, RefusedError, code_of
from topicfs.protocol.error_codes import ErrorCode
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.disk.names import check_topic_name
from topicfs.storage.engine import Topic
from topicfs.storage.model import NO_LEADER_EPOCH
from topicfs.storage.partitioning import least_count
from topicfs.storage.wire import Values

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
NOT_ASKED = -(2**31)
"""Value of the authorized operations in an answer if the client did not request them."""
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
"""All operations on a topic and on a cluster; Kafka's numbers count the bits. Every client may perform all of them."""
BROKERS, CONTROLLERS = 1, 2
"""Endpoint types of DescribeCluster."""
MAX_DESCRIBED_PARTITIONS = 2000
"""Largest number of partitions in an answer to DescribeTopicPartitions (max.request.partition.size.limit)."""


def check_software(values: Values) -> None:
    """Raise RefusedError if the name or version of the client's software has a form that ApiVersions does not allow."""
    for name in ("clientSoftwareName", "clientSoftwareVersion"):
        if name in values and not _SOFTWARE.fullmatch(values[name]):
            raise RefusedError(ErrorCode.INVALID_REQUEST)


def metadata(broker: Broker, request: Request) -> Values:
    """Answer Metadata; create missing topics that the request names, if the client and the settings allow it."""
    values, version = request.values, request.version
    asked = values["topics"]
    if asked is None or (version == 0 and not asked):
        topics = [_described(broker, topic, request) for topic in broker.engine.topics().values()]
    else:
        may = broker.config.auto_create_topics and not broker.engine.read_only
        create = values.get("allowAutoTopicCreation", True) and may
        topics = [_asked(broker, one, request, create=create) for one in asked]
    all_operations = values.get("includeClusterAuthorizedOperations", False)
    return {
        "brokers": [_node(broker)],
        "clusterId": broker.cluster_id,
        "controllerId": broker.node_id,
        "topics": topics,
        "clusterAuthorizedOperations": CLUSTER_OPERATIONS if all_operations else NOT_ASKED,
        "errorCode": 0,
    }


def _node(broker: Broker) -> Values:
    host, port = broker.advertised
    return {"nodeId": broker.node_id, "host": host, "port": port, "rack": None}


def _asked(broker: Broker, one: Values, request: Request, *, create: bool) -> Values:
    """Return the description of a requested topic, or its error."""
    name, unique = one["name"], one.get("topicId", UUID(int=0))
    try:
        if name is None or unique.int:
            name = None
            topic = broker.topic_of({"topicId": unique})
        else:
            check_topic_name(name)
            topic = broker.engine.topics().get(name) or (
                broker.engine.create_topic(name) if create else broker.engine.topic(name)
            )
    except REFUSALS as error:
        return {
            "errorCode": code_of(error),
            "name": name if name is not None or request.version >= 12 else "",
            "topicId": unique,
            "isInternal": False,
            "partitions": [],
            "topicAuthorizedOperations": _operations(request),
        }
    return _described(broker, topic, request)


def _described(broker: Broker, topic: Topic, request: Request) -> Values:
    return {
        "errorCode": 0,
        "name": topic.name,
        "topicId": decode_id(topic.topic_id),
        "isInternal": topic.internal,
        "partitions": partitions_of(broker, topic),
        "topicAuthorizedOperations": _operations(request),
    }


def _operations(request: Request) -> int:
    """Return the bits of all operations on topics if the request asks for them; otherwise return NOT_ASKED.

    Like a broker, this does not depend on whether the topic exists.
    """
    return TOPIC_OPERATIONS if request.values.get("includeTopicAuthorizedOperations") else NOT_ASKED


def partitions_of(broker: Broker, topic: Topic) -> list[dict[str, Any]]:
    """Return a topic's partitions, and open none of them. The leader epochs of unopened partitions are unknown.

    Missing partitions are listed without a leader, because clients hash keys over the number of listed partitions.
    """
    opened = {partition.number: partition for partition in topic.opened()}
    nodes = [broker.node_id]
    found = []
    present = topic.partitions()
    for number in range(least_count(present)):
        partition = opened.get(number)
        offline = number not in present or (partition is not None and partition.summary().offline)
        found.append(
            {
                "errorCode": ErrorCode.LEADER_NOT_AVAILABLE if offline else ErrorCode.NONE,
                "partitionIndex": number,
                "leaderId": -1 if offline else broker.node_id,
                "leaderEpoch": NO_LEADER_EPOCH if partition is None else partition.offsets().leader_epoch,
                "replicaNodes": nodes,
                "isrNodes": [] if offline else nodes,
                "offlineReplicas": nodes if offline else [],
            }
        )
    return found


def describe_cluster(broker: Broker, request: Request) -> Values:
    """Answer DescribeCluster. Clients see one broker, which is also the controller."""
    values = request.values
    kind = values.get("endpointType", BROKERS)
    code = {
        BROKERS: ErrorCode.NONE,
        CONTROLLERS: ErrorCode.MISMATCHED_ENDPOINT_TYPE,
    }.get(kind, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
    node = _node(broker)
    operations = values["includeClusterAuthorizedOperations"]
    return {
        "errorCode": code,
        "errorMessage": None if code is ErrorCode.NONE else "this is a broker, not a controller",
        "endpointType": BROKERS,
        "clusterId": broker.cluster_id,
        "controllerId": broker.node_id,
        "brokers": [] if code else [{**node, "brokerId": node["nodeId"], "isFenced": False}],
        "clusterAuthorizedOperations": CLUSTER_OPERATIONS if operations and not code else NOT_ASKED,
    }


def describe_topic_partitions(broker: Broker, request: Request) -> Values:
    """Answer DescribeTopicPartitions: the named topics, from a cursor on, up to the requested number of partitions."""
    values = request.values
    names = {one["name"] for one in values["topics"]} or set(broker.engine.topics())
    cursor = values["cursor"] or {"topicName": "", "partitionIndex": 0}
    left = min(max(values["responsePartitionLimit"], 1), MAX_DESCRIBED_PARTITIONS)
    topics: list[Values] = []
    following = None
    for name in sorted(name for name in names if name >= cursor["topicName"]):
        first = cursor["partitionIndex"] if name == cursor["topicName"] else 0
        if not left:
            following = {"topicName": name, "partitionIndex": first}
            break
        topic = broker.engine.topics().get(name)
        if topic is None:
            topics.append(
                {
                    "errorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    "name": name,
                    "isInternal": False,
                    "partitions": [],
                    "topicAuthorizedOperations": TOPIC_OPERATIONS,
                }
            )
            continue
        partitions = [one for one in partitions_of(broker, topic) if one["partitionIndex"] >= first]
        described = partitions[:left]
        topics.append(
            {
                "errorCode": 0,
                "name": name,
                "topicId": decode_id(topic.topic_id),
                "isInternal": topic.internal,
                "partitions": [
                    {**one, "eligibleLeaderReplicas": [], "lastKnownElr": []} for one in described
                ],
                "topicAuthorizedOperations": TOPIC_OPERATIONS,
            }
        )
        left -= len(described)
        if len(described) < len(partitions):
            following = {"topicName": name, "partitionIndex": partitions[len(described)]["partitionIndex"]}
            break
    return {"topics": topics, "nextCursor": following}
