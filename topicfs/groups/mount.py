"""The groups of a daemon's engine, through the files of its mount."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fusefs.groups.positions import read_lag
from storage.errors import GroupNotEmptyError, StorageError, UnknownGroupError, UnknownTopicError
from storage.model import Offset, Timestamp, TopicPartition
from topicfs.groups.view import GroupSummary, GroupView, MemberView, PlaceView, PositionBounds

_MEMBER = re.compile(
    r"member (?P<id>\S+) reader (?P<reader>.*) topics (?P<topics>\S+) partitions (?P<partitions>\S+)"
)
_PLACE = re.compile(
    r"partition (?P<partition>\S+) position (?P<position>\d+|-) lag (?P<lag>-?\d+|-)(?: committed (?:-|\S+ \S+|\S+))?(?: by (?P<by>.*))?"
)


def _list(text: str) -> list[str]:
    return [] if text == "-" else text.split(",")


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def parse_status(name: str, text: str) -> GroupView:
    """Read the `status` of a group."""
    values: dict[str, str] = {}
    members: list[MemberView] = []
    places: list[PlaceView] = []
    for line in text.splitlines():
        member, place = _MEMBER.fullmatch(line), _PLACE.fullmatch(line)
        if member is not None:
            partitions = tuple(map(_partition, _list(member["partitions"])))
            members.append(
                MemberView(member["id"], member["reader"], tuple(_list(member["topics"])), partitions)
            )
        elif place is not None:
            position = None if place["position"] == "-" else Offset(int(place["position"]))
            lag = read_lag(place["lag"])
            end_offset = Offset((position or 0) + (lag or 0))
            places.append(
                PlaceView(_partition(place["partition"]), position, end_offset, lag, place["by"] or "")
            )
        else:
            word, _, value = line.partition(" ")
            values[word] = value
    return GroupView(
        name=name,
        state=values["state"],
        generation=-1 if values["generation"] == "-" else int(values["generation"]),
        assignor="" if values["assignor"] == "-" else values["assignor"],
        coordinator=values["coordinator"],
        members=members,
        places=places,
    )


class MountGroups:
    """See `GroupsPlace`."""

    def __init__(self, mountpoint: Path) -> None:
        self._mountpoint = mountpoint
        self._groups = mountpoint / "@groups"

    def listed(self) -> Sequence[GroupSummary]:
        names = sorted(os.listdir(self._groups))  # noqa: PTH208 - names alone
        return [GroupSummary(name, self.describe(name).state) for name in names]

    def describe(self, group: str) -> GroupView:
        directory = self._group(group)
        found = parse_status(group, (directory / "status").read_text(encoding="utf-8"))
        return replace(
            found,
            places=[
                place
                if place.position is not None
                else replace(place, end_offset=self.bounds(place.partition).end_offset)
                for place in found.places
            ],
        )

    def _group(self, group: str) -> Path:
        directory = self._groups / group
        if "/" in group or not directory.is_dir():
            raise UnknownGroupError(f"{group}: no such group")
        return directory

    def partitions(self, topic: str) -> Sequence[int]:
        directory = self._mountpoint / topic
        if "/" in topic or topic.startswith("@") or not directory.is_dir():
            raise UnknownTopicError(f"{topic}: no such topic")
        return sorted(int(name) for name in os.listdir(directory) if name.isdecimal())  # noqa: PTH208

    def bounds(self, partition: TopicPartition) -> PositionBounds:
        status = dict(
            line.split(" ", 1) for line in (self._files(partition) / "status").read_text().splitlines()
        )
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
            return Offset(int(os.getxattr(self._files(partition) / f"@{timestamp}", "user.kafka.offset")))
        except FileNotFoundError:
            return None

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
        directory = self._groups / group
        if not directory.is_dir():
            directory.mkdir()
        for partition, offset in positions.items():
            file = directory / partition.topic / str(partition.partition) / "position"
            try:
                file.write_text(f"{offset}\n")
            except OSError as error:
                if error.errno == errno.EBUSY:
                    raise GroupNotEmptyError(
                        f"{group}: has members; its positions are theirs until they have gone"
                    ) from None
                raise

    def delete_positions(self, group: str, partitions: Sequence[TopicPartition]) -> None:
        raise StorageError(
            f"{group}: single positions are deleted while no daemon owns the directory ({len(partitions)} asked for)"
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
