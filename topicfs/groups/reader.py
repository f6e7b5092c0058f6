"""The group member of `topicfs cat --group`: it reads through the daemon's mount, or with an engine of its own."""

from __future__ import annotations

from contextlib import aclosing, closing
from pathlib import Path
from typing import BinaryIO, NamedTuple

import click
import trio

from topicfs.coordination.engine import Engine
from topicfs.fusefs.forms import SUFFIXES
from topicfs.fusefs.reader import MountReader, PathError
from topicfs.groups.location import serving_mount
from topicfs.paths import check_group_name
from topicfs.places import Place
from topicfs.schemas.places import SchemaPlaces
from topicfs.storage.errors import GroupExistsError, InvalidNameError
from topicfs.storage.model import Isolation

READER_PIECE_BYTES = 512 * 1024
"""Size of a read; printed records are committed when the next piece is read."""


class Shown(NamedTuple):
    """Which records are shown, and the schemas that decode them."""

    isolation: Isolation
    schemas: SchemaPlaces


def file_of(group: str, path: str, *, follow: bool) -> str:
    """Return the member's file for `orders/log.kv`: `drain.kv`, or `log.kv` with `follow`. Raises InvalidNameError."""
    check_group_name(group)
    topics, _, name = path.strip("/").partition("/")
    suffix = (name or "log").removeprefix("log")
    if suffix not in {"", *SUFFIXES}:
        raise InvalidNameError(
            f"{path}: a group reads whole topics; write TOPIC/log, or TOPIC/log with {', '.join(SUFFIXES)}"
        )
    return f"@groups/{group}/{topics}/{'log' if follow else 'drain'}{suffix}"


def copy_as_member(
    place: Place, group: str, path: str, output: BinaryIO, *, shown: Shown, follow: bool
) -> None:
    """Write the records that the group has not read yet. Raises StorageError, OSError."""
    name = file_of(group, path, follow=follow)
    mountpoint = serving_mount(place)
    if mountpoint is not None:
        if (mountpoint / "@queues" / group).is_dir():
            raise GroupExistsError(f"{group}: is a queue; `topicfs work` takes its records")
        (mountpoint / "@groups" / group).mkdir(exist_ok=True)
        with (mountpoint / name).open("rb", buffering=0) as file:
            while data := file.read(READER_PIECE_BYTES):
                output.write(data)
                output.flush()  # Flush first: the next read commits the records.
        return
    with place.opened_for_writing(through_mount=f"cat MOUNTPOINT/{name}") as engine:
        if group not in engine.groups.listed():
            engine.groups.create(group)
        try:
            trio.run(_copy, engine, name, output, shown, place.directories)
        except PathError as error:
            raise click.ClickException(str(error)) from error


async def _copy(
    engine: Engine, name: str, output: BinaryIO, shown: Shown, directories: tuple[Path, ...]
) -> None:
    with closing(
        MountReader(engine, directories=directories, isolation=shown.isolation, schemas=shown.schemas)
    ) as reader:
        async with aclosing(reader.contents(reader.find(name))) as contents:
            async for data in contents:
                output.write(data)
                output.flush()
