"""`topicfs.serve`: serves a data directory to Kafka clients from a Python program, such as a test."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from topicfs.data_directory import parse_directories, setting_text
from topicfs.listener.address import parse_endpoint
from topicfs.listener.listener import Listener, ListenerOptions
from topicfs.replication import open_directories
from topicfs.storage.config.broker import EngineConfig, known_names
from topicfs.storage.disk.native import system_clock
from topicfs.storage.errors import InvalidConfigError, StorageError
from topicfs.storage.messages import did_you_mean

if TYPE_CHECKING:
    from topicfs.coordination.engine import Engine

_LOGGER = logging.getLogger("topicfs")

MAINTENANCE_SECONDS = 0.5
"""Time between two checks for due duties of the engine."""
REMEDY = "use the command `topicfs serve`, which can require TLS and users"
"""What the error suggests for an address that other machines can reach."""


def serve(
    where: str | os.PathLike[str],
    *,
    listen: str = "127.0.0.1:0",
    settings: Mapping[str, str | int] | None = None,
) -> Server:
    """Serve a data directory to Kafka clients until `close`. A missing directory is created.

    Several directories are written `dir1,dir2`. `listen` is the address; port 0 means any free port. `settings` are
    settings of a broker by Kafka's names, such as `num.partitions` and `auto.create.topics.enable`.

    Raises StorageError, OSError.
    """
    directories = parse_directories(os.fspath(where))
    given = {name: setting_text(name, value) for name, value in (settings or {}).items()}
    found = EngineConfig.from_properties(given)
    if found.ignored:
        hint = did_you_mean(found.ignored[0], known_names())
        raise InvalidConfigError(f"{found.ignored[0]}: topicfs does not use this setting{hint}")
    return Server(directories, listen, found.config)


class Server:
    """A Kafka broker over a data directory. Use it as a context manager, or call `close`."""

    def __init__(self, directories: Sequence[Path], listen: str, config: EngineConfig) -> None:
        """Bind the address and open the directories. See `serve`."""
        ended = threading.Event()
        with ExitStack() as opening:
            listener = Listener(ListenerOptions(endpoint=parse_endpoint(listen), remedy=REMEDY))
            opening.callback(listener.close)
            for directory in directories:
                directory.parent.mkdir(parents=True, exist_ok=True)
            engine = open_directories(directories, config=config, replicated=config.replication_factor > 1)
            opening.callback(engine.close)
            opening.callback(
                listener.close
            )  # Registered last, so that the listener closes before the engine.
            listener.serve(engine, config)
            maintenance = threading.Thread(
                target=_maintain, args=(engine, ended), name="maintenance", daemon=True
            )
            maintenance.start()
            opening.callback(maintenance.join)
            opening.callback(ended.set)
            self._opened = opening.pop_all()
        self.bootstrap_servers = str(listener.endpoint)
        """The address for Kafka clients: their setting `bootstrap.servers`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Server {self.bootstrap_servers}>"

    def close(self) -> None:
        """End the connections, flush all records to disk, and unlock the directory. Idempotent."""
        self._opened.close()


def _maintain(engine: Engine, ended: threading.Event) -> None:
    while not ended.wait(MAINTENANCE_SECONDS):
        run_due_duties(engine)


def run_due_duties(engine: Engine) -> None:
    """Run the duties of an engine that are due: retention, compaction, checkpoints. Errors are only logged."""
    try:
        engine.maintenance(system_clock())
    except (StorageError, OSError) as error:
        _LOGGER.warning("maintenance: %s", error)
