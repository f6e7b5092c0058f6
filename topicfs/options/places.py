"""The options and arguments that name places on the command line: `--data`, `--without` and `--client-config`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from topicfs import data_directory, places
from topicfs.callers import completion
from topicfs.cluster.place import AddressError, ClusterAddress, cluster_address
from topicfs.data_directory import PlaceError
from topicfs.lines import say
from topicfs.places import Place, security_of

if TYPE_CHECKING:
    from topicfs.cluster.protocol.security import Security

Command = TypeVar("Command", bound=Callable[..., Any])
Named = TypeVar("Named")

DEFAULT_DIRECTORY = "data"
VARIABLE = "TOPICFS_DATA"
CLUSTER_METAVAR = "kafka://HOST:PORT[,HOST:PORT]"


def _typed(parse: Callable[[str], Named], text: str) -> Named:
    try:
        return parse(text)
    except (AddressError, PlaceError) as error:
        raise click.BadParameter(str(error)) from None


def parse_directories(text: str) -> tuple[Path, ...]:
    """Read `DIR1,DIR2` (click.BadParameter)."""
    return _typed(data_directory.parse_directories, text)


def parse_cluster(text: str) -> ClusterAddress:
    """Read a cluster's address (click.BadParameter)."""
    return _typed(cluster_address, text)


def parse_place(text: str) -> Place:
    """Read `DIR[,DIR]` or a cluster's address (click.BadParameter)."""
    return _typed(places.parse_place, text)


def option_of_data(
    name: str, parse: Callable[[str], object], *, metavar: str, text: str
) -> Callable[[Command], Command]:
    """Return the option `--data` for the parameter `name`. Its default is from the environment, else `./data`; `text` is its help."""
    return click.option(
        "--data",
        "-d",
        name,
        type=parse,
        default=DEFAULT_DIRECTORY,
        envvar=VARIABLE,
        show_default=True,
        show_envvar=True,
        metavar=metavar,
        shell_complete=completion.directory_option,
        help=text,
    )


def data_option(command: Command) -> Command:
    """Add `--data DIR[,DIR]` to a command: `directories`."""
    text = "Data directory, or several (or a broker's log.dirs, to read)."
    return option_of_data("directories", parse_directories, metavar="DIR[,DIR]", text=text)(command)


def data_argument(command: Command) -> Command:
    """Add `[DIR[,DIR]]` to a command that takes nothing else, with the same defaults: `directories`."""
    return click.argument(
        "directories",
        metavar="[DIR[,DIR]]",
        type=parse_directories,
        default=DEFAULT_DIRECTORY,
        envvar=VARIABLE,
    )(command)


without_option = click.option(
    "--without",
    metavar="DIR",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A directory with replicas that is not waited for, for example a lost disk.",
)


_WITHOUT_MEANING = {
    "replica.lag.time.max.ms": " (a disk that hangs is waited for; one that fails is left out at once)"
}
"""What happens instead, for settings of which a user may rely on the effect."""


def warn_of_ignored(path: Path, ignored: list[str]) -> None:
    """Print once, on standard error, the names in the file that have no meaning here."""
    if ignored:
        names = ", ".join(name + _WITHOUT_MEANING.get(name, "") for name in ignored)
        say(f"topicfs: {path}: without meaning here: {names}", error=True)


def checked_security(client_config: Path | None) -> Security:
    """Read how connections are secured, and say once what has no meaning here. Raises StorageError, OSError."""
    security = security_of(client_config)
    if client_config is not None:
        warn_of_ignored(client_config, list(security.ignored))
    return security


client_config_option = click.option(
    "--client-config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Settings of the connection, by the names of Kafka's Java clients: security.protocol, ssl.*, sasl.*.",
)


def place_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--data DIR[,DIR]|kafka://HOST:PORT` and `--client-config FILE` to a command: `place`."""

    @functools.wraps(command)
    def with_place(*arguments: Any, place: Place, client_config: Path | None, **options: Any) -> None:
        if client_config is not None and place.cluster is None:
            raise click.UsageError("--client-config is for a cluster: --data kafka://HOST:PORT")
        checked_security(client_config)
        given = Place(place.directories, place.cluster, client_config)
        command(*arguments, place=given, **options)

    text = (
        f"Data directory, or several (a broker's log.dirs, to read alone); or a cluster: {CLUSTER_METAVAR}."
    )
    option = option_of_data("place", parse_place, metavar="DIR[,DIR]", text=text)
    return option(client_config_option(with_place))
