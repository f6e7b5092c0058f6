"""Options and arguments shared by several commands: for places of topics, such as `--data`, and for schemas."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from topicfs import data_directory, places
from topicfs.callers import completion
from topicfs.cluster.place import AddressError, ClusterAddress, cluster_address
from topicfs.data_directory import PlaceError
from topicfs.lines import say
from topicfs.places import Place, security_of
from topicfs.schemas.places import SchemaPlaces
from topicfs.storage.errors import InvalidConfigError

if TYPE_CHECKING:
    from topicfs.cluster.protocol.security import Security
    from topicfs.listener.address import Endpoint
    from topicfs.listener.listener import ListenerOptions

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
    """Parse `DIR1,DIR2`. Raises click.BadParameter."""
    return _typed(data_directory.parse_directories, text)


def parse_cluster(text: str) -> ClusterAddress:
    """Parse a cluster's address. Raises click.BadParameter."""
    return _typed(cluster_address, text)


def parse_place(text: str) -> Place:
    """Parse `DIR[,DIR]` or a cluster's address. Raises click.BadParameter."""
    return _typed(places.parse_place, text)


def option_of_data(
    name: str, parse: Callable[[str], object], *, metavar: str, text: str
) -> Callable[[Command], Command]:
    """Return a decorator that adds `--data` with the help `text`. The default is from the environment, or `./data`."""
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
    """Add `--data DIR[,DIR]` to a command, which gets `directories`."""
    text = "Data directory, or several (or a broker's log.dirs, to read)."
    return option_of_data("directories", parse_directories, metavar="DIR[,DIR]", text=text)(command)


def data_argument(command: Command) -> Command:
    """Add the argument `[DIR[,DIR]]`, with the defaults of `--data`, as the parameter `directories` of a command."""
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
    help="A replica directory to ignore, for example of a lost disk.",
)


_WITHOUT_MEANING = {
    "replica.lag.time.max.ms": " (a hanging disk is waited for; a failed one is dropped immediately)"
}
"""Notes by name of the setting, for users who may rely on a setting that has no effect here."""


def warn_of_ignored(path: Path, ignored: list[str]) -> None:
    """Print once, on standard error, the names of the settings in a file that have no effect here."""
    if ignored:
        names = ", ".join(name + _WITHOUT_MEANING.get(name, "") for name in ignored)
        say(f"topicfs: {path}: settings without effect here: {names}", error=True)


def checked_security(client_config: Path | None) -> Security:
    """Read the security settings of connections; warn once of settings without effect. Raises StorageError, OSError."""
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
    """Add `--data DIR[,DIR]|kafka://HOST:PORT` and `--client-config FILE` to a command, which gets `place`."""

    @functools.wraps(command)
    def with_place(*arguments: Any, place: Place, client_config: Path | None, **options: Any) -> None:
        if client_config is not None:
            if place.cluster is None:
                raise click.UsageError("--client-config is for a cluster: --data kafka://HOST:PORT")
            checked_security(client_config)
        given = Place(place.directories, place.cluster, client_config)
        command(*arguments, place=given, **options)

    text = (
        f"Data directory, or several (a broker's log.dirs, to read alone); or a cluster: {CLUSTER_METAVAR}."
    )
    option = option_of_data("place", parse_place, metavar="DIR[,DIR]", text=text)
    return option(client_config_option(with_place))


CREDENTIALS = "TOPICFS_SCHEMA_REGISTRY_AUTH"
"""Name of the environment variable with USER:PASSWORD."""


def schema_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--schema-dir`, `--schema-registry` and `--schema-registry-auth` to a command, which gets `schemas`."""

    @functools.wraps(command)
    def with_schemas(
        *arguments: Any,
        schema_dir: Path | None,
        schema_registry: str | None,
        schema_registry_auth: Path | None,
        **options: Any,
    ) -> None:
        credentials = _credentials(schema_registry_auth)
        if schema_registry is None and schema_registry_auth is not None:
            raise click.UsageError("--schema-registry-auth needs a registry: --schema-registry URL")
        places = SchemaPlaces(
            directory=None if schema_dir is None else schema_dir.absolute(),
            registry=None if schema_registry is None else _checked(schema_registry),
            credentials=None if schema_registry is None else credentials,
        )
        command(*arguments, schemas=places, **options)

    directory = click.option(
        "--schema-dir",
        metavar="DIR",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="Schemas of payloads as files: 12.avsc, 12.proto.  [default: those of the topic _schemas]",
    )
    registry = click.option(
        "--schema-registry", metavar="URL", help="A schema registry, for all schemas found nowhere else."
    )
    credentials = click.option(
        "--schema-registry-auth",
        metavar="FILE",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help=f"A file with the line USER:PASSWORD for the registry; alternatively ${CREDENTIALS} has it.",
    )
    return directory(registry(credentials(with_schemas)))


def listener_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--listen` and the options that need it to a command, which gets `listener` (None without `--listen`)."""

    @functools.wraps(command)
    def with_listener(
        *arguments: Any, listen: str | None, advertise: str | None, listen_any: bool, **options: Any
    ) -> None:
        files = {name: options.pop(name) for name in _SECURITY_FILES}
        given = [f"--{name.replace('_', '-')}" for name, path in files.items() if path is not None]
        given += [name for name, value in (("--advertise", advertise), ("--listen-any", listen_any)) if value]
        if listen is None and given:
            raise click.UsageError(f"{' and '.join(given)}: also give an address with --listen HOST:PORT")
        found = None if listen is None else _listener(listen, advertise, files, any_address=listen_any)
        command(*arguments, listener=found, **options)

    for option in reversed(_LISTENER_OPTIONS):
        with_listener = option(with_listener)
    return with_listener


_FILE = click.Path(path_type=Path)
_LISTENER_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.option(
        "--listen",
        metavar="HOST:PORT",
        help="Serve Kafka clients at this address, such as 127.0.0.1:9092; port 0 means any free port.",
    ),
    click.option(
        "--advertise",
        metavar="HOST:PORT",
        help="The address given to clients (a broker's advertised.listeners).  [default: that of --listen]",
    ),
    click.option(
        "--tls-certificate",
        metavar="FILE",
        type=_FILE,
        help="Encrypt connections with TLS: a PEM file with the listener's certificate chain.",
    ),
    click.option(
        "--tls-key",
        metavar="FILE",
        type=_FILE,
        help="The key of the certificate, as PEM without a password.  [default: in the certificate's file]",
    ),
    click.option(
        "--tls-client-ca",
        metavar="FILE",
        type=_FILE,
        help="Accept only clients with a certificate of this authority, whose own certificate is in the PEM file.",
    ),
    click.option(
        "--listen-users",
        metavar="FILE",
        type=_FILE,
        help="Accept only these users, with their passwords, by SASL; `topicfs listener-user` makes lines of the file.",
    ),
    click.option(
        "--listen-any",
        is_flag=True,
        help="Even without TLS or a file of users, allow an address that other machines can reach: anybody can then "
        "read, write and delete every topic.",
    ),
)
_SECURITY_FILES = ("tls_certificate", "tls_key", "tls_client_ca", "listen_users")


def _listener(
    listen: str, advertise: str | None, files: Mapping[str, Path | None], *, any_address: bool
) -> ListenerOptions:
    """Return the options of a listener. An invalid address is a usage error."""
    from topicfs.listener.address import parse_endpoint
    from topicfs.listener.errors import ListenerError
    from topicfs.listener.listener import ListenerOptions
    from topicfs.listener.security.files import SecurityFiles

    certificate, key, client_authority, users = (path and path.absolute() for path in files.values())
    if certificate is None and (key or client_authority):
        raise click.UsageError("--tls-key and --tls-client-ca need a certificate: --tls-certificate FILE")
    security = SecurityFiles(certificate=certificate, key=key, client_authority=client_authority, users=users)

    def endpoint(option: str, text: str) -> Endpoint:
        try:
            return parse_endpoint(text)
        except ListenerError as error:
            raise click.BadParameter(str(error), param_hint=f"'{option}'") from None

    return ListenerOptions(
        endpoint=endpoint("--listen", listen),
        advertised=None if advertise is None else endpoint("--advertise", advertise),
        any_address=any_address,
        security=security,
    )


def _checked(url: str) -> str:
    """Return the URL of a registry. An invalid URL is a usage error."""
    from topicfs.schemas.sources.registry import checked_url

    try:
        return checked_url(url)
    except InvalidConfigError as error:
        raise click.BadParameter(str(error), param_hint="'--schema-registry'") from None


def _credentials(file: Path | None) -> str | None:
    """Read USER:PASSWORD. Raises InvalidConfigError if it is invalid."""
    text = os.environ.get(CREDENTIALS) if file is None else file.read_text(encoding="utf-8").strip("\n")
    if text is not None and (":" not in text or "\n" in text):
        raise InvalidConfigError(f"{CREDENTIALS if file is None else file}: no line USER:PASSWORD")
    return text
