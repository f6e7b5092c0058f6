"""The small files of a group: its `config` and `status`, and a partition's `position` and `lag`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topicfs.coordination.engine import Engine
from topicfs.coordination.membership import CommittedPosition, MemberDescription, Position
from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.appending.targets import CommandTarget, LineTarget
from topicfs.fusefs.files.config import ConfigTarget, config_line
from topicfs.fusefs.files.group_log import check_group_exists
from topicfs.fusefs.files.text_file import TextFile, same_topic
from topicfs.fusefs.groups.positions import (
    check_position,
    find_position,
    lag_of,
    lags,
    spelled_lag,
    total_lag,
)
from topicfs.fusefs.nodes.context import MountContext
from topicfs.fusefs.nodes.nodes import Directory
from topicfs.fusefs.reports import Reports
from topicfs.fusefs.times import spelled_time
from topicfs.storage.config.listing import ConfigSource, ShownSetting
from topicfs.storage.engine import Partition
from topicfs.storage.messages import printable
from topicfs.storage.model import Isolation, TopicPartition

LINE_BYTES = 256


class GroupFile(TextFile):
    """A text about one group."""

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
        return ConfigTarget(self.path, self.alter)


class GroupStatusFile(GroupFile):
    """`status`: where a group stands, who its members are, and how far it is in each partition."""

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
            "lag": spelled_lag(total_lag(behind.values())),
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


class PositionTarget(CommandTarget):
    """The target of a written position."""

    max_record_bytes = LINE_BYTES

    def __init__(
        self,
        name: str,
        engine: Engine,
        group: str,
        partition: TopicPartition,
        *,
        isolation: Isolation,
        reports: Reports,
    ) -> None:
        self.name = name
        self._engine = engine
        self._group = group
        self._partition = partition
        self._isolation = isolation
        self._reports = reports
        self._check_same = same_topic(engine, partition.topic)

    def check(self, lines: bytes) -> None:
        check_position(_last_line(lines))

    def append(self, lines: bytes, *, durable: bool = False) -> None:
        """Set the position (blocking), as a reset of Kafka's tool does: not beyond the log's ends, which is reported."""
        del durable
        text, groups = _last_line(lines), self._engine.groups
        self._check_same()
        check_group_exists(self._engine, self._group)
        partition = self._engine.partition(*self._partition)
        present = groups.positions(self._group).committed.get(self._partition)
        offset = find_position(text, partition, present, self._isolation)
        if text.isdecimal() and int(text) != offset:
            self._reports.warning(self.name, f"{text} lies outside of the log: the position is {offset}")
        groups.set_positions(self._group, {self._partition: Position(offset)})


def _last_line(lines: bytes) -> str:
    return lines.decode("utf-8", "replace").split("\n")[-2].strip()


class _PartitionFile(GroupFile):
    """A text about a group's place in a partition."""

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
        context: MountContext = self.context
        return PositionTarget(
            self.path,
            context.engine,
            self._group,
            self._partition,
            isolation=context.settings.isolation,
            reports=context.reports,
        )


class LagFile(_PartitionFile):
    """`lag`: the number of offsets from the position, or from the log's start, to the last stable offset."""

    __slots__ = ()

    def render(self) -> str:
        return f"{spelled_lag(lag_of(*self._found()))}\n"
