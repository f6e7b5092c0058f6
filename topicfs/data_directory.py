"""The data directory of a command: how it is given, and how it is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from storage.engine import Engine
from storage.errors import DirectoryLockedError, StorageError

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_DIRECTORY = "data"
VARIABLE = "TOPICFS_DATA"


def data_option(command: Command) -> Command:
    """Give a command `--data DIR`, with the environment and then ./data behind it."""
    return click.option(
        "--data",
        "-d",
        "directory",
        type=click.Path(path_type=Path),
        default=DEFAULT_DIRECTORY,
        envvar=VARIABLE,
        show_default=True,
        show_envvar=True,
        metavar="DIR",
        help="Data directory (or a broker's log.dirs, to read).",
    )(command)


class DirectoryInUseError(StorageError):
    """A change was asked for while a daemon (or a broker) owns the directory."""


def require_directory(directory: Path) -> None:
    """Raise StorageError where there is no such directory to read."""
    if not directory.is_dir():
        raise StorageError(
            f"{directory}: no data directory there; name one with --data DIR or {VARIABLE}, "
            f"or make a topic: topicfs topics create orders"
        )


@contextmanager
def opened_for_reading(directory: Path) -> Iterator[Engine]:
    """Open read-only: nothing is locked, created or changed, and a running daemon is not disturbed."""
    from storage.manager import open_engine  # noqa: PLC0415 - `--help` needs no engine

    require_directory(directory)
    engine = open_engine(directory, read_only=True)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def opened_for_writing(directory: Path, *, through_mount: str) -> Iterator[Engine]:
    """Own the directory for a while; it is made where it is missing.

    Raises DirectoryInUseError while someone else owns it; `through_mount` is what to type instead.
    """
    from storage.manager import open_engine  # noqa: PLC0415 - `--help` needs no engine

    directory.mkdir(parents=True, exist_ok=True)
    try:
        engine = open_engine(directory)
    except DirectoryLockedError as error:
        holder = f"process {error.holder_pid}" if error.holder_pid else "another process"
        raise DirectoryInUseError(
            f"{directory}: in use by {holder}; go through its mount: {through_mount}"
        ) from None
    try:
        yield engine
    finally:
        engine.close()
