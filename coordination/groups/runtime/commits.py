"""A member's commits that wait to be written, and the exceptions for Kafka's error codes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import NamedTuple

from topicfs.coordination.groups.offsets import StoredOffset
from topicfs.coordination.groups.requests import Code
from topicfs.coordination.membership import CommittedPosition, Position
from topicfs.storage import errors
from topicfs.storage.model import Offset, Timestamp, TopicPartition


class Commit(NamedTuple):
    """One call of `coordination.membership.Membership.commit`."""

    positions: Mapping[TopicPartition, Position]
    future: Future[None]

    def fail(self, error: BaseException) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def answer(self, failures: Mapping[TopicPartition, Exception]) -> None:
        """Complete the call's future. The future fails if one of the call's partitions is in `failures`."""
        error = next((failures[one] for one in self.positions if one in failures), None)
        if error is not None:
            self.fail(error)
        elif self.future.set_running_or_notify_cancel():
            self.future.set_result(None)


class Commits:
    """The waiting commit calls of one member. Safe from any thread."""

    def __init__(self) -> None:
        self._calls: list[Commit] = []
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        with self._lock:
            return bool(self._calls)

    def add(self, call: Commit) -> bool:
        """Add a call. Return whether it is the only waiting call."""
        with self._lock:
            self._calls.append(call)
            return len(self._calls) == 1

    def take(
        self, is_held: Callable[[TopicPartition, Position], bool], group: str
    ) -> tuple[list[Commit], dict[TopicPartition, Position]]:
        """Take all waiting calls, and the last position that they commit in each partition.

        A call fails if the member does not hold all partitions of the call.
        """
        with self._lock:
            calls, self._calls = self._calls, []
        good: list[Commit] = []
        positions: dict[TopicPartition, Position] = {}
        for call in calls:
            other = next((one for one, at in call.positions.items() if not is_held(one, at)), None)
            if other is None:
                good.append(call)
                positions.update(call.positions)
            else:
                call.fail(errors.NotAssignedError(f"{group}: {other} is not assigned to this member"))
        return good, positions

    def put_back(self, calls: list[Commit]) -> None:
        """Put calls back, before the calls that arrived meanwhile."""
        with self._lock:
            self._calls = [*calls, *self._calls]

    def fail(self, error: Exception) -> None:
        with self._lock:
            calls, self._calls = self._calls, []
        for call in calls:
            call.fail(error)


def shown_position(stored: StoredOffset) -> CommittedPosition:
    """Return a stored position in the form that callers see."""
    position = stored.position
    return CommittedPosition(
        Offset(position.offset),
        position.leader_epoch,
        position.metadata,
        Timestamp(position.commit_timestamp),
    )


def error_of(code: Code, group: str, cause: Exception | None, offered: Collection[str] = ()) -> Exception:
    """Return the exception for an error code of Kafka; `cause` is the error of the last failed append.

    `offered` are the assignors that all members of the group offer.
    """
    if code is Code.GROUP_MAX_SIZE_REACHED:
        return errors.GroupFullError(f"{group}: the group has as many members as group.max.size allows")
    if code is Code.INCONSISTENT_GROUP_PROTOCOL:
        usable = sorted({"range", "roundrobin", "sticky", "cooperative-sticky"}.intersection(offered))
        remedy = f"echo assignor={usable[0]} >> @groups/{group}/config" if usable else ""
        common = f", which offer {', '.join(usable)}; end the members, then: {remedy}" if usable else ""
        return errors.IncompatibleMemberError(
            f"{group}: this member has no assignor in common with the other members{common}"
        )
    if code in (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.FENCED_INSTANCE_ID):
        return errors.NotAssignedError(f"{group}: no longer a member")
    written = (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, Code.UNKNOWN_SERVER_ERROR)
    if code in written and cause is not None:
        return cause
    return errors.GroupError(f"{group}: {code.name}")


def position_error(code: Code, group: str, partition: TopicPartition) -> errors.StorageError:
    """Return the exception for a position that was not committed."""
    if code is Code.UNKNOWN_TOPIC_OR_PARTITION:
        return errors.UnknownTopicError(f"{partition}: no such partition")
    if code is Code.OFFSET_METADATA_TOO_LARGE:
        return errors.InvalidPositionError(
            f"{group}: the metadata of {partition} is longer than offset.metadata.max.bytes"
        )
    return errors.GroupError(f"{group}: {partition}: {code.name}")
