"""The lines of `status` about who reads a topic, or a partition of it: groups and queues, and how far each is behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.groups.positions import lags, spelled_lag, total_lag
from topicfs.storage.disk.names import CONSUMER_OFFSETS
from topicfs.storage.errors import GroupsUnsupportedError, StorageError
from topicfs.storage.messages import printable
from topicfs.storage.model import TopicPartition

if TYPE_CHECKING:
    from topicfs.coordination.engine import Engine


def lines_of_topic(engine: Engine, topic: str) -> list[str]:
    """Return a line for each group and each queue, with its lag in all partitions."""

    def groups() -> Iterator[str]:
        for group, positions in engine.groups.positions_in(topic).items():
            yield f"group {group} lag {spelled_lag(total_lag(lags(engine, positions).values()))}"

    def queues() -> Iterator[str]:
        for name, queue in engine.share_groups.groups().items():
            if topic in queue.topics():
                yield f"queue {name} lag {sum(one.lag for one in queue.positions(topic))}"

    return _lines(engine, groups=groups, queues=queues)


def lines_of_partition(engine: Engine, place: TopicPartition) -> list[str]:
    """Return a line for each group and each queue, with where it stands in the partition."""

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
    """Return the lines of each kind; where it cannot be asked for, the reason, for the rest is known all the same."""
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
