"""`topicfs work`: run a command once for each record of a queue."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress

import click

from storage.errors import RecordNotHeldError, StorageError
from storage.share_groups import Acknowledgement
from topicfs.callers import completion
from topicfs.examples import ExampleCommand
from topicfs.groups.jobs import EngineJobs, Job, JobSource, MountJobs
from topicfs.groups.location import serving_mount
from topicfs.lines import say
from topicfs.places import Place, place_option

REJECTS = 65
"""Exit status (EX_DATAERR) of a command that a record's data do not suit, now or ever."""


@click.command(
    cls=ExampleCommand,
    short_help="Run a command once for each record of a queue.",
    context_settings={"ignore_unknown_options": True},
    examples=(
        ("topicfs work jobs orders -- ./charge", "a record a run, its value on standard input"),
        (
            "topicfs work jobs orders --jobs 4 -- sh -c 'curl -fsS -d @- https://example.org/$TOPICFS_KEY'",
            "four at a time",
        ),
        ("topicfs work jobs orders --drain -- wc -c", "until nothing is left"),
    ),
)
@click.argument("group", shell_complete=completion.groups)
@click.argument("topic", shell_complete=completion.topics)
@click.argument("command", metavar="COMMAND…", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--jobs", metavar="N", type=click.IntRange(1, 100), default=1, show_default=True, help="Runs at a time."
)
@click.option("--drain", is_flag=True, help="End when there is no record left, in place of waiting for more.")
@place_option
def work(group: str, topic: str, *, command: tuple[str, ...], jobs: int, drain: bool, place: Place) -> None:
    """Take records of TOPIC one by one as GROUP, a queue (share group), and run COMMAND for each.

    The record's value is on its standard input; TOPICFS_KEY, TOPICFS_OFFSET, TOPICFS_PARTITION, TOPICFS_TOPIC,
    TOPICFS_TIMESTAMP and TOPICFS_HEADERS are in its environment. Exit status 0 accepts the record, 65 rejects it for good, any other
    gives it back: it is delivered again, five times in all. What a worker held that died is delivered again at once.

    While a daemon owns the directory this works through its mount, so that any number of workers share a queue.
    """
    failures: list[Exception] = []
    with _sources(place, group, topic, waits=not drain) as new_source:
        threads = [
            threading.Thread(target=_work, args=(new_source, command, failures), daemon=True)
            for _ in range(jobs)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


@contextmanager
def _sources(place: Place, group: str, topic: str, *, waits: bool) -> Iterator[Callable[[], JobSource]]:
    """Give what opens a session: of the daemon's mount, or of an engine of one's own."""
    mountpoint = serving_mount(place)
    if mountpoint is not None:
        with suppress(FileExistsError):
            (mountpoint / "@groups" / group).mkdir()
        if not (mountpoint / topic).is_dir():
            raise StorageError(f"{topic}: no such topic")
        yield lambda: MountJobs(mountpoint, group, topic, waits=waits)
        return
    with place.opened_for_writing(through_mount=f"topicfs work {group} {topic}") as engine:
        engine.topic(topic)
        if engine.share_groups.unavailable is not None:
            raise StorageError(f"{group}: {engine.share_groups.unavailable}")
        yield lambda: EngineJobs(engine, group, topic, waits=waits)


def _work(new_source: Callable[[], JobSource], command: Sequence[str], failures: list[Exception]) -> None:
    try:
        with closing(new_source()) as source:
            while (job := source.take()) is not None:
                _do(source, job, command)
    except (StorageError, OSError) as error:
        failures.append(error)


def _do(source: JobSource, job: Job, command: Sequence[str]) -> None:
    done = subprocess.run(  # noqa: S603 - what the user gives is what is run
        command, input=job.value, env={**os.environ, **job.environment()}, check=False
    )
    word = {0: Acknowledgement.ACCEPT, REJECTS: Acknowledgement.REJECT}.get(
        done.returncode, Acknowledgement.RELEASE
    )
    if word is not Acknowledgement.ACCEPT:
        fate = "rejected" if word is Acknowledgement.REJECT else "given back"
        say(f"topicfs: {job.place}: exit status {done.returncode}: {fate}", error=True)
    try:
        source.settle(job, word)
    except (RecordNotHeldError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ESTALE:
            raise
        say(f"topicfs: {job.place}: held too long, and another's by now", error=True)
