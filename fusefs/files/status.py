"""`status` of a partition and of a topic, and `@status` of the daemon: lines of the form `name value`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from topicfs.coordination.engine import Engine
from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.files.replicas import replica_lines
from topicfs.fusefs.files.text_file import FreshTextFile, PartitionTextFile, TopicTextFile
from topicfs.fusefs.forms import VALUES
from topicfs.fusefs.groups.positions import known_sum, lags, spelled_lag
from topicfs.fusefs.nodes.nodes import nanoseconds
from topicfs.fusefs.times import spelled_time
from topicfs.storage.disk.names import CONSUMER_OFFSETS
from topicfs.storage.errors import GroupsUnsupportedError, StorageError
from topicfs.storage.messages import printable
from topicfs.storage.model import NO_TIMESTAMP, PartitionStatus, TopicPartition


class PartitionStatusFile(PartitionTextFile):
    """`status` of a partition."""

    __slots__ = ()

    def render(self) -> str:
        self._files.check_exists()
        status, remote = self._files.status(), self.context.engine.remote
        offsets, ratio = status.offsets, status.cleanable_ratio
        measured = None if remote else "yes" if self._files.views.whole(VALUES).measured else "no"
        on_disk = {"recovery_point": offsets.recovery_point, "unflushed_records": unflushed_records(status)}
        lines = {
            "state": status.state,
            "log_start_offset": offsets.log_start_offset,
            **({} if remote else on_disk),  # Brokers do not report it.
            "last_stable_offset": offsets.last_stable_offset,
            "high_watermark": offsets.high_watermark,
            "log_end_offset": offsets.log_end_offset,
            "leader_epoch": offsets.leader_epoch,
            **_known(segments=status.segments, log_bytes=status.log_bytes, index_bytes=status.index_bytes),
            "first_timestamp": spelled_time(status.first_timestamp),
            "last_timestamp": spelled_time(status.last_timestamp),
            **_known(
                first_dirty_offset=status.first_dirty_offset,
                cleanable_ratio=None if ratio is None else f"{ratio:.2f}",
                last_flush=None if remote else spelled_time(status.last_flush),
                measured=measured,
                directory=self._files.partition.directory,
                hidden=status.hidden,
                missing=status.missing,
            ),
        }
        partition = self._files.partition
        readers = lines_of_partition(self.context.engine, TopicPartition(partition.topic, partition.number))
        return _text(
            [*(f"{name} {value}" for name, value in lines.items()), *replica_lines(status), *readers]
        )


class TopicStatusFile(TopicTextFile):
    """`status` of a topic: totals over the partitions, then a line for each partition."""

    __slots__ = ()

    def mtime_ns(self) -> int:
        partitions = self._files.topic.partitions().values()
        newest = max(partition.newest_timestamp for partition in partitions)
        shown = self.context.started if newest == NO_TIMESTAMP else newest
        return nanoseconds(shown)

    def listed_mtime_ns(self) -> int:
        """The time of the mount: a listing must not open every partition to find the newest record."""
        return nanoseconds(self.context.started)

    def render(self) -> str:
        self._files.check_exists()
        topic = self._files.topic
        leave_event_loop()
        statuses = {number: partition.status() for number, partition in topic.partitions().items()}
        all_of = list(statuses.values())
        first = [status.first_timestamp for status in all_of]
        lines = {
            "topic_id": topic.topic_id,
            "partitions": len(all_of),
            "offline_partitions": sum(status.offline is not None for status in all_of),
            **_known(
                segments=known_sum(status.segments for status in all_of),
                log_bytes=known_sum(status.log_bytes for status in all_of),
                index_bytes=known_sum(status.index_bytes for status in all_of),
                unflushed_records=None
                if self.context.engine.remote
                else sum(unflushed_records(status) for status in all_of),
            ),
            "first_timestamp": spelled_time(min((one for one in first if one >= 0), default=NO_TIMESTAMP)),
            "last_timestamp": spelled_time(
                max((status.last_timestamp for status in all_of), default=NO_TIMESTAMP)
            ),
        }
        rows = [
            f"partition {number} log_start_offset {status.offsets.log_start_offset} "
            f"high_watermark {status.offsets.high_watermark} state {printable(status.state)}\n"
            for number, status in statuses.items()
        ]
        readers = (f"{line}\n" for line in lines_of_topic(self.context.engine, topic.name))
        return "".join([*(f"{name} {value}\n" for name, value in lines.items()), *rows, *readers])


def unflushed_records(status: PartitionStatus) -> int:
    """Return the number of records that may not be on disk yet."""
    return max(status.offsets.log_end_offset - status.offsets.recovery_point, 0)


def _known(**values: object) -> dict[str, object]:
    """Return the lines whose values the engine knows; an engine without segments or a directory leaves some out."""
    return {name: value for name, value in values.items() if value is not None}


class DaemonStatusFile(FreshTextFile):
    """`@status`: the daemon's state, and the errors of recent operations."""

    __slots__ = ()

    def mtime_ns(self) -> int:
        """The time of the newest error. Counters such as the uptime do not change this time."""
        return nanoseconds(self.context.reports.newest or self.context.started)

    def render(self) -> str:
        return _text([*self.context.status_lines(), *self.context.reports.lines()])


def _text(lines: Iterable[str]) -> str:
    """Return the lines as a file; unprintable characters are escaped."""
    return "\n".join([*map(printable, lines), ""])


def engine_lines(engine: Engine) -> list[str]:
    """Return the lines about an engine: its data directories and their options, its topics, and its groups."""
    mode = "foreign" if engine.foreign else "read-only" if engine.read_only else "read-write"
    topics, groups = engine.topics().values(), engine.groups.summary()
    return [
        *(
            f"directory {one.path}{'' if one.offline is None else f' {one.state}'}"
            for one in engine.directories()
        ),
        f"mode {mode}",
        f"topics {len(topics)}",
        f"partitions {sum(len(topic.partitions()) for topic in topics)}",
        *(f"groups {groups.groups} members {groups.members}" for _ in [0] if groups),
        *(f"groups of {reason}" for reason in (groups.failed if groups else ())),
        *(f"scrub {line}" for line in [engine.scrub] if line),
    ]


def lines_of_topic(engine: Engine, topic: str) -> list[str]:
    """Return a line for each group and queue, with its total lag in the topic."""

    def groups() -> Iterator[str]:
        for group, positions in engine.groups.positions_in(topic).items():
            yield f"group {group} lag {spelled_lag(known_sum(lags(engine, positions).values()))}"

    def queues() -> Iterator[str]:
        for name, queue in engine.share_groups.groups().items():
            if topic in queue.topics():
                yield f"queue {name} lag {sum(one.lag for one in queue.positions(topic))}"

    return _lines(engine, groups=groups, queues=queues)


def lines_of_partition(engine: Engine, place: TopicPartition) -> list[str]:
    """Return a line for each group and queue, with its position in the partition."""

    def groups() -> Iterator[str]:
        for group, positions in engine.groups.positions_in(place.topic).items():
            own = {one: position for one, position in positions.items() if one == place}
            for lag in lags(engine, own).values():
                yield f"group {group} position {own[place].offset} lag {spelled_lag(lag)}"

    def queues() -> Iterator[str]:
        for name, queue in engine.share_groups.groups().items():
            if place.topic in queue.topics():
                for one in queue.positions(place.topic):
                    if one.partition == place:
                        yield f"queue {name} start {one.start_offset} lag {one.lag}"

    return _lines(engine, groups=groups, queues=queues)


def _lines(engine: Engine, **kinds: Callable[[], Iterator[str]]) -> list[str]:
    """Return the lines of each kind; for a kind that cannot be queried, one line with the reason."""
    if not engine.remote:
        if CONSUMER_OFFSETS not in engine.topics():
            return []
        leave_event_loop()
    found: list[str] = []
    for kind, lines in kinds.items():
        try:
            found += map(printable, list(lines()))
        except GroupsUnsupportedError:
            continue
        except StorageError as error:
            found.append(printable(f"{kind} unknown: {error}"))
    return found
