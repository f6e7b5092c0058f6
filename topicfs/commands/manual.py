"""`topicfs manual`: the manual pages, as files for man(1)."""

from __future__ import annotations

import importlib.metadata
import os
from datetime import UTC, datetime
from pathlib import Path

import click

from topicfs.callers import completion
from topicfs.examples import ExampleCommand
from topicfs.lines import say


@click.command(
    cls=ExampleCommand,
    examples=(
        (
            "topicfs manual ~/.local/share/man",
            "for oneself: then man topicfs, man topicfs-cat, man mount.topicfs",
        ),
        ("topicfs manual /usr/local/share/man", "for everybody, as root"),
    ),
)
@click.argument(
    "directory", metavar="DIR", type=click.Path(path_type=Path), shell_complete=completion.directory_option
)
def manual(directory: Path) -> None:
    """Write a page for each command, and mount.topicfs(8), into man1 and man8 below DIR.

    Packages bring the pages along; this is for an install by pip.
    """
    from topicfs.manual import pages

    version = importlib.metadata.version("topicfs")
    # https://reproducible-builds.org/specs/source-date-epoch/
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    day = datetime.now(UTC) if epoch is None else datetime.fromtimestamp(int(epoch), UTC)
    every_page = list(pages(version=version, day=day))
    for name, source in every_page:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    say(f"{len(every_page)} pages in {directory}")
