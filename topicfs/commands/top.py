"""`topicfs top`: shows the activity in the topics of a mount, a directory or a cluster."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from topicfs.examples import ExampleCommand
from topicfs.lines import say
from topicfs.options import DEFAULT_DIRECTORY, VARIABLE, checked_security, client_config_option, parse_place
from topicfs.places import Place
from topicfs.storage.errors import StorageError
from topicfs.storage.messages import reason_of
from topicfs.terminal import console, is_terminal

if TYPE_CHECKING:
    from topicfs.top.samples import TopSource
    from topicfs.top.screen import TopScreen

TABLE_COLUMNS = 200
"""Width of the table if there is no terminal."""


@click.command(
    cls=ExampleCommand,
    examples="""
        topicfs top ./mnt  # the topics of a mount, and the programs that have them open
        topicfs top ./data  # of a data directory: through its mount if there is one
        topicfs top kafka://localhost:9092  # of a cluster
        topicfs top --once ./mnt  # one table, with rates over two seconds
        topicfs top --json ./mnt | jq .topics  # for programs
    """,
)
@click.argument(
    "place",
    metavar="[MOUNTPOINT|DIR[,DIR]|kafka://HOST:PORT]",
    type=parse_place,
    default=DEFAULT_DIRECTORY,
    envvar=VARIABLE,
)
@client_config_option
@click.option("--once", is_flag=True, help="Print one table and end; the default without a terminal.")
@click.option("--json", "as_program", is_flag=True, help="Print one JSON object and end.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two samples.",
)
def top(place: Place, *, client_config: Path | None, once: bool, as_program: bool, interval: float) -> None:
    """Show topics with records and bytes per second, ends, sizes and lag, the busiest first.

    The groups with the largest lag and the busiest Kafka clients (of a mount with --listen) are shown below the
    topics. Enter opens a topic: its partitions, groups, writers and readers. Keys sort (n by name, r records/s, b
    bytes/s, e ends, s sizes, l lag), / filters by a part of the name, ? shows all keys, q quits.
    """
    checked_security(client_config)
    source = source_of(Place(place.directories, place.cluster, client_config))
    if once or as_program or not (is_terminal() and sys.stdin.isatty()):
        _print_once(source, interval, as_program=as_program)
    else:
        _watch(source, interval)


def source_of(place: Place) -> TopSource:
    """Return the source for a place: a mount (also for a directory that a daemon has mounted), or the place itself."""
    from topicfs.groups.location import serving_mount
    from topicfs.top.engine_source import EngineSource
    from topicfs.top.mount_source import MountSource

    if place.cluster is not None:
        return EngineSource(place, str(place.cluster))
    if len(place.directories) == 1 and (place.directories[0] / "@status").is_file():
        return MountSource(place.directories[0])
    mountpoint = serving_mount(place)
    if mountpoint is not None:
        return MountSource(mountpoint)
    return EngineSource(place, ",".join(map(str, place.directories)))


def _print_once(source: TopSource, interval: float, *, as_program: bool) -> None:
    from topicfs.top.samples import client_rows, rows_of
    from topicfs.top.screen import clients_of, table_of

    before = source.sample()
    time.sleep(interval)
    now = source.sample()
    rows, clients = rows_of(now, before), client_rows(now, before)
    if as_program:
        content = {
            "place": source.name,
            "topics": [asdict(row) for row in rows],
            "disks": [asdict(one) for one in now.disks],
            "clients": [asdict(row) for row in clients],
        }
        click.echo(json.dumps(content, ensure_ascii=False))
        return
    rows.sort(key=lambda row: -(row.records_per_second or 0))
    width = shutil.get_terminal_size().columns if is_terminal() else TABLE_COLUMNS
    for line in now.notes:
        say(f"topicfs: {line}", error=True)
    screen = console()
    with screen.capture() as captured:
        screen.print(table_of(rows, width=width))
        if clients:
            screen.print("", clients_of(clients, width=width))
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _watch(source: TopSource, interval: float) -> None:
    from rich.live import Live

    from topicfs.top.samples import TopSample, client_rows, rows_of
    from topicfs.top.screen import TopScreen
    from topicfs.top.terminal_keys import TerminalKeys

    screen, terminal = TopScreen(source.name), console()
    before: TopSample | None = source.sample()  # Report an invalid place before taking over the screen.
    assert before is not None
    screen.show(before, rows_of(before, None), client_rows(before, None))
    samples: list[TopSample | Exception] = []
    loaded: str | None = None
    ended, wanted = threading.Event(), threading.Event()

    def look() -> None:
        pause = interval
        while not ended.wait(pause):
            began = time.monotonic()
            try:
                samples.append(source.sample())
            except Exception as error:  # noqa: BLE001 - whatever it is, the screen tells it, and looks again
                samples.append(error)
            wanted.set()
            # Sampling takes at most a fifth of the time, so slow sampling is done less often.
            pause = max(interval, 4 * (time.monotonic() - began))

    threading.Thread(target=look, name="look", daemon=True).start()
    with (
        TerminalKeys(sys.stdin.fileno()) as keys,
        Live(console=terminal, screen=True, auto_refresh=False) as live,
    ):
        try:
            while not screen.ended:
                while samples:
                    found = samples.pop(0)
                    if isinstance(found, Exception):
                        screen.problem = reason_of(found)
                    else:
                        screen.show(found, rows_of(found, before), client_rows(found, before))
                        before, loaded = found, None
                if screen.opened != loaded:
                    loaded = screen.opened
                    _load(source, screen)
                live.update(screen.render(terminal.width, terminal.height), refresh=True)
                key = keys.next(0.2)
                if key is not None:
                    screen.press(key)
        except (EOFError, KeyboardInterrupt):
            pass
        finally:
            ended.set()


def _load(source: TopSource, screen: TopScreen) -> None:
    """Load the partitions of the opened topic. The screen shows an error in one line."""
    try:
        if screen.opened is not None:
            screen.show_partitions(source.partitions(screen.opened), time.monotonic())
    except (StorageError, OSError) as error:
        screen.problem = reason_of(error)
