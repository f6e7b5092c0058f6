"""Requests that change topics: CreateTopics, CreatePartitions, DeleteTopics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from uuid import UUID

from topicfs.listener.broker import Broker, Request
from topicfs.listener.errors import RefusedError, answer_or_error
from topicfs.listener.requests.configs import created_settings
from topicfs.protocol.error_codes import ErrorCode
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.names import check_new_topic, check_partitions
from topicfs.storage.errors import InvalidConfigError, ReadOnlyError, TopicExistsError
from topicfs.storage.wire import Values

_DEFAULT = -1


def create_topics(broker: Broker, request: Request) -> Values:
    """Answer CreateTopics."""
    asked, only_check = request.values["topics"], request.values["validateOnly"]
    names = [one["name"] for one in asked]
    nothing = {"topicId": UUID(int=0), "numPartitions": -1, "replicationFactor": -1, "configs": []}
    topics = [
        answer_or_error(
            {"name": one["name"], **nothing}, partial(_create, broker, one, names, only_check=only_check)
        )
        for one in {one["name"]: one for one in asked}.values()
    ]
    return {"topics": topics}


def _create(broker: Broker, one: Values, names: Sequence[str], *, only_check: bool) -> Values:
    name, partitions = one["name"], one["numPartitions"]
    _check_once(name, names)
    if one["assignments"]:
        if (partitions, one["replicationFactor"]) != (_DEFAULT, _DEFAULT):
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "give assignments, or numbers of partitions and replicas"
            )
        numbers = sorted(each["partitionIndex"] for each in one["assignments"])
        _check_assignments(broker, [each["brokerIds"] for each in one["assignments"]])
        if numbers != list(range(len(numbers))):
            raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions are numbered from 0")
        partitions = len(numbers)
    elif one["replicationFactor"] not in (_DEFAULT, 1):
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {one['replicationFactor']}: there is one broker; `topicfs mount --replicas` keeps "
            "copies on several disks",
        )
    overrides = _overrides(one)
    _check_name(broker, name)
    count = broker.config.num_partitions if partitions == _DEFAULT else partitions
    _check_count(count)
    TopicConfig.from_overrides(overrides, broker.config.topic_defaults)
    if broker.engine.read_only:
        raise ReadOnlyError(f"{name}: opened read-only")
    if only_check:
        return {"numPartitions": count, "replicationFactor": 1}
    with broker.rest():
        topic = broker.engine.create_topic(name, partitions=count, overrides=overrides)
    return {
        "topicId": decode_id(topic.topic_id),
        "numPartitions": count,
        "replicationFactor": 1,
        "configs": created_settings(broker.config, topic),
    }


def _check_name(broker: Broker, name: str) -> None:
    topics = broker.engine.topics()
    try:
        check_new_topic(name, topics)
    except TopicExistsError as error:
        if name in topics:
            raise
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None


def _overrides(one: Values) -> dict[str, str]:
    if empty := [each["name"] for each in one["configs"] if each["value"] is None]:
        raise InvalidConfigError(f"{empty[0]}: a setting of a new topic needs a value")
    return {each["name"]: each["value"] for each in one["configs"]}


def _check_count(count: int) -> None:
    try:
        check_partitions(count)
    except InvalidConfigError as error:
        raise RefusedError(ErrorCode.INVALID_PARTITIONS, str(error)) from None


def _check_assignments(broker: Broker, assignments: Iterable[Sequence[int]]) -> None:
    if any(list(brokers) != [broker.node_id] for brokers in assignments):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {broker.node_id} is the only broker of the cluster"
        )


def _check_once(name: str, names: Sequence[str]) -> None:
    if names.count(name) > 1:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"{name}: the request names the topic more than once")


def create_partitions(broker: Broker, request: Request) -> Values:
    """Answer CreatePartitions."""
    asked, only_check = request.values["topics"], request.values["validateOnly"]
    names = [one["name"] for one in asked]
    results = [
        answer_or_error({"name": one["name"]}, partial(_extend, broker, one, names, only_check=only_check))
        for one in asked
    ]
    return {"results": results}


def _extend(broker: Broker, one: Values, names: Sequence[str], *, only_check: bool) -> None:
    name, total = one["name"], one["count"]
    _check_once(name, names)
    present = len(broker.engine.topic(name).partitions())
    if total <= present:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS, f"{name}: the topic already has {present} partitions"
        )
    _check_count(total)
    if one["assignments"] is not None:
        if len(one["assignments"]) != total - present:
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{name}: assign each of the {total - present} new partitions",
            )
        _check_assignments(broker, [each["brokerIds"] for each in one["assignments"]])
    if not only_check:
        with broker.rest():
            broker.engine.add_partitions(name, total=total)


def delete_topics(broker: Broker, request: Request) -> Values:
    """Answer DeleteTopics. Topics are identified by name or, from version 6 on, by ID."""
    asked = request.values.get("topics")
    if asked is None:
        asked = [{"name": name, "topicId": UUID(int=0)} for name in request.values["topicNames"]]
    return {"responses": [answer_or_error(one, partial(_delete, broker, one)) for one in asked]}


def _delete(broker: Broker, one: Values) -> Values:
    if (one["name"] is None) == (not one["topicId"].int):
        raise RefusedError(ErrorCode.INVALID_REQUEST, "name the topic, or give its id")
    topic = broker.topic_of({"topicId": one["topicId"], "name": one["name"]})
    with broker.rest():
        broker.engine.delete_topic(topic.name)
    return {"name": topic.name, "topicId": decode_id(topic.topic_id)}
