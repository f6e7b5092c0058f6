"""Members of an engine's groups. Like the readers of a mount, they give up a partition as soon as the group asks."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from tests.doubles.waiting import wait_until
from topicfs.coordination.engine import Engine
from topicfs.coordination.membership import MemberPartitions, Membership, Position, Subscription
from topicfs.storage.model import TopicPartition


class Reader:
    """A group member; with `gives_up` False it never gives up a partition, like a reader that hangs."""

    def __init__(
        self,
        engine: Engine,
        group: str,
        *topics: str,
        patterns: Iterable[str] = (),
        name: str = "reader",
        gives_up: bool = True,
    ) -> None:
        self.gives_up = gives_up
        self.seen: list[MemberPartitions] = []
        self._joined = threading.Event()
        self.member: Membership = engine.groups.join(
            group,
            Subscription(topics=frozenset(topics), patterns=frozenset(patterns)),
            client_id=name,
            reader=f"{name} (1)",
            listener=self._changed,
        )
        self._joined.set()

    def _changed(self) -> None:
        self._joined.wait()
        held = self.member.held()
        self.seen.append(held)
        if self.gives_up and held.wanted_back:
            self.member.give_up(held.wanted_back)

    @property
    def held(self) -> MemberPartitions:
        return self.member.held()

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that the member may read now."""
        return sorted(self.held.partitions - self.held.wanted_back)

    def commit(self, partition: TopicPartition, offset: int, metadata: str = "") -> None:
        """Commit an offset, and wait until the commit is in the log."""
        self.member.commit({partition: Position(offset, metadata)}).result(30)

    def error(self) -> Exception | None:
        """Wait until the member has lost its membership; return the error."""
        wait_until(lambda: self.held.lost, "the reader gets the error")
        return self.held.lost

    def leave(self) -> None:
        self.member.leave().result(30)


def positions(engine: Engine, group: str = "g") -> dict[TopicPartition, int]:
    """Return the committed offset of each partition in a group."""
    return {place: one.offset for place, one in engine.groups.positions(group).committed.items()}


def wait_until_shared(readers: Iterable[Reader], partitions: Iterable[TopicPartition]) -> None:
    """Wait until `readers` share all `partitions` evenly in one generation, and no partition has to be given up."""
    wanted, all_ = sorted(partitions), list(readers)

    def shared() -> bool:
        helds = [one.held for one in all_]
        sizes = [len(held.partitions) for held in helds]
        return (
            not any(held.wanted_back for held in helds)
            and wanted == sorted(one for held in helds for one in held.partitions)
            and max(sizes) - min(sizes) <= 1
            and len({held.generation for held in helds}) == 1
        )

    wait_until(shared, f"{len(all_)} readers share {len(wanted)} partitions")
