"""The state that the mount keeps of one partition for as long as it exists: views, news, what the kernel remembers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.appending.targets import Encoder, LineTarget, PartitionTarget
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.following.wakeups import Wakeups
from topicfs.fusefs.forms import Form
from topicfs.fusefs.nodes.context import MountContext
from topicfs.fusefs.nodes.nodes import nanoseconds
from topicfs.fusefs.views.view import PartitionViews
from topicfs.storage.engine import Partition
from topicfs.storage.model import NO_TIMESTAMP, Offset, PartitionStatus

Target = TypeVar("Target", bound=LineTarget)

FEW_SEGMENTS = 32
"""Number of segments up to which the event loop's thread itself may ask the disk."""


class TopicState(ABC, Generic[Target]):
    """The state behind files of a topic, or of a partition of it."""

    def __init__(self, context: MountContext, topic: str, *, internal: bool) -> None:
        self.context = context
        self.internal = internal
        """The topic is one of Kafka's own."""
        self.deleted = False
        self.shown_inos: dict[str, int] = {}
        """The one number that stat shows of a file without an end, through all its generations."""
        self._topic = topic
        self._targets: dict[str, Target] = {}

    def check_exists(self) -> None:
        """Raise FileError (ESTALE) once the topic is deleted, for files that are open."""
        if self.deleted:
            raise FileError(Refusal.GONE, f"{self._topic} was deleted")

    def check_writable(self) -> None:
        """Raise FileError if nobody may write."""
        self.check_exists()
        if self.context.engine.read_only:
            raise FileError(Refusal.READ_ONLY)
        if self.internal:
            reason = f"{self._topic} is one of Kafka's own topics"
            raise FileError(Refusal.NOT_PERMITTED, reason, reported=True)

    def target(self, form: Form) -> Target:
        target = self._targets.get(form.suffix)
        if target is None:
            written = self.context.decoding.writing(form, self._topic)
            encoder = Encoder(written, self.context.clock, self.context.reports)
            target = self._targets[form.suffix] = self._make_target(f"log{form.suffix}", encoder)
        return target

    @abstractmethod
    def _make_target(self, name: str, encoder: Encoder) -> Target:
        """Make the target of lines that are written to a file."""


class PartitionFiles(TopicState[PartitionTarget]):
    """The state behind the files of a partition. It outlives their nodes, which the kernel may forget at any time."""

    def __init__(self, context: MountContext, partition: Partition, *, internal: bool) -> None:
        super().__init__(context, partition.topic, internal=internal)
        self.partition = partition
        self.path = f"{partition.topic}/{partition.number}"
        self.views = PartitionViews(
            partition, store=context.view_store(partition), isolation=context.settings.isolation
        )
        self.news = Wakeups(context.waiting.waker)
        self.directory_id: int | None = None
        """The node of the partition's directory, as long as the kernel may know it."""
        self._front = self._front_now()
        self._cached: set[int] = set()
        self._newest_ns: int | None = None
        self._segments_seen = 0
        """Number of segments in the last status; 0 where that is not known."""
        self.news.listen(self._changed)
        self._cancel = partition.listen(self.news.signal)

    def visible_end(self) -> Offset:
        return self.partition.visible_end(self.context.settings.isolation)

    def is_empty(self) -> bool:
        """Return whether no offset is visible; where one is, it may still be that of no record."""
        return self.partition.log_start_offset >= self.visible_end()

    def status(self) -> PartitionStatus:
        """The partition's status. The disk is asked for each segment, so that it is a thread's work unless they were few."""
        if not 0 < self._segments_seen <= FEW_SEGMENTS:
            leave_event_loop()
        status = self.partition.status()
        self._segments_seen = status.segments or 0
        return status

    def _make_target(self, name: str, encoder: Encoder) -> PartitionTarget:
        return PartitionTarget(f"{self.path}/{name}", self.partition, encoder)

    def mtime_ns(self) -> int:
        """The time of the newest record: the same after a remount as before, so that rsync copies nothing twice."""
        if self._newest_ns is None:
            newest = self.partition.newest_timestamp
            shown = self.context.started if newest == NO_TIMESTAMP else newest
            self._newest_ns = nanoseconds(shown)
        return self._newest_ns

    def note_attributes_cached(self, node_id: int) -> None:
        """The kernel was told attributes that the next news make wrong."""
        self._cached.add(node_id)

    def attributes_forgotten(self, node_id: int) -> None:
        """The kernel forgets them by itself, as it does those of a node with its answer to a write.

        A word from us would also make it ask for the mode at the next open: one request more for each `echo >>`.
        """
        self._cached.discard(node_id)

    def _changed(self) -> None:
        self._newest_ns = None
        if self._cached:
            forget = self.context.kernel.forget_attributes
            for node_id in self._cached:
                forget(node_id)
            self._cached.clear()
        front = self._front_now()
        if front != self._front:
            self._front = front
            self._forget_views()

    def _front_now(self) -> tuple[Offset, int]:
        """Log start and number of rewrites: one of them changes when positions in the partition's views mean other bytes."""
        return self.partition.log_start_offset, self.partition.rewrites

    def _forget_views(self) -> None:
        """Records were removed: the names of views without an end mean new nodes, whose positions count afresh."""
        if self.directory_id is not None:
            for name in self.shown_inos:
                self.context.kernel.forget_name(self.directory_id, name)

    def delete(self) -> None:
        """The partition is gone: open files end."""
        self.deleted = True
        self._cancel()
        self.news.signal()
