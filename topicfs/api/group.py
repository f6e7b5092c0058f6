"""A group of readers, and a member of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from operator import index
from typing import TYPE_CHECKING, Self

from topicfs.api.bounds import level_of
from topicfs.api.feeds import PATTERN_SIGNS, EngineFeed, Feed, Given, MountFeed
from topicfs.api.files import READ_ONLY, FileTopics
from topicfs.api.partition import READ_COMMITTED
from topicfs.api.records import Record
from topicfs.coordination.engine import Engine
from topicfs.storage.errors import GroupsUnsupportedError, ReadOnlyError, UnknownTopicError
from topicfs.storage.messages import which_topic
from topicfs.storage.model import Isolation, Offset, TopicPartition

if TYPE_CHECKING:
    from topicfs.groups.view import GroupsPlace


class Group:
    """A group of readers: it has one position in each partition, kept as Kafka keeps it."""

    def __init__(
        self,
        name: str,
        engine: Engine | FileTopics,
        opened: Callable[[], AbstractContextManager[GroupsPlace]],
    ) -> None:
        """Name a group of the engine; `opened` returns the place of its positions."""
        self.name = name
        self._engine = engine
        self._opened = opened

    def __repr__(self) -> str:
        return f"<Group {self.name}>"

    def join(self, *topics: str, isolation: str = READ_COMMITTED, timeout: float | None = None) -> Member:
        """Become a member that reads these topics, or all that a pattern such as `order*` names; a thread is started.

        The partitions are divided among all members, also those of other programs. Without a position a member begins by the
        group's `auto.offset.reset`. The iteration ends if no record comes for `timeout` seconds. Raises GroupError,
        ReadOnlyError, OSError.
        """
        if not topics:
            raise ValueError(f"{self.name}: name the topics to read")
        if not all(isinstance(topic, str) for topic in topics):
            raise TypeError(f"{self.name}: each topic is one argument, as in join('orders', 'clicks')")
        level, engine = level_of(isolation), self._engine
        present = topics if engine.remote else engine.topics()  # Only a directory knows all its topics.
        for name in topics:
            if PATTERN_SIGNS.isdisjoint(name) and name not in present:
                raise UnknownTopicError(f"{UnknownTopicError.of(name)}{which_topic(name, present)}")
        if not isinstance(engine, FileTopics):
            return Member(self, EngineFeed(engine, self.name, topics, level), timeout)
        if engine.mountpoint is None:
            raise ReadOnlyError(f"{self.name}: a group stores positions, and {READ_ONLY}")
        if level is not Isolation.READ_COMMITTED:
            raise GroupsUnsupportedError(
                f"{self.name}: through a mount its own isolation holds: topicfs mount --isolation"
            )
        return Member(self, MountFeed(engine.mountpoint, self.name, topics), timeout)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record of each partition in which the group has a position (UnknownGroupError)."""
        with self._opened() as place:
            return {**place.describe(self.name).positions}

    def set_positions(self, positions: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]) -> None:
        """Set positions of a group that has no members; it is made if there is none (GroupNotEmptyError)."""
        try:
            wanted = {
                TopicPartition(topic, index(number)): Offset(index(offset))
                for (topic, number), offset in positions.items()
            }
        except (TypeError, ValueError):
            raise TypeError(f"{positions!r}: write positions as {{('orders', 0): 42}}") from None
        with self._opened() as place:
            place.set_positions(self.name, wanted)

    def delete(self) -> None:
        """Delete the group with its positions (UnknownGroupError, GroupNotEmptyError)."""
        with self._opened() as place:
            place.delete(self.name)


class Member:
    """A member of a group. One caller at a time."""

    def __init__(self, group: Group, feed: Feed, timeout: float | None) -> None:
        self._group = group
        """Held because it keeps the topics open."""
        self._feed = feed
        self._timeout = timeout
        self._done: dict[TopicPartition, Given] = {}
        """What the caller was given last, by partition."""

    def __repr__(self) -> str:
        return f"<Member of {self._group.name}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record]:
        """Yield records as they come; partitions that others are to get are given back between two of them."""
        while (given := self._feed.take(self._timeout)) is not None:
            for record in given.records:
                self._done[given.partition] = given._replace(next_offset=record.offset + 1)
                yield record
            self._done[given.partition] = given

    def poll(self, timeout: float | None = None) -> list[Record]:
        """Return the records that come next, some of one partition; none if none comes for `timeout` seconds."""
        given: Given | None = self._feed.take(timeout)
        if given is None:
            return []
        self._done[given.partition] = given
        return list(given.records)

    def commit(self) -> None:
        """Commit the position behind every record that this member was given so far; it is in the log when this returns.

        Partitions that went to others meanwhile are left out: their new readers get what was not committed again.
        """
        self._feed.commit(self._done)
        self._done.clear()

    def close(self) -> None:
        """Leave the group. What was not committed is given to other members, or to the next one."""
        self._feed.close()
