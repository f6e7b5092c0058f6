"""`topicfs check`: every checksum, offset and index entry of a data directory."""

from __future__ import annotations

import os
from pathlib import Path

import click
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from storage.disk.native import NativeFileSystem
from storage.inspect.check.directory import DirectoryCheck
from storage.inspect.check.findings import Finding
from topicfs.data_directory import DEFAULT_DIRECTORY, VARIABLE, require_directory
from topicfs.examples import ExampleCommand
from topicfs.terminal import console


@click.command(
    cls=ExampleCommand,
    short_help="Check every byte of a data directory.",
    examples=(
        ("topicfs check ./data", "everything there is"),
        ("topicfs check /var/lib/kafka/data", "a broker's log directory: read-only, also while it runs"),
        ("topicfs check ./data 2>/dev/null | wc -l", "how many findings"),
    ),
)
@click.argument(
    "directory",
    metavar="[DIR]",
    type=click.Path(path_type=Path),
    default=DEFAULT_DIRECTORY,
    envvar=VARIABLE,
)
@click.pass_context
def check(context: click.Context, directory: Path) -> None:
    """Check every byte of a data directory; nothing there is changed.

    Checksums, record boundaries, the order of offsets and leader epochs, timestamps, every entry of both indexes,
    producer snapshots, and the checkpoints against the logs. One line a finding (FILE: position: cause) on standard
    output; exit status 1 if there is any.
    """
    require_directory(directory)
    examination = DirectoryCheck(directory, NativeFileSystem(read_only=True))
    screen = console(error=True)
    if examination.in_use:
        screen.print(
            f"{directory} is in use: what its owner has not finished yet is passed over", style="quiet"
        )
    with _progress() as progress:
        task = progress.add_task(str(directory), total=examination.total_bytes)
        for finding in examination.findings(lambda passed: progress.advance(task, passed)):
            click.echo(line(finding))
    summary = examination.summary
    screen.print(
        f"{summary.findings or 'no'} finding{'s' * (summary.findings != 1)} in {summary.partitions} "
        f"partition{'s' * (summary.partitions != 1)}, {decimal(summary.log_bytes)} of log",
        style="bad" if summary.findings else "good",
    )
    if summary.findings:
        context.exit(1)


def line(finding: Finding) -> str:
    """Print a finding as compilers print theirs: file, place, cause."""
    position = "" if finding.position is None else f" position {finding.position}:"
    return f"{os.path.relpath(finding.file)}:{position} {finding.cause}"


def _progress() -> Progress:
    """Make a bar on standard error that leaves nothing behind, and is nothing at all off a terminal."""
    screen = console(error=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
