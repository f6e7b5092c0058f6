"""`topicfs check`: checks every checksum, offset and index entry of a data directory."""

from __future__ import annotations

import os
from pathlib import Path

import click
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from topicfs.data_directory import require_directories
from topicfs.examples import ExampleCommand
from topicfs.inspection.check.directory import DirectoryCheck, duplicates
from topicfs.options import data_argument
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import Finding
from topicfs.storage.messages import printable
from topicfs.terminal import console, is_terminal, plain


@click.command(
    cls=ExampleCommand,
    examples="""
        topicfs check ./data  # everything there is
        topicfs check /disk1/data,/disk2/data  # two directories of one mount
        topicfs check /var/lib/kafka/data  # a broker's log directory: read-only, also while it runs
        topicfs check ./data 2>/dev/null | wc -l  # how many findings
    """,
)
@data_argument
@click.pass_context
def check(context: click.Context, directories: tuple[Path, ...]) -> None:
    """Check every byte of a data directory, or of several, without changing anything.

    Checks checksums, record boundaries, the order of offsets and leader epochs, timestamps, every entry of both
    indexes, producer snapshots, and the checkpoints against the logs. Prints one line per finding (FILE: position:
    cause) on standard output; the exit status is 1 if there is any finding.
    """
    require_directories(directories)
    files = NativeFileSystem(read_only=True)
    examinations = {directory: DirectoryCheck(directory, files) for directory in directories}
    screen = console(error=True)
    for directory, examination in examinations.items():
        if examination.in_use:
            screen.print(
                plain(f"{directory} is in use: data that its owner has not finished yet is skipped", "quiet")
            )
    twice = list(duplicates(examinations.values()))
    for finding in twice:
        click.echo(line(finding))
    with new_progress() as progress:
        for directory, examination in examinations.items():
            task = progress.add_task(escape(printable(str(directory))), total=examination.total_bytes)
            for finding in examination.findings(lambda passed, task=task: progress.advance(task, passed)):  # type: ignore[misc] # the default binds it
                print_line(line(finding), progress)
    summaries = [examination.summary for examination in examinations.values()]
    findings = len(twice) + sum(summary.findings for summary in summaries)
    partitions = sum(summary.partitions for summary in summaries)
    screen.print(
        f"{findings or 'no'} finding{'s' * (findings != 1)} in {partitions} "
        f"partition{'s' * (partitions != 1)}, {decimal(sum(summary.log_bytes for summary in summaries))} of log",
        style="bad" if findings else "good",
    )
    if findings:
        context.exit(1)


def line(finding: Finding) -> str:
    """Return a finding in the format of compiler messages: file, position, cause."""
    position = "" if finding.position is None else f" position {finding.position}:"
    path = os.path.relpath(finding.file)
    shown = finding.file if path.startswith("..") else path
    return printable(f"{shown}:{position} {finding.cause}")


def print_line(text: str, progress: Progress) -> None:
    """Print the line of a finding. If the progress bar is on the same terminal, print the line above the bar."""
    if is_terminal() and not progress.disable:
        progress.console.print(text, markup=False)
    else:
        click.echo(text)


def new_progress() -> Progress:
    """Return a progress bar on standard error. It is removed at the end, and not drawn if there is no terminal."""
    screen = console(error=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not screen.is_terminal,
    )
