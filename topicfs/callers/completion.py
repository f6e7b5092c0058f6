"""Completion of words in a shell: topics, partitions, files and groups of the data directory on the command line.

Topics and partitions are found by the names of directories on disk, which are not opened. Groups are read from the
directory, or its owner's mount. Nothing is locked, and clusters are not queried. On any error, no word is offered.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VARIABLE = "_TOPICFS_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
MAX_COMPLETED_PARTITIONS = 20
"""If a topic has more partitions than this, they are offered only after the topic's full name was typed."""
DECODED_NAMES = ("log.avro.json", "log.proto.json", "log.jsonschema.json")
NAMES = (
    "log",
    "log.kv",
    "log.json",
    "log.batch",
    *DECODED_NAMES,
    "earliest",
    "latest",
    "start",
    "state",
    "status",
)
"""File names in a partition that commands read, except the many names of records and ranges."""

_CHANGED = {
    "bash": {"    return 0\n": "    [[ ${COMPREPLY[0]} == *[/=] ]] && compopt -o nospace\n    return 0\n"},
    "fish": {'string split "," $completion': 'string split --max 1 "," $completion'},
    "zsh": {
        "        compadd -U -V unsorted -a completions\n": '        [[ "$completions[1]" == *[/=] ]] && '
        'compadd -U -S "" -V unsorted -a completions || compadd -U -V unsorted -a completions\n'
    },
}
"""Lines of click's scripts, and the lines that replace them.

In bash and zsh, no space is added after an incomplete name, such as a topic or a setting (fish never adds a space).
In fish, a help text that contains commas is shown whole.
"""


def instructed(cli: click.Command) -> int | None:
    """Answer a shell's request for completions, and return the exit status; None if there is no request."""
    from click.shell_completion import shell_complete

    instruction = os.environ.get(VARIABLE)
    return None if instruction is None else shell_complete(cli, {}, "topicfs", VARIABLE, instruction)


def script(cli: click.Command, shell: str) -> str:
    from click.shell_completion import get_completion_class

    shells = get_completion_class(shell)
    assert shells is not None
    text = shells(cli, {}, "topicfs", VARIABLE).source()
    for written, wanted in _CHANGED.get(shell, {}).items():
        assert written in text, f"click's script for {shell} has no {written!r} any more"
        text = text.replace(written, wanted)
    return text


def directory_option(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def topics(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _items(sorted(_partitions(context)), incomplete)


def partitions(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer partitions, such as `orders/0`."""
    return _items(_partition_paths(context, incomplete), incomplete)


def paths(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer partitions, such as `orders/0`, and after `orders/0/` the files in that partition."""
    stem, slash, _ = incomplete.rpartition("/")
    if slash and stem.count("/") == 1:
        return _items((f"{stem}/{name}" for name in NAMES), incomplete)
    return _items(_partition_paths(context, incomplete), incomplete)


def groups(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer groups with positions or members, and queues."""
    return _items(_groups(context), incomplete)


def queues(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _items(_groups(context, "share"), incomplete)


def _groups(context: click.Context, kind: str | None = None) -> list[str]:
    from topicfs.groups.location import opened_groups
    from topicfs.places import Place

    directories = _directories(context)
    if not directories:
        return []
    try:
        with opened_groups(Place(directories)) as place:
            return sorted(one.name for one in place.listed() if kind in (None, one.type))
    except Exception:  # noqa: BLE001 - a TAB has nobody to tell
        return []


def settings(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer settings, such as `retention.ms=`."""
    from topicfs.storage.config.topic import SETTINGS

    return _items([f"{name}=" for name in SETTINGS], incomplete)


def formats(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _items(["csv", "arrow", "parquet"], incomplete)


def mountpoints(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the mountpoints of topicfs, relative to the working directory if the word is a relative path."""
    from topicfs.fusefs.mounting.limits import mounts
    from topicfs.fusefs.mounting.mountpoint import FSTYPE

    found = sorted(mounts(FSTYPE))
    here = [os.path.relpath(path) for path in found] if incomplete and not incomplete.startswith("/") else []
    return _items([*(found if not here else ()), *here, *(f"./{path}" for path in here)], incomplete)


def _items(names: Iterator[str] | list[str], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _partition_paths(context: click.Context, incomplete: str) -> Iterator[str]:
    found = _partitions(context)
    for topic in sorted(found):
        if len(found[topic]) > MAX_COMPLETED_PARTITIONS and not incomplete.startswith(f"{topic}/"):
            yield f"{topic}/"
        else:
            yield from (f"{topic}/{number}" for number in sorted(found[topic]))


def _partitions(context: click.Context) -> dict[str, list[int]]:
    """Return the partitions of each topic, by the names of their directories, without Kafka's own topics."""
    from topicfs.storage.disk.names import DirectoryMark, is_internal, parse_partition_directory

    found: dict[str, set[int]] = {}
    for directory in _directories(context):
        try:
            inside = [path.name for path in directory.iterdir()]
        except OSError:
            continue
        for parsed in filter(None, map(parse_partition_directory, inside)):
            topic, number = parsed.partition
            if parsed.mark is DirectoryMark.LIVE and not is_internal(topic):
                found.setdefault(topic, set()).add(number)
    return {topic: sorted(numbers) for topic, numbers in found.items()}


def _directories(context: click.Context) -> tuple[Path, ...]:
    """Return the directories named by the incomplete command line."""
    from topicfs.places import Place

    given = context.params.get("place") or context.params.get("directories")
    if isinstance(given, Place):
        return given.directories
    return given if isinstance(given, tuple) else ()
