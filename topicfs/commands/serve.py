"""`topicfs serve`: serves a data directory to Kafka clients; needs no mount."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack, closing, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from topicfs.data_directory import read_config
from topicfs.examples import ExampleCommand
from topicfs.lines import say
from topicfs.options import listener_options, parse_directories, warn_of_ignored
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk.native import system_clock
from topicfs.storage.errors import StorageError

if TYPE_CHECKING:
    from topicfs.listener.address import Endpoint
    from topicfs.listener.listener import ListenerOptions


def _parse_metrics(_context: object, _option: object, given: str | None) -> Endpoint | None:
    from topicfs.fusefs.metrics.address import parse_metrics_address

    try:
        return None if given is None else parse_metrics_address(given)
    except (StorageError, ValueError) as error:
        raise click.BadParameter(str(error)) from None


@click.command(
    cls=ExampleCommand,
    examples="""
        topicfs serve ./data --listen 127.0.0.1:9092  # kcat -b 127.0.0.1:9092 -L shows its topics
        topicfs serve ./data --listen 127.0.0.1:0  # on any free port; the first line shows it
        topicfs serve ./data --listen 127.0.0.1:9092 --config server.properties  # settings by Kafka's names
        # for other machines, over TLS; users.txt has lines of `topicfs listener-user`
        topicfs serve ./data --listen 0.0.0.0:9093 --advertise db:9093 --tls-certificate db.pem --listen-users users.txt
        # in a container whose network is trusted, without TLS and passwords
        topicfs serve ./data --listen 0.0.0.0:9092 --listen-any --advertise broker:9092
    """,
)
@click.argument("directories", metavar="DIR[,DIR]", type=parse_directories)
@listener_options
@click.option(
    "--config", metavar="FILE", type=click.Path(path_type=Path), help="A broker's server.properties."
)
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    callback=_parse_metrics,
    help="Serve metrics to Prometheus at http://HOST:PORT/metrics. Without HOST, only on this machine.",
)
@click.option("--read-only", is_flag=True, help="Change and create nothing: clients can only read.")
def serve(
    directories: tuple[Path, ...],
    *,
    listener: ListenerOptions | None,
    config: Path | None,
    metrics: Endpoint | None,
    read_only: bool,
) -> None:
    """Serve the topics of DIR to Kafka clients at HOST:PORT, until Ctrl-C or SIGTERM.

    Clients see one broker. They create topics, produce, and consume; the files are those that `topicfs mount` shows
    and that a real broker can take over. A missing DIR is created. `topicfs mount --listen` serves clients of a
    mount. Use `--tls-certificate` and `--listen-users` to serve clients on other machines.
    """
    from topicfs.api.server import MAINTENANCE_SECONDS, run_due_duties
    from topicfs.fusefs.mounting.settings_reload import SettingsReload
    from topicfs.fusefs.reports import Reports
    from topicfs.listener.listener import Listener
    from topicfs.replication import open_directories

    if listener is None:
        raise click.UsageError("give an address: --listen 127.0.0.1:9092")
    settings, rereads = EngineConfig(), None
    if config is not None:
        found = read_config(config)
        settings, rereads = found.config, partial(_reread, config)
        warn_of_ignored(config, found.ignored)
    ended, reload_asked = threading.Event(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with ExitStack() as ending:
        metrics_server = None
        if metrics is not None:
            from topicfs.fusefs.metrics.server import MetricsServer

            metrics_server = ending.enter_context(closing(MetricsServer(metrics)))
        serving = ending.enter_context(closing(Listener(listener)))
        engine = open_directories(
            directories, read_only=read_only, config=settings, replicated=settings.replication_factor > 1
        )
        with closing(engine), closing(serving), closing(metrics_server) if metrics_server else nullcontext():
            serving.serve(engine, settings)
            if metrics_server is not None:
                from topicfs.fusefs.metrics.collector import MetricsCollector

                metrics_server.serve(MetricsCollector(engine, listener=serving))
            reloading = SettingsReload(rereads, engine, settings, Reports(system_clock), terminal=True)
            reloading.applied = serving.reconfigure
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores SIGHUP.
                signal.signal(
                    signal.SIGHUP, lambda *_: (reload_asked if reloading.is_asked_for else ended).set()
                )
            say(f"topicfs: {','.join(map(str, directories))} is served at {serving.endpoint}")
            if metrics_server is not None:
                say(f"topicfs: metrics are served at {metrics_server.address}")
            while not ended.wait(MAINTENANCE_SECONDS):
                if reload_asked.is_set():
                    reload_asked.clear()
                    reloading.reload()
                run_due_duties(engine)


def _reread(config: Path) -> EngineConfig:
    """Reload the settings. Raises InvalidConfigError, OSError."""
    return read_config(config).config
