"""`topicfs scrub`: reads every byte of data directories, and repairs damage of a replica from another replica."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.filesize import decimal

from topicfs.commands.check import line, new_progress, print_line
from topicfs.data_directory import opened_for_writing
from topicfs.examples import ExampleCommand
from topicfs.lines import say
from topicfs.mounted import explained
from topicfs.options import data_argument
from topicfs.storage.checkpoints.meta_properties import has_replicas
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.messages import printable
from topicfs.terminal import console, plain

_LOOK_EVERY_SECONDS = 0.2

if TYPE_CHECKING:
    from topicfs.replication.scrub.findings import ScrubCounts, ScrubFinding


@click.command(
    cls=ExampleCommand,
    examples="""
        topicfs scrub /disk1/data,/disk2/data  # two directories that hold replicas: each heals the other
        topicfs scrub /disk1/data,/disk2/data --restart  # from the front, though the last one was interrupted
        topicfs scrub ./mnt  # a mount: its daemon scrubs everything now, and what it found is printed
        topicfs scrub ./data --json | jq .damaged  # for programs: how much is left
    """,
)
@data_argument
@click.option("--restart", is_flag=True, help="Begin at the front even if the last scrub was interrupted.")
@click.option("--json", "as_program", is_flag=True, help="One JSON object in place of lines.")
@click.pass_context
def scrub(context: click.Context, directories: tuple[Path, ...], *, restart: bool, as_program: bool) -> None:
    """Read every batch and index entry of data directories, compare the replicas, and heal damage.

    A batch with a wrong checksum, offset or leader epoch is rewritten from another in-sync replica, and a damaged
    index is rebuilt. The scrub reads at idle I/O priority; an interrupted scrub continues where it stopped. Prints
    one line per finding on standard output (FILE: position: cause). The exit status is 1 if any damage is left,
    including damage found before an interruption, or if a partition is offline or cannot be read to its end.

    With the path of a mount instead of directories, the daemon scrubs while it serves, always from the beginning.

    A daemon also scrubs by itself every log.scrub.interval.hours; its @status has the counts. In directories without
    replicas, the daemon reads only the partitions that were used since it started.
    """
    from topicfs.replication.scrub.scrubber import become_idle

    if len(directories) == 1 and (directories[0] / "@scrub").exists():
        if _scrub_mount(directories[0] / "@scrub", as_program=as_program):
            context.exit(1)
        return
    found: list[ScrubFinding] = []
    instead = "topicfs scrub MOUNTPOINT"
    with opened_for_writing(directories, through_mount=instead, may_be_mirrored=True) as engine:
        become_idle()
        if engine.replication is not None:
            engine.replication.catch_up()
        scrubber = engine.scrubber
        if restart:
            scrubber.restart()
        with new_progress() as progress:
            task = progress.add_task("scrub", total=scrubber.total_bytes())

            def tell(one: ScrubFinding) -> None:
                found.append(one)
                if not as_program:
                    source = one.healed_from
                    healed = "" if source is None else printable(f" (healed from {source})")
                    print_line(line(one.finding) + healed, progress)

            scrubber.run(advance=lambda size: progress.advance(task, size), tell=tell)
        counts, damaged = scrubber.counts, scrubber.damaged
    if as_program:
        findings = [
            {**one.finding._asdict(), "file": str(one.finding.file), "healed_from": one.healed_from}
            for one in found
        ]
        numbers = {name: getattr(counts, name) for name in ("read_bytes", "batches_healed", "files_healed")}
        click.echo(json.dumps({"findings": findings, **numbers, "damaged": damaged}))
    else:
        _summarize(directories, counts, damaged)
    if damaged:
        context.exit(1)


def _scrub_mount(file: Path, *, as_program: bool) -> int:
    """Let the daemon of a mount scrub all partitions, and print its findings; return the number of damages left."""
    with explained(file.parent, file.name), file.open("a") as asked:
        asked.write("start\n")
    while (lines := file.read_text().splitlines())[:1] == ["state running"]:
        time.sleep(_LOOK_EVERY_SECONDS)  # Files of a mount send no change notifications.
    told = [line.removeprefix("found ") for line in lines if line.startswith("found ")]
    values = dict(line.split(" ", 1) for line in lines if not line.startswith("found "))
    damaged = int(values.get("damaged", 0))
    if as_program:
        click.echo(json.dumps({"findings": told, "damaged": damaged}))
        return damaged
    for one in told:
        say(one)
    say(f"{damaged or 'nothing'} damaged left; since the mount began: {values.get('scrub', '')}", error=True)
    return damaged


def _summarize(directories: tuple[Path, ...], counts: ScrubCounts, damaged: int) -> None:
    screen = console(error=True)
    screen.print(
        f"{counts.batches_healed} batches and {counts.files_healed} files healed, "
        f"{damaged or 'nothing'} damaged left, {decimal(counts.read_bytes)} read",
        style="bad" if damaged else "good",
    )
    if damaged and len(directories) == 1 and has_replicas(NativeFileSystem(read_only=True), directories[0]):
        screen.print(
            plain("other directories have replicas too: name them, so that replicas heal each other", "quiet")
        )
