"""`topicfs scrub`: every byte of data directories read, and what is damaged in one replica written again from another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.filesize import decimal

from storage.disk.names import REPLICAS
from storage.disk.native import NativeFileSystem
from storage.messages import printable
from topicfs.commands.check import line, new_progress, print_line
from topicfs.data_directory import data_argument, opened_for_writing
from topicfs.examples import ExampleCommand
from topicfs.terminal import console, plain

if TYPE_CHECKING:
    from storage.scrub.findings import ScrubCounts, ScrubFinding


@click.command(
    cls=ExampleCommand,
    short_help="Read everything, and heal what is damaged from another replica.",
    examples=(
        ("topicfs scrub /disk1/data,/disk2/data", "two directories that hold replicas: each heals the other"),
        (
            "topicfs scrub /disk1/data,/disk2/data --restart",
            "from the front, though the last one was interrupted",
        ),
        ("topicfs scrub ./data --json | jq .damaged", "for programs: how much is left"),
    ),
)
@data_argument
@click.option("--restart", is_flag=True, help="Begin at the front, though the last scrub was interrupted.")
@click.option("--json", "as_program", is_flag=True, help="One JSON object in place of lines.")
@click.pass_context
def scrub(context: click.Context, directories: tuple[Path, ...], *, restart: bool, as_program: bool) -> None:
    """Read every batch and index entry of data directories, compare the replicas, and heal what can be healed.

    A batch whose checksum, offsets or leader epoch does not hold is written again from another replica that is in sync,
    and an index is made again. It reads at idle I/O priority, and an interrupted one goes on where it was. One line a
    finding on standard output (FILE: position: cause); exit status 1 if anything damaged is left, also of what was read before
    an interruption.

    A daemon does this by itself, every log.scrub.interval.hours; its @status counts. Of directories without replicas it reads
    the partitions that were used since it began.
    """
    from storage.duties.scrubber import become_idle  # noqa: PLC0415 - `--help` needs no engine

    found: list[ScrubFinding] = []
    instead = "its owner scrubs by itself every log.scrub.interval.hours, and counts in MOUNTPOINT/@status"
    with opened_for_writing(directories, through_mount=instead) as engine:
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
                    print_line(_line(one), progress)

            scrubber.run(advance=lambda size: progress.advance(task, size), tell=tell)
        counts, damaged = scrubber.counts, scrubber.damaged
    if as_program:
        click.echo(
            json.dumps({"findings": [_plain(one) for one in found], **_counts(counts), "damaged": damaged})
        )
    else:
        _summarize(directories, counts, damaged)
    if damaged:
        context.exit(1)


def _line(found: ScrubFinding) -> str:
    healed = "" if found.healed_from is None else printable(f" (healed from {found.healed_from})")
    return line(found.finding) + healed


def _plain(found: ScrubFinding) -> dict[str, Any]:
    file, position, cause = found.finding
    return {"file": str(file), "position": position, "cause": cause, "healed_from": found.healed_from}


def _counts(counts: ScrubCounts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in ("read_bytes", "batches_healed", "files_healed")}


def _summarize(directories: tuple[Path, ...], counts: ScrubCounts, damaged: int) -> None:
    screen = console(error=True)
    screen.print(
        f"{counts.batches_healed} batches and {counts.files_healed} files healed, "
        f"{damaged or 'nothing'} damaged left, {decimal(counts.read_bytes)} read",
        style="bad" if damaged else "good",
    )
    if (
        damaged
        and len(directories) == 1
        and NativeFileSystem(read_only=True).exists(directories[0] / REPLICAS)
    ):
        screen.print(
            plain("other directories have replicas: name them as well, and they heal each other", "quiet")
        )
