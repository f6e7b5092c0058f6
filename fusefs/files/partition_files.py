"""The mount's state of one partition: its views, its change listeners, and which attributes the kernel caches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.following.wakeups import Wakeups
from topicfs.fusefs.forms import Form
from topicfs.fusefs.nodes.context import MountContext
from topicfs.fusefs.nodes.nodes import nanoseconds
from topicfs.fusefs.views.view import PartitionViews
from topicfs.storage.engine import Partition
from topicfs.storage.model import NO_TIMESTAMP, Offset, PartitionStatus

if TYPE_CHECKING:
    from topicfs.fusefs.appending.targets import Encoder, LineTarget, PartitionTarget

Target = TypeVar("Target", bound="LineTarget")

FEW_SEGMENTS = 32
"""If there are at most this many segments, the event loop's thread reads the status from the disk."""


class TopicState(ABC, Generic[Target]):
    """The state that the files of a topic or of a partition share."""

    def __init__(self, context: MountContext, topic: str, *, internal: bool) -> None:
        self.context = context
        self.internal = internal
        """True for one of Kafka's own topics."""
        self.deleted = False
        self.shown_inos: dict[str, int] = {}
        """The inode number that stat shows for each open-ended file, the same for all its successive nodes."""
        self._topic = topic
        self._targets: dict[str, Target] = {}

    def check_exists(self) -> None:
        """Raise FileError (ESTALE) if the topic was deleted."""
        if self.deleted:
            raise FileError(Refusal.GONE, f"{self._topic} was deleted")

    def check_writable(self) -> None:
        """Raise FileError if writing is not allowed."""
        self.check_exists()
        if self.context.engine.read_only:
            raise FileError(Refusal.READ_ONLY)
        if self.internal:
            reason = f"{self._topic} is one of Kafka's own topics"
            raise FileError(Refusal.NOT_PERMITTED, reason, reported=True)

    def target(self, form: Form) -> Target:
        target = self._targets.get(form.suffix)
        if target is None:
            from topicfs.fusefs.appending.targets import Encoder

            parser = self.context.decoding.parser(form.suffix, self._topic)
            encoder = Encoder(parser, self.context.clock, self.context.reports)
            target = self._targets[form.suffix] = self._make_target(f"log{form.suffix}", encoder)
        return target

    @abstractmethod
    def _make_target(self, name: str, encoder: Encoder) -> Target:
        """Return the target for lines written to the file `name`."""


class PartitionFiles(TopicState["PartitionTarget"]):
    """The state behind the files of a partition. This state stays when the kernel forgets the nodes of the files."""

    def __init__(self, context: MountContext, partition: Partition, *, internal: bool) -> None:
        super().__init__(context, partition.topic, internal=internal)
        self.partition = partition
        self.path = f"{partition.topic}/{partition.number}"
        self.views = PartitionViews(
            partition, store=context.view_store(partition), isolation=context.settings.isolation
        )
        self.news = Wakeups(context.waiting.waker)
        self.directory_id: int | None = None
        """Node ID of the partition's directory while the kernel may know it."""
        self._front = self._front_now()
        self._cached: set[int] = set()
        self._newest_ns: int | None = None
        self._segments_seen = 0
        """Number of segments in the last status; 0 if unknown."""
        self.news.listen(self._changed)
        self._cancel = partition.listen(self.news.signal)

    def visible_end(self) -> Offset:
        return self.partition.visible_end(self.context.settings.isolation)

    def is_empty(self) -> bool:
        """Return whether no offset is visible; a visible offset may belong to a removed record or a marker."""
        return self.partition.log_start_offset >= self.visible_end()

    def status(self) -> PartitionStatus:
        """Return the partition's status. Reads the disk for each segment; if there are many, call this in a thread."""
        if not 0 < self._segments_seen <= FEW_SEGMENTS:
            leave_event_loop()
        status = self.partition.status()
        self._segments_seen = status.segments or 0
        return status

    def _make_target(self, name: str, encoder: Encoder) -> PartitionTarget:
        from topicfs.fusefs.appending.targets import PartitionTarget

        return PartitionTarget(f"{self.path}/{name}", self.partition, encoder)

    def mtime_ns(self) -> int:
        """The time of the newest record. It is the same after a remount, so that rsync does not copy the file again."""
        if self._newest_ns is None:
            newest = self.partition.newest_timestamp
            shown = self.context.started if newest == NO_TIMESTAMP else newest
            self._newest_ns = nanoseconds(shown)
        return self._newest_ns

    def note_attributes_cached(self, node_id: int) -> None:
        """Record that the kernel caches the node's attributes, which the next change of the partition invalidates."""
        self._cached.add(node_id)

    def attributes_forgotten(self, node_id: int) -> None:
        """Record that the kernel drops a node's attributes by itself, as it does after a write to the node.

        The mount must not invalidate these attributes as well. The kernel would then ask for the mode at the next
        open, which is one more request per `echo >>`.
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
        """Return the log start and the number of rewrites. If one of them changes, view positions mean other bytes."""
        return self.partition.log_start_offset, self.partition.rewrites

    def _forget_views(self) -> None:
        """Drop the views after a removal. The names of open-ended views get new nodes, with positions from 0 on."""
        if self.directory_id is not None:
            for name in self.shown_inos:
                self.context.kernel.forget_name(self.directory_id, name)

    def delete(self) -> None:
        """End open files after the partition was deleted."""
        self.deleted = True
        self._cancel()
        self.news.signal()
