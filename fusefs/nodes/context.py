"""The objects and settings that all nodes of one mount share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from topicfs.fusefs.following.waiting_reads import WaitingReads
from topicfs.fusefs.nodes.decoded_forms import DecodedForms
from topicfs.fusefs.nodes.view_measurer import ViewMeasurer
from topicfs.fusefs.reports import Reports
from topicfs.fusefs.views.view_file import ViewStore
from topicfs.storage.engine import Partition
from topicfs.storage.model import Isolation, Timestamp

if TYPE_CHECKING:
    from topicfs.coordination.engine import Engine
    from topicfs.fusefs.appending.handle import Appending
    from topicfs.fusefs.appending.partitioners import PartitionerFactory
    from topicfs.fusefs.appending.targets import Clock
    from topicfs.fusefs.following.tail import Tails
    from topicfs.fusefs.threads.blocking_calls import BlockingCalls


class KernelCache:
    """Invalidates names and attributes in the kernel's cache. This base class has no kernel and does nothing."""

    def forget_attributes(self, node_id: int) -> None:
        """Invalidate the node's attributes. Fast; may be called while a request is answered."""

    def forget_name(self, parent_id: int, name: str) -> None:
        """Invalidate a name that now means another node; done soon, in another thread."""


class Settings(NamedTuple):
    """Settings of a mount, with their defaults, which are defined only here."""

    directories: tuple[Path, ...]
    """The data directories, whose disks `df` shows."""
    isolation: Isolation = Isolation.READ_COMMITTED
    """Which records readers see."""
    allow_delete: bool = False
    """True if rmdir may remove a topic with records, and writing `start` may delete records."""
    stat_seconds: float = 2.0
    """How long `stat` may wait for the size of a partition's view, such as `log.kv`; `ls -l` stats all three views."""
    open_seconds: float = 60.0
    """How long open(2) of a partition's view may wait for the exact size, on which cp, tar and wc rely."""


class Shared:
    """The state that all nodes of one mount share."""

    def __init__(self) -> None:
        self.naming_groups = Lock()
        """Held while a group is created, so that groups of different kinds cannot get the same name."""
        self.new_id: Callable[[], int] = itertools.count(2).__next__
        """Returns unused node IDs, from 2 on; the root has ID 1."""

    @cached_property
    def tails(self) -> Tails:
        from topicfs.fusefs.following.tail import Tails

        return Tails()


class MountContext(NamedTuple):
    """The engine, and the services that nodes use."""

    engine: Engine
    settings: Settings
    reports: Reports
    clock: Clock
    blocking: BlockingCalls
    appending: Callable[[], Appending]
    """Returns the objects with which files append. Called only when a file is opened to be written."""
    waiting: WaitingReads
    measuring: ViewMeasurer
    partitioners: PartitionerFactory
    kernel: KernelCache
    view_store: Callable[[Partition], ViewStore | None]
    """Returns where a partition's measured positions are saved; None if they are not saved."""
    status_lines: Callable[[], list[str]]
    """Returns the lines of `@status` about the daemon itself, in the form `name value`."""
    started: Timestamp
    """Time when the mount began, shown as the time of files that have no time of their own."""
    decoding: DecodedForms
    """The forms by name, including the forms that decode payloads."""
    metrics: Callable[[], str]
    """Returns the text of `@metrics` (blocking; slow with very many partitions)."""
    shared: Shared
