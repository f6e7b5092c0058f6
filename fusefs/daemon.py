"""The daemon of a mount: opens the engine, mounts, serves until a signal or an unmount, and shuts down cleanly."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property, partial
from typing import TYPE_CHECKING

import pyfuse3
import trio

from topicfs.coordination.engine import Engine
from topicfs.fusefs.appending.handle import Appending
from topicfs.fusefs.appending.linger_buffer import LingerBuffer, RemoteLingerBuffer
from topicfs.fusefs.appending.partitioners import partitioner_factory
from topicfs.fusefs.files.status import engine_lines
from topicfs.fusefs.filesystem import TopicFileSystem
from topicfs.fusefs.following.waiting_reads import Program, WaitingReads
from topicfs.fusefs.metrics import table
from topicfs.fusefs.mounting.background import Readiness, run_in_background
from topicfs.fusefs.mounting.daemon_log import begin_log
from topicfs.fusefs.mounting.limits import keep_freed_memory, raise_open_files, raise_read_ahead
from topicfs.fusefs.mounting.mountpoint import LastWords, mountpoint_of, prepare, unmount
from topicfs.fusefs.mounting.options import MountOptions
from topicfs.fusefs.mounting.service_manager import ServiceManager
from topicfs.fusefs.mounting.settings_reload import SettingsReload
from topicfs.fusefs.mounting.stacks import describe_stacks
from topicfs.fusefs.mounting.system_mount import mount
from topicfs.fusefs.mounting.system_mount import unmount as unmount_ours
from topicfs.fusefs.nodes.context import MountContext, Settings, Shared
from topicfs.fusefs.nodes.decoded_forms import DecodedForms
from topicfs.fusefs.nodes.view_measurer import ViewMeasurer
from topicfs.fusefs.operations import Operations
from topicfs.fusefs.processes.open_descriptors import holds
from topicfs.fusefs.reports import Reports
from topicfs.fusefs.requests.loop import RequestLoop
from topicfs.fusefs.requests.notifications import KernelNotifications
from topicfs.fusefs.requests.request_counts import RequestCounts
from topicfs.fusefs.threads.blocking_calls import BlockingCalls
from topicfs.fusefs.threads.remote import RemoteCalls
from topicfs.fusefs.views.view_file import ViewStore
from topicfs.listener.address import Endpoint
from topicfs.replication import open_directories
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.engine import Partition
from topicfs.storage.errors import DirectoryLockedError, StorageError
from topicfs.storage.messages import reason_of

if TYPE_CHECKING:
    from topicfs.fusefs.metrics.collector import MetricsCollector
    from topicfs.fusefs.metrics.server import MetricsServer
    from topicfs.listener.listener import Listener, ListenerOptions

__all__ = ["MountOptions", "run", "unmount"]

_LOGGER = logging.getLogger("topicfs")

IDLE_PYFUSE3_TASKS = 8
"""Idle pyfuse3 tasks kept for the next uncommon request."""
MAX_WAITING_REQUESTS = 1000
"""Maximum number of uncommon requests that may wait at a time."""

OWNER_PATIENCE_SECONDS = 2.0
"""How long the daemon tries to lock a data directory that another process owns."""
OWNER_PAUSE_SECONDS = 0.02
"""Pause between two attempts to lock the data directory."""

ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that end the daemon cleanly: the daemon answers waiting reads, unmounts, and closes the engine.

If the daemon has settings to reload, SIGHUP reloads them instead, unless SIGHUP means that the terminal is gone.
"""

LONGEST_SOURCE = 1000
"""Maximum length of the mount's source.

fusermount3 accepts one memory page for all options together, and the source is one of them.
"""

MAINTENANCE_SECONDS = 0.5
"""Time between two checks for due duties of the engine."""
MAINTENANCE_TASKS = 2
"""Number of threads that run duties: while a thread runs a long compaction, the other thread runs all other duties."""


def run(options: MountOptions) -> int:
    """Mount and serve; return the exit status. In the background, the parent returns as soon as the mount is ready.

    If mounting fails, the reason is printed on standard error in one line.
    """
    try:
        word = prepare(options.mountpoint, options.directories, nonempty=options.nonempty)
        partitioner_factory(options.partitioner)
    except (StorageError, OSError) as error:
        Readiness().failed(reason_of(error))
        return 1
    if word is not None:
        Readiness().failed(word)
    if options.foreground:
        return _serve(options, Readiness(), ServiceManager.of_environment())
    return run_in_background(partial(_serve, options))


def _serve(options: MountOptions, readiness: Readiness, manager: ServiceManager | None = None) -> int:
    raise_open_files()
    keep_freed_memory()
    try:
        begin_log(
            options.log_format,
            options.log_file,
            terminal=options.foreground,
            debug=options.debug,
            about={"mountpoint": str(options.mountpoint.absolute()), "topics": _named(options)},
        )
        # Do this only after leaving the terminal: the directory's lock does not survive a fork, and only the
        # daemon should hold the port.
        metrics = None if options.metrics is None else listen(options.metrics)
        listener = None if options.listener is None else bind(options.listener)
        engine = open_when_free(options)
    except (StorageError, OSError) as error:
        readiness.failed(reason_of(error))
        return 1
    status = 1
    for number in ENDINGS:
        # Change the handlers outside the serving loop, so that a second signal does not interrupt closing.
        signal.signal(number, signal.SIG_IGN)
    words = LastWords()
    manager = manager or ServiceManager()
    daemon = _Daemon(options, engine, readiness, words, manager)
    daemon.metrics_server, daemon.listener = metrics, listener
    if listener is not None:
        listener.serve(engine, options.engine or EngineConfig())
    try:
        status = trio.run(daemon.run)
    except Exception as error:
        _LOGGER.exception("the daemon ends")
        readiness.failed(reason_of(error))
    with manager.send_watchdog():
        if listener is not None:
            listener.close()
        lost = [*daemon.lost, *_close(engine, options)]
    words.end(lost)
    if options.foreground:
        for line in lost:
            readiness.failed(line)
    return 1 if lost else status


def listen(address: Endpoint) -> MetricsServer:
    """Listen for Prometheus; only mounts that call this function import Prometheus' library. Raises StorageError."""
    from topicfs.fusefs.metrics.server import MetricsServer

    return MetricsServer(address)


def bind(options: ListenerOptions) -> Listener:
    """Bind the address for Kafka clients; imports the listener's modules only here. Raises ListenerError."""
    from topicfs.listener.listener import Listener

    return Listener(options)


def open_when_free(
    options: MountOptions,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Engine:
    """Open the engine; wait for a short-lived owner, such as a committing pipeline. Raises StorageError, OSError."""
    if options.opens is not None:
        return options.opens()
    deadline = clock() + OWNER_PATIENCE_SECONDS
    while True:
        try:
            return open_directories(
                options.directories,
                read_only=options.read_only,
                config=options.engine,
                replicated=options.replicated,
                left_out=options.left_out,
            )
        except DirectoryLockedError as error:
            if clock() >= deadline:
                served = mountpoint_of(error.holder_pid)
                raise DirectoryLockedError(error.directory, error.holder_pid, served) from None
            sleep(OWNER_PAUSE_SECONDS)


def _close(engine: Engine, options: MountOptions) -> list[str]:
    """Close the engine; return a line for each failure."""
    before = set(engine.warnings)
    failed = []
    try:
        engine.close()
    except (StorageError, OSError) as error:
        # Without the clean-shutdown mark, the next owner runs recovery.
        failed.append(f"{_named(options)}: could not be closed cleanly: {reason_of(error)}")
        _LOGGER.error("%s", failed[0])  # noqa: TRY400 - the text says it all
    else:
        _LOGGER.info("%s: closed", _named(options))
    return [*(line for line in engine.warnings if line not in before), *failed]


class _Daemon:
    """One mount, from the kernel's first request to the last."""

    def __init__(
        self,
        options: MountOptions,
        engine: Engine,
        readiness: Readiness,
        words: LastWords,
        manager: ServiceManager,
    ) -> None:
        self.lost: list[str] = []
        """Failures at the end of the mount. No call of a program can report them any more."""
        self._words = words
        self._options = options
        self._engine = engine
        self._readiness = readiness
        self._manager = manager
        self._started = system_clock()
        self._blocking = RemoteCalls() if engine.remote else BlockingCalls()
        self._reports = Reports(system_clock)
        # Calls to an engine that does not answer may fill the other threads. So the checks of waiting
        # programs have threads of their own.
        looking = BlockingCalls() if engine.remote else self._blocking
        self._waiting = WaitingReads(
            looking, bound=options.max_waiting, owner=options.owner.uid if options.allow_other else None
        )
        self._filesystem: TopicFileSystem | None = None
        self._kernel = KernelNotifications()
        self._loop: RequestLoop | None = None
        self._counts = RequestCounts()
        self.metrics_server: MetricsServer | None = None
        """Answers Prometheus, if configured."""
        self.listener: Listener | None = None
        """Serves Kafka clients, if configured."""
        self._reloading = SettingsReload(
            options.rereads,
            engine,
            options.engine,
            self._reports,
            terminal=options.foreground,
            managed=self._manager.is_there,
        )

    async def run(self) -> int:
        options = self._options
        mountpoint = options.mountpoint.absolute()
        self._filesystem = filesystem = TopicFileSystem(self._context())
        with ExitStack() as ending:
            self._kernel.device = device = mount(
                mountpoint, _source(options), allow_other=options.allow_other, read_only=options.read_only
            )
            ending.callback(unmount_ours, mountpoint, device)
            self._loop = loop = RequestLoop(device, filesystem, options.owner, self._counts)
            operations = Operations(filesystem, self._counts, options.owner, loop.return_answers)
            pyfuse3.init(operations, loop.mountpoint_of_library(), set())
            ending.callback(pyfuse3.close, unmount=False)
            ending.callback(self._kernel.end)
            if self.metrics_server is not None:
                ending.callback(self.metrics_server.close)
            async with filesystem.running(), trio.open_nursery() as nursery:
                await nursery.start(self._watch_signals)
                nursery.start_soon(self._maintain)
                nursery.start_soon(self._became_ready)
                nursery.start_soon(self._tell_alive)
                if self.metrics_server is not None:
                    self.metrics_server.serve(self._collector)
                await loop.run(
                    partial(pyfuse3.main, IDLE_PYFUSE3_TASKS, MAX_WAITING_REQUESTS), self._end_of_requests
                )
                self._manager.stopping("unmounted: flushing to disk")
                told_before = set(self._reports.lines())
                nursery.cancel_scope.cancel()
            self.lost = [line for line in self._reports.lines() if line not in told_before]
        return 0

    def _end_of_requests(self) -> None:
        assert self._filesystem is not None
        self._filesystem.end_waiting()
        pyfuse3.terminate()

    async def _became_ready(self) -> None:
        raise_read_ahead(str(self._options.mountpoint.absolute()))
        _LOGGER.info("%s: mounted at %s", _named(self._options), self._options.mountpoint)
        self._readiness.mounted()
        self._manager.ready(f"{_named(self._options)} at {self._options.mountpoint}")

    async def _tell_alive(self) -> None:
        """Ping the service manager twice per watchdog period, from the event loop."""
        period = self._manager.watchdog_seconds
        while period is not None:
            self._manager.alive()
            await trio.sleep(period / 2)

    def _context(self) -> MountContext:
        options = self._options
        appending = Appending(
            acks=options.acks,
            linger_buffer=LingerBuffer(options.linger_ms),
            blocking=self._blocking,
            reports=self._reports,
            still_held=holds,
            caller=partial(Program, self._waiting) if self._engine.remote else None,
            remote_linger=RemoteLingerBuffer(options.linger_ms, self._blocking, self._reports)
            if self._engine.remote
            else None,
            max_in_flight=options.max_in_flight,
        )
        return MountContext(
            engine=self._engine,
            settings=Settings(
                directories=options.directories,
                isolation=options.isolation,
                allow_delete=options.allow_delete,
            ),
            reports=self._reports,
            clock=system_clock,
            blocking=self._blocking,
            appending=lambda: appending,
            waiting=self._waiting,
            measuring=ViewMeasurer(self._blocking),
            partitioners=partitioner_factory(options.partitioner),
            kernel=self._kernel,
            view_store=_view_stores(read_only=options.read_only),
            status_lines=self._status_lines,
            metrics=self._metrics_text,
            shared=Shared(),
            started=self._started,
            decoding=DecodedForms(partial(options.schemas.catalog, self._engine)),
        )

    @cached_property
    def _collector(self) -> MetricsCollector:
        """The collector of metrics; loads Prometheus' library only here."""
        from topicfs.fusefs.metrics.collector import MetricsCollector, WatchedMount

        mount = WatchedMount(counts=self._counts, gauges=self._gauges, started_ms=self._started)
        return MetricsCollector(self._engine, mount, self.listener)

    def _metrics_text(self) -> str:
        return self._collector.text()

    def _gauges(self) -> dict[table.Metric, int]:
        return {
            table.OPEN_FILES: self._filesystem.open_files if self._filesystem else 0,
            table.WAITING_READS: len(self._waiting),
            table.MAX_WAITING_READS: self._waiting.bound,
        }

    def _status_lines(self) -> list[str]:
        options, waiting = self._options, self._waiting
        return [
            f"pid {os.getpid()}",
            *(f"cluster {place}" for place in [options.place] if place),
            *engine_lines(self._engine),
            f"mountpoint {options.mountpoint.absolute()}",
            f"umount_report {self._words.path}",
            f"acks {options.acks.value}",
            f"linger_ms {options.linger_ms}",
            *(f"max_in_flight {options.max_in_flight}" for _ in [0] if self._engine.remote),
            f"partitioner {options.partitioner}",
            f"isolation {options.isolation.value}",
            *(f"metrics http://{server.address}/metrics" for server in [self.metrics_server] if server),
            *([] if self.listener is None else self.listener.status_lines()),
            f"uptime_s {(system_clock() - self._started) // 1000}",
            f"open_files {self._filesystem.open_files if self._filesystem else 0}",
            f"waiting_reads {len(waiting)} of {waiting.bound}",
            *(f"doing {line}" for line in [self._engine.doing] if line),
            *(f"warning {line}" for line in self._engine.warnings if line),
        ]

    async def _watch_signals(self, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(*ENDINGS, signal.SIGUSR1) as signals:
            task_status.started()
            async with trio.open_nursery() as reloads:
                async for number in signals:
                    if number == signal.SIGUSR1:
                        for line in ["stacks of all threads and tasks:", *describe_stacks().splitlines()]:
                            _LOGGER.warning("%s", line)
                    elif number == signal.SIGHUP and self._reloading.is_asked_for:
                        reloads.start_soon(self._reload)
                    else:
                        break
                reloads.cancel_scope.cancel()
            _LOGGER.info("ends: %s", signal.Signals(number).name)
            self._manager.stopping(f"{signal.Signals(number).name}: unmounting")
            assert self._filesystem is not None
            assert self._loop is not None
            self._filesystem.end_waiting()
            await trio.to_thread.run_sync(self._kernel.end)
            self._loop.end()

    async def _reload(self) -> None:
        """Reload the settings. The daemon may end while the settings are being reloaded."""
        if self.listener is not None:
            self._reloading.applied = self.listener.reconfigure
        with self._manager.reloading():
            await self._blocking.run(self._reloading.reload, abandon=True)

    async def _maintain(self) -> None:
        """Check regularly for due duties of the engine."""
        async with trio.open_nursery() as asking:
            while True:
                await trio.sleep(MAINTENANCE_SECONDS)
                if len(asking.child_tasks) < MAINTENANCE_TASKS:
                    asking.start_soon(self._ask_for_duties)

    async def _ask_for_duties(self) -> None:
        """Run due duties once. A duty that fails is reported, and runs again later."""
        try:
            # If the daemon ends, do not wait for this call: closing the engine stops a compaction.
            await self._blocking.run(lambda: self._engine.maintenance(system_clock()), abandon=True)
        except (StorageError, OSError) as error:
            self._reports.error(_named(self._options), f"maintenance: {reason_of(error)}")
        except Exception:
            _LOGGER.exception("maintenance: unexpected")
            self._reports.error(_named(self._options), "maintenance failed; the log has the traceback")


def _source(options: MountOptions) -> bytes:
    """Return the source that mount(8) and df(1) show."""
    source = os.fsencode(",".join(str(path.absolute()) for path in options.directories) or _named(options))
    return source if len(source) <= LONGEST_SOURCE else b"topicfs"


def _named(options: MountOptions) -> str:
    return options.place or ",".join(map(str, options.directories))


def _view_stores(*, read_only: bool) -> Callable[[Partition], ViewStore | None]:
    """Return a function that gives a partition's view store.

    The store is next to the partition's segments or, with `read_only`, in the user's cache.
    """
    disk = NativeFileSystem()
    make = ViewStore.in_user_cache if read_only else ViewStore
    return lambda partition: None if partition.directory is None else make(partition.directory, disk)
