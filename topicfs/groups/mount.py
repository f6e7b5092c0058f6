"""The groups of a daemon's engine, through the files of its mount."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from topicfs.coordination.membership import Position, check_positions
from topicfs.fusefs.groups.positions import read_lag
from topicfs.groups.view import (
    CONSUMER,
    GroupSummary,
    GroupView,
    MemberView,
    PartitionPosition,
    PositionBounds,
)
from topicfs.mounted import explained, numbers_of, status_of
from topicfs.paths import check_group_name
from topicfs.storage.errors import GroupNotEmptyError, StorageError, UnknownGroupError, UnknownTopicError
from topicfs.storage.model import Offset, Timestamp, TopicPartition

_MEMBER = re.compile(
    r"member (?P<id>\S+) reader (?P<reader>.*) topics (?P<topics>\S+) (?:held \d+|partitions (?P<partitions>\S+))"
)
_PLACE = re.compile(
    r"partition (?P<partition>\S+) position (?P<position>\d+|-) lag (?P<lag>-?\d+|-)(?: committed (?:-|\S+ \S+|\S+))?(?: by (?P<by>.*))?"
)
_QUEUED = re.compile(r"(?m)^partition (?P<partition>\S+) start (?P<start>-?\d+) .* lag (?P<lag>\d+)$")


def _list(text: str) -> list[str]:
    return [] if text == "-" else text.split(",")


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def parse_status(name: str, text: str) -> GroupView:
    """Parse the `status` of a group. For a queue, the positions are left out."""
    values = {"type": CONSUMER, "assignor": "-", "coordinator": ""}
    members: list[MemberView] = []
    places: list[PartitionPosition] = []
    for line in text.splitlines():
        member, place = _MEMBER.fullmatch(line), _PLACE.fullmatch(line)
        if member is not None:
            partitions = tuple(map(_partition, _list(member["partitions"] or "-")))
            members.append(
                MemberView(member["id"], member["reader"], tuple(_list(member["topics"])), partitions)
            )
        elif place is not None:
            position = None if place["position"] == "-" else Offset(int(place["position"]))
            lag = read_lag(place["lag"])
            end_offset = Offset((position or 0) + (lag or 0))
            places.append(
                PartitionPosition(
                    _partition(place["partition"]), position, end_offset, lag, place["by"] or ""
                )
            )
        else:
            word, _, value = line.partition(" ")
            values[word] = value
    generation = values.get("generation") or values["epoch"]
    return GroupView(
        name=name,
        state=values["state"],
        type=values["type"],
        generation=-1 if generation == "-" else int(generation),
        assignor="" if values["assignor"] == "-" else values["assignor"],
        coordinator=values["coordinator"],
        members=members,
        places=places,
    )


class MountGroups:
    """Groups through a mount; see `GroupAdmin`."""

    def __init__(self, mountpoint: Path) -> None:
        self._mountpoint = mountpoint
        self._groups = mountpoint / "@groups"
        self._queues = mountpoint / "@queues"

    def listed(self) -> Sequence[GroupSummary]:
        names = [name for kind in (self._groups, self._queues) for name in sorted(os.listdir(kind))]  # noqa: PTH208 - names alone
        found = []
        for name in names:
            try:
                found.append(parse_status(name, self._status(name)))
            except UnknownGroupError:
                continue  # The group was deleted meanwhile.
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ESTALE):
                    raise
        return [GroupSummary(one.name, one.state, one.type) for one in found]

    def describe(self, group: str) -> GroupView:
        status = self._status(group)
        found = parse_status(group, status)
        places = [
            place
            if place.position is not None
            else replace(place, end_offset=self.bounds(place.partition).end_offset)
            for place in found.places
        ]
        for line in _QUEUED.finditer(status):
            partition, start = _partition(line["partition"]), int(line["start"])
            position, end_offset = None if start < 0 else Offset(start), self.bounds(partition).end_offset
            places.append(PartitionPosition(partition, position, end_offset, int(line["lag"])))
        return replace(found, places=sorted(places, key=lambda place: place.partition))

    def _status(self, group: str) -> str:
        return (self._group(group) / "status").read_text(encoding="utf-8")

    def _group(self, group: str) -> Path:
        for directory in (self._groups / group, self._queues / group):
            if "/" not in group and group not in {"", ".", ".."} and directory.is_dir():
                return directory
        raise UnknownGroupError(f"{group}: no such group; topicfs groups list shows all")

    def partitions(self, topic: str) -> Sequence[int]:
        directory = self._mountpoint / topic
        if "/" in topic or topic.startswith("@") or not directory.is_dir():
            raise UnknownTopicError(f"{topic}: no such topic")
        return numbers_of(directory)

    def bounds(self, partition: TopicPartition) -> PositionBounds:
        status = status_of(self._files(partition))
        return PositionBounds(
            Offset(int(status["log_start_offset"])), Offset(int(status["last_stable_offset"]))
        )

    def _files(self, partition: TopicPartition) -> Path:
        directory = self._mountpoint / partition.topic / str(partition.partition)
        if not directory.is_dir():
            raise UnknownTopicError(f"{partition}: no such partition")
        return directory

    def offset_at(self, partition: TopicPartition, timestamp: Timestamp) -> Offset | None:
        try:
            line = (self._files(partition) / f"@{timestamp}.json").read_bytes()
        except FileNotFoundError:
            return None
        return Offset(json.loads(line)["offset"])

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
        check_group_name(group)
        check_positions(group, {one: Position(offset) for one, offset in positions.items()})
        for partition in positions:
            if partition.partition not in self.partitions(partition.topic):
                raise UnknownTopicError(f"{partition}: no such partition")
        directory = self._groups / group
        if (self._queues / group).is_dir():
            raise StorageError(f"{group}: a queue can only be reset while no daemon owns the directory")
        if not directory.is_dir():
            with explained(self._mountpoint, f"@groups/{group}"):
                directory.mkdir()
        for partition, offset in positions.items():
            file = f"@groups/{group}/{partition.topic}/{partition.partition}/position"
            try:
                with explained(self._mountpoint, file):
                    (self._mountpoint / file).write_text(f"{offset}\n")
            except OSError as error:
                if error.errno == errno.EBUSY:
                    raise GroupNotEmptyError(
                        f"{group}: has members; positions can only be set after the members have left"
                    ) from None
                raise

    def delete_positions(self, group: str, partitions: Sequence[TopicPartition]) -> None:
        raise StorageError(
            f"{group}: single positions can only be deleted while no daemon owns the directory ({len(partitions)} requested)"
        )

    def delete(self, group: str) -> None:
        try:
            self._group(group).rmdir()
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise GroupNotEmptyError(f"{group}: has members") from None
            if error.errno == errno.ENOTEMPTY:
                raise StorageError(
                    f"{group}: has positions, and its mount {self._mountpoint} is without --allow-delete"
                ) from None
            raise
