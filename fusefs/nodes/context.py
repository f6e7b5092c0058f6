"""The objects and settings that all nodes of one mount share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from topicfs.fusefs.appending.handle import Appending
from topicfs.fusefs.appending.partitioners import PartitionerFactory
from topicfs.fusefs.appending.targets import Clock
from topicfs.fusefs.following.tail import Tails
from topicfs.fusefs.following.waiting_reads import WaitingReads
from topicfs.fusefs.nodes.decoded_forms import DecodedForms
from topicfs.fusefs.nodes.measuring_queue import MeasuringQueue
from topicfs.fusefs.reports import Reports
from topicfs.fusefs.views.view_file import ViewStore
from topicfs.storage.engine import Partition
from topicfs.storage.model import Isolation, Timestamp

if TYPE_CHECKING:
    from topicfs.coordination.engine import Engine


class KernelCache:
    """Names and attributes that the kernel has cached, and that it is told to forget. Without a kernel, as here, nothing is."""

    def forget_attributes(self, node_id: int) -> None:
        """The node's attributes changed. Quick; may be called while a request is answered."""

    def forget_name(self, parent_id: int, name: str) -> None:
        """The name means another node from now on. Happens soon, in another thread."""


class Settings(NamedTuple):
    """Settings of a mount. The defaults here are the only ones."""

    directories: tuple[Path, ...]
    """The data directories: whose disks `df` shows."""
    isolation: Isolation = Isolation.READ_COMMITTED
    """The records that readers are shown."""
    allow_delete: bool = False
    """True if rmdir of a topic with records, and writing `start`, may delete."""
    stat_seconds: float = 2.0
    """Time that `stat` of a partition's own view may wait for its size to be measured; `ls -l` asks for all three."""
    open_seconds: float = 60.0
    """Time that opening one may wait: from then on its size is exact, and cp, tar and wc rely on that."""


class Shared:
    """The state that all nodes of one mount share."""

    def __init__(self) -> None:
        self.tails = Tails()
        self.naming_groups = Lock()
        """Held while a group is created, so that two groups of different kinds cannot get one name."""
        self.new_id: Callable[[], int] = itertools.count(2).__next__
        """Numbers for nodes, never used twice; 1 is the root's."""


class MountContext(NamedTuple):
    """The engine, and the services that nodes use."""

    engine: Engine
    settings: Settings
    reports: Reports
    clock: Clock
    appending: Appending
    waiting: WaitingReads
    measuring: MeasuringQueue
    partitioners: PartitionerFactory
    kernel: KernelCache
    view_store: Callable[[Partition], ViewStore | None]
    """Returns the store of a partition's measured positions; None where they are not remembered."""
    status_lines: Callable[[], list[str]]
    """Returns the lines of `@status` about the daemon itself, one `name value` each."""
    started: Timestamp
    """Time at which the mount began: the time shown of what has none of its own."""
    decoding: DecodedForms
    """The forms of names, those among them that decode payloads."""
    metrics: Callable[[], str]
    """Returns the text of `@metrics` (blocking, for long where there are very many partitions)."""
    shared: Shared
