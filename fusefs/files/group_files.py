"""The small files of a group: its `config` and `status`, and a partition's `position` and `lag`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from topicfs.coordination.membership import CommittedPosition, MemberDescription, Position
from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.appending.targets import CommandTarget, LineTarget, last_line
from topicfs.fusefs.files.config import config_line, config_target
from topicfs.fusefs.files.group_log import check_group_exists
from topicfs.fusefs.files.text_file import TextFile, same_topic
from topicfs.fusefs.groups.positions import (
    check_position,
    find_position,
    known_sum,
    lag_of,
    lags,
    spelled_lag,
)
from topicfs.fusefs.nodes.nodes import Directory
from topicfs.fusefs.times import spelled_time
from topicfs.storage.config.listing import ConfigSource, ShownSetting
from topicfs.storage.engine import Partition
from topicfs.storage.messages import printable
from topicfs.storage.model import TopicPartition


class GroupFile(TextFile):
    """A text file about one group."""

    __slots__ = ("_group",)

    def __init__(self, parent: Directory, name: str, group: str) -> None:
        super().__init__(parent, name)
        self._group = group


class GroupConfigFile(GroupFile):
    """`config`: a group's settings."""

    __slots__ = ()

    def settings(self) -> Sequence[ShownSetting]:
        return self.context.engine.groups.settings(self._group)

    def alter(self, changes: Mapping[str, str | None]) -> None:
        self.context.engine.groups.alter_config(self._group, changes)

    def render(self) -> str:
        settings = self.settings()
        given = [config_line(one.name, one.value) for one in settings if one.source is ConfigSource.GROUP]
        others = [one for one in settings if one.source is not ConfigSource.GROUP]
        return "".join([*given, *(f"# {config_line(one.name, one.value)}" for one in others)])

    def target(self) -> LineTarget | None:
        return config_target(self.path, self.alter)


class GroupStatusFile(GroupFile):
    """`status`: a group's state, the group's members, and the group's position in each partition."""

    __slots__ = ()

    def render(self) -> str:
        leave_event_loop()
        engine = self.context.engine
        group = engine.groups.describe(self._group)
        positions = engine.groups.positions(self._group)
        behind = lags(engine, positions.committed, group.members)
        lines = {
            "state": group.state.value,
            "generation": group.generation if group.generation >= 0 else "-",
            "assignor": group.assignor or "-",
            "coordinator": group.coordinator,
            "members": len(group.members),
            "lag": spelled_lag(known_sum(behind.values())),
        }
        rows = [
            *(f"{name} {value}" for name, value in lines.items()),
            *(f"member {_described(member)}" for member in group.members),
            *(f"partition {one} {_placed(positions.committed.get(one), lag)}" for one, lag in behind.items()),
        ]
        return "".join(f"{printable(row)}\n" for row in rows)


def _placed(position: CommittedPosition | None, lag: int | None) -> str:
    if position is None:
        return f"position - lag {spelled_lag(lag)}"
    by = f" by {position.metadata}" if position.metadata else ""
    return f"position {position.offset} lag {spelled_lag(lag)} committed {spelled_time(position.committed_at)}{by}"


def _described(member: MemberDescription) -> str:
    reader = member.reader or f"{member.client_id} {member.host}"
    topics = ",".join(member.topics) or "-"
    partitions = ",".join(map(str, member.partitions)) or "-"
    return f"{member.member_id} reader {reader} topics {topics} partitions {partitions}"


class _PartitionFile(GroupFile):
    """A text file about a group's position in a partition."""

    __slots__ = ("_partition",)

    def __init__(self, parent: Directory, name: str, group: str, partition: TopicPartition) -> None:
        super().__init__(parent, name, group)
        self._partition = partition

    def _found(self) -> tuple[Partition, CommittedPosition | None]:
        engine = self.context.engine
        positions = engine.groups.positions(self._group)
        return engine.partition(*self._partition), positions.committed.get(self._partition)


class PositionFile(_PartitionFile):
    """`position`: the offset of the next record to read; `-` before the first commit."""

    __slots__ = ()

    def render(self) -> str:
        _, position = self._found()
        return "-\n" if position is None else f"{position.offset}\n"

    def target(self) -> LineTarget | None:
        act = partial(self._set, same_topic(self.context.engine, self._partition.topic))
        return CommandTarget(self.path, lambda lines: check_position(last_line(lines)), act)

    def _set(self, check_same: Callable[[], None], lines: bytes) -> None:
        """Set the position (blocking), clamped to the log as Kafka's reset tool does; clamping is reported."""
        text, engine = last_line(lines), self.context.engine
        check_same()
        check_group_exists(engine, self._group)
        offset = find_position(text, *self._found(), self.context.settings.isolation)
        if text.isdecimal() and int(text) != offset:
            self.context.reports.warning(
                self.path, f"{text} is outside the log: the position is now {offset}"
            )
        engine.groups.set_positions(self._group, {self._partition: Position(offset)})


class LagFile(_PartitionFile):
    """`lag`: the number of offsets from the position, or from the log's start, to the last stable offset."""

    __slots__ = ()

    def render(self) -> str:
        return f"{spelled_lag(lag_of(*self._found()))}\n"
