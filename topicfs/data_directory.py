"""The data directories of a command: how they are given, and how they are opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from storage.errors import DirectoryLockedError, StorageError
from topicfs.mounts import mountpoint_of

if TYPE_CHECKING:
    from storage.config.broker import EngineConfig
    from storage.manager import LogManager

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_DIRECTORY = "data"
VARIABLE = "TOPICFS_DATA"


def parse_directories(text: str) -> tuple[Path, ...]:
    """Take `DIR1,DIR2` apart, as a broker's log.dirs; a comma in the name of a directory that is there belongs to it.

    ValueError where nothing is named: click then tells how the command is used.
    """
    if "," in text and Path(text).is_dir():
        return (Path(text),)
    found = tuple(Path(one.strip()) for one in text.split(",") if one.strip())
    if not found:
        raise ValueError(f"{text!r} names no directory")
    return found


def data_option(command: Command) -> Command:
    """Give a command `--data DIR[,DIR]`, with the environment and then ./data behind it: `directories`."""
    return click.option(
        "--data",
        "-d",
        "directories",
        type=parse_directories,
        default=DEFAULT_DIRECTORY,
        envvar=VARIABLE,
        show_default=True,
        show_envvar=True,
        metavar="DIR[,DIR]",
        help="Data directory, or several (or a broker's log.dirs, to read).",
    )(command)


class DirectoryInUseError(StorageError):
    """A change was asked for while a daemon (or a broker) owns the directory."""


def require_directories(directories: Sequence[Path]) -> None:
    """Raise StorageError where one of them is no directory to read."""
    for directory in directories:
        require_directory(directory)


def require_directory(directory: Path) -> None:
    """Raise StorageError where there is no such directory to read."""
    if not directory.is_dir() or not any(directory.iterdir()):
        raise StorageError(
            f"{directory}: no data directory there; name one with --data DIR or {VARIABLE}, "
            f"or make a topic: topicfs topics create orders"
        )


@contextmanager
def opened_for_reading(
    directories: Sequence[Path], *, config: EngineConfig | None = None
) -> Iterator[LogManager]:
    """Open read-only: nothing is locked, created or changed, and a running daemon is not disturbed."""
    from storage.manager import open_engine  # noqa: PLC0415 - `--help` needs no engine

    require_directories(directories)
    engine = open_engine(directories, read_only=True, config=config)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def opened_for_writing(
    directories: Sequence[Path], *, through_mount: str, make: bool = False
) -> Iterator[LogManager]:
    """Own the directories for a while; with `make` those that are missing are made.

    Raises StorageError where one is missing, and DirectoryInUseError while someone else owns one; `through_mount` is what to type instead.
    """
    from storage.manager import open_engine  # noqa: PLC0415 - `--help` needs no engine

    if make:
        for directory in directories:
            directory.parent.mkdir(parents=True, exist_ok=True)
    else:
        require_directories(directories)
    try:
        engine = open_engine(directories)
    except DirectoryLockedError as error:
        holder = f"process {error.holder_pid}" if error.holder_pid else "another process"
        mountpoint = mountpoint_of(error.holder_pid)
        if mountpoint is not None:
            through_mount = through_mount.replace("MOUNTPOINT", str(mountpoint))
        raise DirectoryInUseError(
            f"{_as_given(error.directory, directories)}: in use by {holder}; go through its mount: {through_mount}"
        ) from None
    try:
        yield engine
    finally:
        engine.close()


def _as_given(directory: Path, directories: Sequence[Path]) -> Path:
    return next((one for one in directories if one.absolute() == directory), directory)
