"""Data directories: parses their names and settings, opens them, and finds where they are mounted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from topicfs.cluster.place import is_cluster
from topicfs.storage.config.broker import EngineConfig, FromProperties
from topicfs.storage.config.properties import PropertiesError, parse_properties
from topicfs.storage.errors import DirectoryLockedError, InvalidConfigError, StorageError, UnknownTopicError
from topicfs.storage.messages import which_topic

if TYPE_CHECKING:
    from topicfs.coordination.engine import Engine
    from topicfs.replication.embedded_engine import EmbeddedEngine
    from topicfs.replication.replicas.engine import ReplicatedEngine

NO_REPLICAS = (
    "these data directories keep no replicas; mount them with topicfs mount --replicas N DIR1,DIR2 MOUNTPOINT"
)
_BROKERS = re.compile(r"[^/,\s]+:[0-9]{1,5}(,[^/,\s]+:[0-9]{1,5})*")
"""Matches a list of servers, such as `host:9092,other:9092`. A path with a slash does not match."""


class PlaceError(StorageError):
    """The text does not name a data directory, or names a place of another kind than required."""


def parse_directories(text: str) -> tuple[Path, ...]:
    """Split `DIR1,DIR2`; an existing directory's name may have a comma. Raises PlaceError, also for a cluster."""
    if is_cluster(text):
        raise PlaceError(
            f"{text}: is a cluster, but this command needs the files of a directory; "
            "make a copy with topicfs mirror"
        )
    refuse_broker(text)
    scheme, _, rest = text.partition("://")
    if rest and not Path(text).exists():
        raise PlaceError(f"{text}: {scheme} is not a supported scheme; write a cluster as kafka://{rest}")
    if "," in text and Path(text).is_dir():
        return (Path(text),)
    found = tuple(Path(one.strip()) for one in text.split(",") if one.strip())
    if not found:
        raise PlaceError(f"{text!r} names no directory")
    return found


def refuse_broker(text: str) -> None:
    """Raise PlaceError if `text` is a broker's address without `kafka://`, unless a directory has that name."""
    if _BROKERS.fullmatch(text) and not Path(text).exists():
        raise PlaceError(
            f"{text}: is a broker's address; write a cluster as kafka://{text}, and a directory of that name as ./{text}"
        )


def require_directories(directories: Sequence[Path], *, of_broker: bool = False) -> None:
    """Raise StorageError if one of `directories` is not a readable directory."""
    from topicfs.storage.directories.contents import check_not_mounted

    remedy = "or create a topic in a new one: topicfs topics create TOPIC --data"
    for directory in directories:
        if directory.exists() and not directory.is_dir():
            raise StorageError(f"{directory}: is a file; give the data directory that contains the topics")
        if not directory.is_dir() or not any(directory.iterdir()):
            found = "is empty" if directory.is_dir() else "no such directory"
            named = (
                "give a log directory of the broker"
                if of_broker
                else f"give a data directory, {remedy} {directory}"
            )
            raise StorageError(f"{directory}: {found}; {named}")
        check_not_mounted(directory.absolute())


@contextmanager
def opened_for_reading(
    directories: Sequence[Path], *, config: EngineConfig | None = None
) -> Iterator[Engine]:
    """Open the directories read-only: nothing is locked, created or changed, and a running daemon is not disturbed."""
    from topicfs.replication import open_directories

    require_directories(directories)
    with closing(open_directories(directories, read_only=True, config=config)) as engine, suggesting(engine):
        yield engine


@contextmanager
def opened_for_writing(
    directories: Sequence[Path],
    *,
    through_mount: str,
    make: bool = False,
    may_be_mirrored: bool = False,
    left_out: Sequence[Path] = (),
    through_listener: str = "",
) -> Iterator[EmbeddedEngine | ReplicatedEngine]:
    """Open the directories for the block and own them; with `make`, create missing directories.

    Raises StorageError if a directory is missing, is written by a mirror (unless `may_be_mirrored`), or has another
    owner. The last error suggests the command `through_mount` and, if no mount is visible, also `through_listener`.
    """
    from topicfs.replication import open_directories

    if make:
        for directory in directories:
            directory.parent.mkdir(parents=True, exist_ok=True)
    else:
        require_directories(directories)
    try:
        engine = open_directories(directories, may_be_mirrored=may_be_mirrored, left_out=left_out)
    except DirectoryLockedError as error:
        raise _in_use(error, directories, through_mount, through_listener) from None
    with closing(engine), suggesting(engine):
        yield engine


@contextmanager
def opened_or_mounted(directories: Sequence[Path]) -> Iterator[EmbeddedEngine | ReplicatedEngine | Path]:
    """Open the directories for the block, or yield the mount of the daemon that owns them. Raises StorageError."""
    from topicfs.fusefs.mounting.mountpoint import mountpoint_of
    from topicfs.replication import open_directories

    require_directories(directories)
    try:
        engine = open_directories(directories)
    except DirectoryLockedError as error:
        mountpoint = mountpoint_of(error.holder_pid)
        if mountpoint is None:
            raise StorageError(
                f"{error.directory}: in use by {error.holder}, which has no visible mount"
            ) from None
        yield mountpoint
    else:
        with closing(engine), suggesting(engine):
            yield engine


@contextmanager
def suggesting(engine: Engine) -> Iterator[None]:
    """If the block raises an error about an unknown topic, add similar topic names to the error."""
    try:
        yield
    except UnknownTopicError as error:
        hint = "" if error.topic is None else which_topic(error.topic, engine.topics())
        raise UnknownTopicError(f"{error}{hint}") from error


@contextmanager
def opened_alone(
    directories: Sequence[Path], *, read_only: bool, through_mount: str = ""
) -> Iterator[EmbeddedEngine]:
    """Open directories as one engine. A directory with replicas can only be opened alone and read-only."""
    from topicfs.replication import open_engine

    require_directories(directories)
    try:
        engine = open_engine(directories, read_only=read_only)
    except DirectoryLockedError as error:
        raise _in_use(error, directories, through_mount) from None
    with closing(engine):
        yield engine


def _in_use(
    error: DirectoryLockedError, directories: Sequence[Path], through_mount: str, through_listener: str = ""
) -> StorageError:
    # Import only here, because the module needs a machine with FUSE.
    from topicfs.fusefs.mounting.mountpoint import mountpoint_of

    mountpoint = mountpoint_of(error.holder_pid)
    if mountpoint is not None:
        through_mount = through_mount.replace("MOUNTPOINT", str(mountpoint))
    ways = [f"through its mount: {through_mount}"] if through_mount else []
    if through_listener and not (ways and mountpoint):
        ways.append(f"through its listener: {through_listener}")
    given = next((one for one in directories if one.absolute() == error.directory), error.directory)
    return StorageError(f"{given}: in use by {error.holder}; go {', or '.join(ways)}")


def setting_text(name: str, value: object) -> str:
    """Convert a program's value for the setting `name` to text. Raises TypeError."""
    if not isinstance(value, str | int):
        raise TypeError(f"{name}: a setting must be text, an int or a bool, not {type(value).__name__}")
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_config(path: Path) -> FromProperties:
    """Read a settings file. Raises InvalidConfigError, OSError."""
    try:
        properties = parse_properties(path.read_bytes())
    except PropertiesError as error:
        raise InvalidConfigError(f"{path}: {error}") from None
    return EngineConfig.from_properties(properties)


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """Parse `name=value` arguments. Raises InvalidConfigError."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise InvalidConfigError(f"{pair}: write a setting as name=value, as in retention.ms=3600000")
        settings[name.strip()] = value.strip()
    return settings
