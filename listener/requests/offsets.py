"""Requests about a partition's offsets: ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from topicfs.listener.broker import Broker, LocalPartition, Request, check_leader_epoch
from topicfs.listener.errors import RefusedError, answer_or_error
from topicfs.protocol.error_codes import ErrorCode
from topicfs.storage.model import NO_LEADER_EPOCH, NO_TIMESTAMP, Isolation, Offset, Timestamp, TimestampOffset
from topicfs.storage.wire import Values

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
"""Negative timestamps; each asks for a special offset."""
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The first version of ListOffsets in which each of these timestamps exists."""
_NOTHING = TimestampOffset(NO_TIMESTAMP, Offset(-1), NO_LEADER_EPOCH)


def list_offsets(broker: Broker, request: Request) -> Values:
    """Answer ListOffsets."""
    return _for_each(request, "name", "partitionIndex", partial(_list, broker, request))


def _for_each(request: Request, topic: str, index: str, ask: Callable[[str, Values], Values]) -> Values:
    """Return the answer, with the result of `ask` for each partition of the request."""
    topics = [
        {
            topic: one[topic],
            "partitions": [{index: each[index], **ask(one[topic], each)} for each in one["partitions"]],
        }
        for one in request.values["topics"]
    ]
    return {"topics": topics}


def _partition(broker: Broker, topic: str, index: int, leader_epoch: int) -> LocalPartition:
    partition = broker.partition(broker.engine.topic(topic), index)
    check_leader_epoch(partition, leader_epoch)
    return partition


def _list(broker: Broker, request: Request, topic: str, one: Values) -> Values:
    def find() -> Values:
        partition = _partition(broker, topic, one["partitionIndex"], one.get("currentLeaderEpoch", -1))
        return _shown(_find(partition, Timestamp(one["timestamp"]), request))

    return answer_or_error(_shown(_NOTHING), find)


def _shown(found: TimestampOffset) -> Values:
    return {"timestamp": found.timestamp, "offset": found.offset, "leaderEpoch": found.leader_epoch}


def _find(partition: LocalPartition, asked: Timestamp, request: Request) -> TimestampOffset:
    committed = request.values.get("isolationLevel", 0)
    isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    partition.find_bounds()
    offsets = partition.offsets()
    if asked < 0 and request.version < _SINCE.get(asked, 0):
        raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
    if asked == LATEST:
        return TimestampOffset(NO_TIMESTAMP, partition.visible_end(isolation), offsets.leader_epoch)
    if asked in (EARLIEST, EARLIEST_LOCAL):
        start = offsets.log_start_offset
        epoch = partition.epochs.epoch_for_offset(start)
        if (
            start == offsets.log_end_offset
        ):  # The leader epoch is known even if the leader has not written a record yet.
            epoch = offsets.leader_epoch
        return TimestampOffset(NO_TIMESTAMP, start, NO_LEADER_EPOCH if epoch is None else epoch)
    if asked == MAX_TIMESTAMP:
        asked, isolation = partition.newest_timestamp, Isolation.READ_UNCOMMITTED
    if asked < 0:
        return _NOTHING
    return partition.offset_for_timestamp(asked, isolation=isolation) or _NOTHING


def offset_for_leader_epoch(broker: Broker, request: Request) -> Values:
    """Answer OffsetForLeaderEpoch with the end offset of the epoch that the client names."""

    def ask(topic: str, one: Values) -> Values:
        def find() -> Values | None:
            partition = _partition(broker, topic, one["partition"], one["currentLeaderEpoch"])
            epoch = one["leaderEpoch"]
            end = partition.epochs.end_offset_for(epoch, partition.offsets().log_end_offset)
            return (
                None if end is None or epoch < 0 else {"leaderEpoch": end.epoch, "endOffset": end.end_offset}
            )

        return answer_or_error({"leaderEpoch": -1, "endOffset": -1}, find)

    return _for_each(request, "topic", "partition", ask)


def delete_records(broker: Broker, request: Request) -> Values:
    """Answer DeleteRecords: delete the records below an offset; -1 means all visible records."""

    def ask(topic: str, one: Values) -> Values:
        def delete() -> Values:
            if broker.engine.topic(topic).internal:
                raise RefusedError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"{topic}: records of an internal topic cannot be deleted",
                )
            partition = _partition(broker, topic, one["partitionIndex"], -1)
            with broker.rest():
                return {"lowWatermark": partition.delete_records(Offset(one["offset"]))}

        return answer_or_error({"lowWatermark": -1}, delete)

    return _for_each(request, "name", "partitionIndex", ask)
