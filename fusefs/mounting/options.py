"""The options of a mount."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from topicfs.coordination.engine import Engine
from topicfs.fusefs.appending.handle import Acks
from topicfs.fusefs.following.waiting_reads import MAX_WAITING
from topicfs.fusefs.mounting.daemon_log import LogFormat
from topicfs.fusefs.nodes.ownership import Ownership
from topicfs.listener.address import Endpoint
from topicfs.schemas.places import SchemaPlaces
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.model import Isolation

if TYPE_CHECKING:
    from topicfs.listener.listener import ListenerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class MountOptions:
    """All options of `topicfs mount`, with their defaults, which are defined only here."""

    directories: tuple[Path, ...]
    """The data directories; a missing one is created. For an engine without directories, this is ()."""
    mountpoint: Path
    """An existing directory, outside the data directories."""
    nonempty: bool = False
    """Mount over a directory that contains files, which the mount hides."""
    foreground: bool = False
    """Stay in the terminal (or under a service manager) instead of going to the background."""
    replicated: bool = False
    """Make the data directories replicas of each other. Directories that are replicas already do not need this
    option.
    """
    left_out: tuple[Path, ...] = ()
    """Replica directories that are missing; the mount does not wait for them."""
    read_only: bool = False
    """Change and create nothing in the data directories, which may be a broker's log.dirs."""
    allow_other: bool = False
    """Admit other users, within the file modes (needs root, or user_allow_other in /etc/fuse.conf)."""
    owner: Ownership = field(default_factory=Ownership.of_process)
    """The owner of all files, and the permissions of other users."""
    allow_delete: bool = False
    """Allow rmdir to remove topics with records, and writing `start` to delete records."""
    acks: Acks = Acks.LEADER
    """When a write is answered: immediately, when its records are in the log, or when they are on disk."""
    linger_ms: int = 5
    """With acks 0: how many milliseconds lines wait so that they can be combined in a batch."""
    max_in_flight: int = 1
    """For an engine without directories: how many large writes of one open file may run at a time."""
    partitioner: str = "kafka"
    """Partitioner for topics' own log files: `kafka`, `roundrobin` or `module:function`."""
    isolation: Isolation = Isolation.READ_COMMITTED
    """Which records are shown."""
    max_waiting: int = MAX_WAITING
    """Limit on waiting reads of `follow`."""
    log_file: Path | None = None
    """File of the daemon's log. None: the terminal; in the background, the journal or syslog."""
    log_format: LogFormat | None = None
    """Format of the log. None: text, or the journal's format if the log goes to the journal."""
    debug: bool = False
    """Log every notable decision, not only failures."""
    metrics: Endpoint | None = None
    """Address for serving Prometheus; None: only the file `@metrics`."""
    listener: ListenerOptions | None = None
    """Where Kafka clients are served; None: nowhere."""
    opens: Callable[[], Engine] | None = None
    """Opens another engine instead of the one for `directories`, after the daemon has left the terminal."""
    place: str = ""
    """Name of the cluster that `opens` connects to, for messages and `@status`; empty for data directories."""
    schemas: SchemaPlaces = field(default_factory=SchemaPlaces)
    """Where to look for schemas of payloads, besides the topic `_schemas`."""
    engine: EngineConfig | None = None
    """Settings of the engine, such as those of a server.properties."""
    rereads: Callable[[], EngineConfig] | None = field(default=None, compare=False)
    """Reads the settings again at SIGHUP. Raises InvalidConfigError, OSError. None: SIGHUP may end the daemon."""
