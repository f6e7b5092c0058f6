"""The options of a mount."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from topicfs.coordination.engine import Engine
from topicfs.fusefs.appending.handle import Acks
from topicfs.fusefs.following.waiting_reads import MAX_WAITING
from topicfs.fusefs.metrics.address import MetricsAddress
from topicfs.fusefs.mounting.daemon_log import LogFormat
from topicfs.fusefs.nodes.ownership import Ownership
from topicfs.schemas.places import SchemaPlaces
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.model import Isolation

if TYPE_CHECKING:
    from topicfs.listener.listener import ListenerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class MountOptions:
    """Everything `topicfs mount` can be told. The defaults here are the only ones."""

    directories: tuple[Path, ...]
    """The data directories, one or more; those that are missing are made. None for an engine that has none."""
    mountpoint: Path
    """An existing directory, outside the data directories."""
    nonempty: bool = False
    """Mount over a directory that holds files; the mount hides them."""
    foreground: bool = False
    """Stay in the terminal (or under a service manager) instead of going to the background once mounted."""
    replicated: bool = False
    """Make the data directories hold replicas of each other's partitions; also without, where they do already."""
    left_out: tuple[Path, ...] = ()
    """Directories that hold replicas, too, and are not waited for."""
    read_only: bool = False
    """Change and create nothing in the data directories, which may be a broker's own log.dirs."""
    allow_other: bool = False
    """Admit other users, as far as the modes do (needs root, or user_allow_other in /etc/fuse.conf)."""
    owner: Ownership = field(default_factory=Ownership.of_process)
    """The owner of all files, and what others may do with them."""
    allow_delete: bool = False
    """Have rmdir remove topics with records, and `start` delete records."""
    acks: Acks = Acks.LEADER
    """The moment at which a write is answered."""
    linger_ms: int = 5
    """With acks 0: how long lines wait, in milliseconds, for company in one batch."""
    max_in_flight: int = 1
    """Of an engine that has no directories: large writes of one open file that may be under way at a time."""
    partitioner: str = "kafka"
    """For a topic's own log files: `kafka`, `roundrobin` or `module:function`."""
    isolation: Isolation = Isolation.READ_COMMITTED
    """The records that are shown."""
    max_waiting: int = MAX_WAITING
    """Reads of `follow` that may wait at once."""
    log_file: Path | None = None
    """The file of the daemon's log; without it the log goes to the terminal, or from the background to the journal or syslog."""
    log_format: LogFormat | None = None
    """The form of the log; None: text, or the journal's if the log goes there."""
    debug: bool = False
    """Log every decision of interest, not only failures."""
    metrics: MetricsAddress | None = None
    """The address at which Prometheus is answered; without one there is `@metrics` alone."""
    listener: ListenerOptions | None = None
    """Where Kafka clients are served; None: nowhere."""
    opens: Callable[[], Engine] | None = None
    """Opens another engine than that of the directories, after the daemon has left the terminal."""
    place: str = ""
    """Name in messages of the place where that engine's topics are."""
    schemas: SchemaPlaces = field(default_factory=SchemaPlaces)
    """Where schemas of payloads are looked for, beside the topic `_schemas`."""
    engine: EngineConfig | None = None
    """Settings of the engine, such as those of a server.properties."""
    rereads: Callable[[], EngineConfig] | None = field(default=None, compare=False)
    """Reads the settings again (InvalidConfigError, OSError): at SIGHUP, which ends a daemon that has none to read and is no service."""
