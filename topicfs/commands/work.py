"""`topicfs work`: runs a command once for each record of a queue."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial

import click

from topicfs.callers import completion
from topicfs.coordination.share_groups import Acknowledgement
from topicfs.examples import ExampleCommand
from topicfs.groups.jobs import EngineJobs, Job, JobSource, MountJobs
from topicfs.groups.location import serving_mount
from topicfs.lines import say
from topicfs.options import place_option
from topicfs.paths import check_group_name
from topicfs.places import Place
from topicfs.storage.errors import RecordNotHeldError, StorageError
from topicfs.storage.messages import reason_of

REJECTS = 65
"""Exit status (EX_DATAERR) with which a command rejects its record permanently."""

GIVEN_UP = 3
"""Exit status of `topicfs work` if records were rejected."""

FIRST_RENEWAL_SECONDS = 0.3
"""Time until the first renewal: a third of the shortest possible lease. Commands that end earlier need no renewal."""

RECONNECT_SECONDS = 0.5
DISCONNECTED = frozenset({errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV})
Reconnect = Callable[[OSError], bool]

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(
    cls=ExampleCommand,
    context_settings={"ignore_unknown_options": True},
    examples="""
        topicfs work jobs orders -- ./charge  # one run per record, with its value on standard input
        # four at a time
        topicfs work jobs orders --jobs 4 -- sh -c 'curl -fsS -d @- https://example.org/$TOPICFS_KEY'
        topicfs work jobs orders --drain -- wc -c  # until nothing is left
    """,
)
@click.argument("group", shell_complete=completion.queues)
@click.argument("topic", shell_complete=completion.topics)
@click.argument("command", metavar="COMMAND…", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Number of commands that run at a time.",
)
@click.option("--drain", is_flag=True, help="End when no record is left, instead of waiting for more.")
@place_option
def work(group: str, topic: str, *, command: tuple[str, ...], jobs: int, drain: bool, place: Place) -> None:
    """Take records of TOPIC one by one as GROUP, a queue (share group), and run COMMAND for each record.

    COMMAND gets the record's value on its standard input, and TOPICFS_KEY, TOPICFS_OFFSET, TOPICFS_PARTITION,
    TOPICFS_TOPIC, TOPICFS_TIMESTAMP and TOPICFS_HEADERS in its environment, except a key or headers that are too
    large for it. Exit status 0 accepts the record, 65 rejects it permanently, and any other status releases it: the
    record is delivered again, up to five times in all, and then rejected. The record is leased to COMMAND for as long
    as COMMAND runs. If a worker is killed, its records are delivered again immediately.

    While a daemon owns the directory, this command works through its mount, so that any number of workers share a
    queue. If the daemon ends, the worker waits for the next daemon. After SIGTERM or Ctrl-C, running commands finish
    first; a second signal also ends the running commands. The exit status is 3 if records were rejected.
    """
    with _sources(place, group, topic, waits=not drain) as (new_source, reconnect):
        workers = Workers(new_source, reconnect, command)
        interrupted = workers.run(jobs)
        if workers.failures:
            raise workers.failures[0]
    if interrupted:
        raise KeyboardInterrupt
    if workers.has_rejected:
        raise click.exceptions.Exit(GIVEN_UP)


@contextmanager
def _sources(
    place: Place, group: str, topic: str, *, waits: bool
) -> Iterator[tuple[Callable[[], JobSource], Reconnect]]:
    """Yield two functions: the first opens a session, the second reconnects after an error.

    A session uses the daemon's mount or, if no daemon owns the directory, an engine in this process.
    """
    mountpoint = serving_mount(place)
    if mountpoint is not None:
        check_group_name(group)
        if not (mountpoint / topic).is_dir():
            raise StorageError(f"{topic}: no such topic")
        if (mountpoint / "@groups" / group).is_dir():
            raise StorageError(f"{group}: is a consumer group; choose another name for the queue")
        (mountpoint / "@queues" / group).mkdir(exist_ok=True)

        def open_mount() -> JobSource:
            found = serving_mount(place)
            if found is None:
                raise OSError(errno.ENOTCONN, "no daemon serves the directory")
            return MountJobs(found, group, topic, waits=waits)

        yield open_mount, partial(_wait_for_daemon, place)
        return
    with place.opened_for_writing(
        through_mount=f"topicfs work {group} {topic}", through_listener=""
    ) as engine:
        engine.topic(topic)
        if engine.share_groups.unavailable is not None:
            raise StorageError(f"{group}: {engine.share_groups.unavailable}")
        yield partial(EngineJobs, engine, group, topic, waits=waits), lambda _error: False


def _wait_for_daemon(place: Place, error: OSError) -> bool:
    """Wait until a daemon serves the directory again; return False if `error` does not mean that the daemon ended."""
    if error.errno not in DISCONNECTED and serving_mount(place) is not None:
        return False
    say(f"topicfs: {reason_of(error)}: waiting for a daemon to serve the directory again", error=True)
    while serving_mount(place) is None:
        time.sleep(RECONNECT_SECONDS)  # A starting daemon sends no notification.
    return True


class Workers:
    """Threads that take records and run the command for each record. Used once, by the main thread."""

    def __init__(
        self, new_source: Callable[[], JobSource], reconnect: Reconnect, command: Sequence[str]
    ) -> None:
        self._new_source = new_source
        self._reconnect = reconnect
        self._command = command
        self._lock = threading.Lock()
        self._running: dict[int, subprocess.Popen[bytes] | None] = {}
        """The running command of each thread; None while the thread holds a record whose command has not started."""
        self._stopping = False
        self._alive = 0
        self._signaled = False
        self._interrupted = False
        self._heard, self._tell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        """One byte per event: a signal's number when it arrives; 0 means that a worker has ended."""
        self.failures: list[Exception] = []
        self.has_rejected = False

    def run(self, jobs: int) -> bool:
        """Work with `jobs` threads until all have ended; return whether Ctrl-C ended them.

        After a signal, or after a thread fails, no new record is started, and running commands finish. From the end
        of this method on, signals are ignored, so that the exit status is reliable.
        """
        handlers = {number: signal.getsignal(number) for number in ENDINGS}
        before = signal.set_wakeup_fd(self._tell)
        for number in ENDINGS:
            if handlers[number] is not signal.SIG_IGN:  # nohup ignores SIGHUP.
                signal.signal(number, lambda _number, _frame: None)
        self._alive = jobs
        heard = select.poll()  # select(2) cannot handle descriptors above 1,023.
        heard.register(self._heard, select.POLLIN)
        try:
            for _ in range(jobs):
                threading.Thread(target=self._work, daemon=True).start()
            # Do not join the threads: a thread may still wait for a record or for a daemon.
            while self._alive and not (self._stopping and not self._running):
                heard.poll()
                with self._lock:
                    self._heed()
        finally:
            signal.set_wakeup_fd(before)
            for number, handler in handlers.items():
                signal.signal(number, signal.SIG_IGN if self._signaled else handler)
        return self._interrupted

    def _heed(self) -> bool:
        """Handle all events that have arrived; return whether no new record should be started. Called with the lock."""
        with suppress(BlockingIOError):
            for number in os.read(self._heard, 4096):
                if number and number not in ENDINGS:
                    continue
                if number == 0:
                    self._alive -= 1
                elif self._stopping:
                    for process in filter(None, self._running.values()):
                        process.terminate()
                self._stopping = self._stopping or number != 0 or bool(self.failures)
                self._signaled = self._signaled or number != 0
                self._interrupted = self._interrupted or number == signal.SIGINT
        return self._stopping

    def _work(self) -> None:
        try:
            while not self._stopping:
                try:
                    with closing(self._new_source()) as source:
                        self._take_all(source)
                except OSError as error:
                    if self._stopping or not self._reconnect(error):
                        raise
                else:
                    return
        except (StorageError, OSError) as error:
            self.failures.append(error)
        finally:
            os.write(self._tell, b"\0")

    def _take_all(self, source: JobSource) -> None:
        while not self._stopping and (job := source.take()) is not None:
            with self._lock:
                if self._heed():
                    return
                self._running[threading.get_ident()] = None
            try:
                self._do(source, job)
            finally:
                with self._lock:
                    del self._running[threading.get_ident()]

    def _do(self, source: JobSource, job: Job) -> None:
        with _started(self._command, job) as process:
            self._running[threading.get_ident()] = process
            _feed(process, source, job)
        word = {0: Acknowledgement.ACCEPT, REJECTS: Acknowledgement.REJECT}.get(
            process.returncode, Acknowledgement.RELEASE
        )
        try:
            given_up = source.acknowledge(job, word)
        except (RecordNotHeldError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ESTALE:
                raise
            say(
                f"topicfs: {job.record_name}: the lease expired, and another worker has the record",
                error=True,
            )
            return
        self.has_rejected = self.has_rejected or given_up
        if word is not Acknowledgement.ACCEPT:
            fate, status = "rejected" if given_up else "given back", process.returncode
            end = f"exit status {status}" if status >= 0 else f"ended by signal {-status}"
            say(f"topicfs: {job.record_name}: {end}: {fate}", error=True)


def _started(command: Sequence[str], job: Job) -> subprocess.Popen[bytes]:
    """Start the command; a key or headers too large for its environment are left out."""
    told = job.environment()
    optional = [name for name in ("TOPICFS_HEADERS", "TOPICFS_KEY") if name in told]
    while True:
        try:
            return subprocess.Popen(  # noqa: S603 - what the user gives is what is run
                command, stdin=subprocess.PIPE, env={**os.environ, **told}
            )
        except OSError as error:
            if error.errno != errno.E2BIG or not optional:
                raise
            name = max(optional, key=lambda one: len(told[one]))
            optional.remove(name)
            say(
                f"topicfs: {job.record_name}: {name} is left out because of its size: {len(told.pop(name))} characters",
                error=True,
            )


def _feed(process: subprocess.Popen[bytes], source: JobSource, job: Job) -> None:
    """Pass a record to a command and wait for its end, renewing the lease meanwhile."""
    value: bytes | None = job.value
    seconds = FIRST_RENEWAL_SECONDS
    while process.returncode is None:
        try:
            process.communicate(value, timeout=seconds)
        except subprocess.TimeoutExpired:
            value = None
            with suppress(StorageError, OSError):  # Acknowledging the record reports the error.
                seconds = source.renew(job) / 3
