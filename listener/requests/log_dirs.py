"""DescribeLogDirs: the data directories, and the sizes of their partitions."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from topicfs.listener.broker import Broker, Request
from topicfs.protocol.error_codes import ErrorCode
from topicfs.storage.engine import Topic
from topicfs.storage.errors import StorageError
from topicfs.storage.wire import Values


def describe_log_dirs(broker: Broker, request: Request) -> Values:
    """Answer DescribeLogDirs."""
    asked = request.values["topics"]
    wanted = None if asked is None else {one["topic"]: set(one["partitions"]) for one in asked}
    places: defaultdict[str, defaultdict[str, list[Values]]] = defaultdict(lambda: defaultdict(list))
    with broker.rest():
        for topic in broker.engine.topics().values():
            if wanted is None or topic.name in wanted:
                for place, copy in _copies(topic, None if wanted is None else wanted[topic.name]):
                    places[place][topic.name].append(copy)
    results = [
        {
            "errorCode": ErrorCode.NONE if directory.offline is None else ErrorCode.KAFKA_STORAGE_ERROR,
            "logDir": os.path.abspath(directory.path),  # noqa: PTH100 (no link is followed)
            "topics": [
                {"name": topic, "partitions": partitions}
                for topic, partitions in places[os.path.abspath(directory.path)].items()  # noqa: PTH100
            ],
            **_space(directory.path),
            "isCordoned": False,
        }
        for directory in broker.engine.directories()
    ]
    return {"errorCode": 0, "results": results}


def _space(directory: str) -> Values:
    with suppress(OSError):
        found = os.statvfs(directory)
        return {"totalBytes": found.f_blocks * found.f_frsize, "usableBytes": found.f_bavail * found.f_frsize}
    return {"totalBytes": -1, "usableBytes": -1}


def _copies(topic: Topic, wanted: set[int] | None) -> Iterator[tuple[str, Values]]:
    """Yield the data directory and the description of each replica of the wanted partitions."""
    for number, partition in topic.partitions().items():
        if wanted is not None and number not in wanted:
            continue
        with suppress(OSError, StorageError):
            status = partition.status()
            end = status.offsets.log_end_offset
            for replica in status.replicas:
                if replica.log_bytes is not None:
                    lag = max(end - (replica.end_offset or 0), 0)
                    place = os.path.abspath(replica.place)  # noqa: PTH100
                    yield place, _copy(number, replica.log_bytes, lag, arriving=replica.arriving)
            if not status.replicas and partition.directory is not None:
                place = os.path.abspath(Path(partition.directory).parent)  # noqa: PTH100
                yield place, _copy(number, status.log_bytes or 0, 0, arriving=False)


def _copy(number: int, size: int, lag: int, *, arriving: bool) -> Values:
    return {"partitionIndex": number, "partitionSize": size, "offsetLag": lag, "isFutureKey": arriving}
