"""`topicfs mount` and `topicfs umount`: show topics as files, and end the mount."""

from __future__ import annotations

import gc
import grp
import pwd
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from topicfs.callers import completion
from topicfs.cluster.place import is_cluster
from topicfs.data_directory import read_config
from topicfs.examples import ExampleCommand
from topicfs.lines import say
from topicfs.main import OFTEN
from topicfs.options import (
    checked_security,
    client_config_option,
    listener_options,
    parse_place,
    schema_options,
    warn_of_ignored,
    without_option,
)
from topicfs.places import Place, open_cluster
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.errors import StorageError
from topicfs.storage.model import Isolation

if TYPE_CHECKING:
    from topicfs.cluster.place import ClusterAddress
    from topicfs.coordination.engine import Engine

_LARGEST_ID = 2**32 - 2
"""Largest user or group ID. For chown(2), the next larger number means "unchanged"."""
_PERMISSIONS = 0o777


class _Account(click.ParamType):  # type: ignore[type-arg] # generic in newer releases alone
    def __init__(self, name: str, number_of: Callable[[str], int]) -> None:
        self.name = name
        self._number_of = number_of

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value.isascii() and value.isdigit():
            if int(value) > _LARGEST_ID:
                self.fail(f"{value}: a {self.name} ID is at most {_LARGEST_ID}", param, ctx)
            return int(value)
        try:
            return self._number_of(value)
        except (KeyError, ValueError):
            self.fail(
                f"{value or repr(value)}: no such {self.name} on this machine; give another name, or a number",
                param,
                ctx,
            )


class _Mask(click.ParamType):  # type: ignore[type-arg] # as above
    """A umask in octal digits, for owner, group and others."""

    name = "mask"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            mask = int(value, 8)
        except ValueError:
            mask = -1
        if not 0 <= mask <= _PERMISSIONS:
            self.fail(f"{value}: not a umask in octal digits, such as 022", param, ctx)
        return mask


USER = _Account("user", lambda name: pwd.getpwnam(name).pw_uid)
GROUP = _Account("group", lambda name: grp.getgrnam(name).gr_gid)
UMASK = _Mask()

CACHE_BYTES = 1 << 30
SMALLEST_CACHE_BYTES = 1 << 24
NEEDS_PYFUSE3 = (
    "mounting needs pyfuse3: pip install 'topicfs[mount]', which compiles it with what these packages have: Debian gcc "
    "pkg-config libfuse3-dev python3-dev fuse3; Fedora gcc pkgconf fuse3-devel python3-devel fuse3; Arch gcc pkgconf fuse3; "
    "Alpine gcc musl-dev linux-headers pkgconf fuse3-dev python3-dev fuse3. Without it there are topicfs append and topicfs cat"
)
"""The error if pyfuse3 is missing. docs/install.md has the same package names; a test compares them."""


@click.command(
    cls=ExampleCommand,
    examples="""
        topicfs mount ./data ./mnt  # ./data keeps the topics (it is created if missing), ./mnt shows them
        topicfs mount --foreground ./data ./mnt  # for a service manager, or to see the log
        topicfs mount --acks all ./data ./mnt  # every write is on disk when it returns
        topicfs mount --acks 0 --linger-ms 5 ./data ./mnt  # many small writers: answer immediately, batch for 5 ms
        topicfs mount --read-only /var/lib/kafka/data ./mnt  # a broker's own files, also while it runs
        topicfs mount --config server.properties ./data ./mnt  # retention, segment sizes … by Kafka's names
        topicfs mount --config server.properties ./mnt  # also use the data directories of the file: log.dirs
        topicfs mount /disk1/data,/disk2/data ./mnt  # over two disks: each new partition goes to the emptier
        # every record on both disks: one may fail while it serves
        topicfs mount --replicas 2 /disk1/data,/disk2/data ./mnt
        topicfs mount kafka://one:9092,two:9092 ./mnt  # the topics of a running cluster
        topicfs mount --cache ~/.cache/orders kafka://host:9092 ./mnt  # cache fetched records on the disk
        topicfs mount --listen 127.0.0.1:9092 ./data ./mnt  # also serve Kafka clients: kcat -b 127.0.0.1:9092 -L
        topicfs mount --metrics 9464 ./data ./mnt  # Prometheus scrapes http://localhost:9464/metrics
        topicfs mount --client-config client.properties kafka://host:9093 ./mnt  # over TLS, or with SASL
    """,
)
@click.argument("places", metavar="[DIR[,DIR]|kafka://HOST:PORT] MOUNTPOINT", nargs=-1, required=True)
@click.option(
    "--config", metavar="FILE", type=click.Path(path_type=Path), help="A broker's server.properties."
)
@client_config_option
@click.option(
    "--cache",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="For a cluster: cache fetched records in DIR, for later reads.",
)
@click.option(
    "--cache-bytes",
    metavar="BYTES",
    type=click.IntRange(SMALLEST_CACHE_BYTES),
    help=f"Maximum size of the cache.  [default: {CACHE_BYTES}]",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="For a cluster: codec for written lines.  [default: according to the topic's compression.type]",
)
@click.option(
    "--replicas",
    type=click.IntRange(1),
    metavar="N",
    help="Keep each partition of a new topic in N of the directories, so that one may fail.",
)
@without_option
@listener_options
@schema_options
@click.option("--foreground", "-f", is_flag=True, help="Stay here instead of going to the background.")
@click.option(
    "--nonempty", is_flag=True, help="Mount even over a directory with files, which the mount hides."
)
@click.option("--read-only", is_flag=True, help="Change and create nothing.")
@click.option(
    "--allow-other",
    is_flag=True,
    help="Let other users access the mount (needs root, or user_allow_other in /etc/fuse.conf).",
)
@click.option(
    "--uid", metavar="USER", type=USER, help="The owner of all files, by name or number.  [default: you]"
)
@click.option(
    "--gid", metavar="GROUP", type=GROUP, help="The group of all files, by name or number.  [default: yours]"
)
@click.option(
    "--umask",
    metavar="MASK",
    type=UMASK,
    help="Permissions to deny to others, as in umask(1): with 002 the group may append too.  [default: 022]",
)
@click.option(
    "--allow-delete", is_flag=True, help="Let rmdir remove topics with records, and `start` delete records."
)
@click.option(
    "--acks",
    metavar="0|1|all",
    help="When a write is answered: immediately (0), once it is in the log (1), or on disk (all); for a cluster, "
    "once it is in the leader's log (1), or in those of all in-sync replicas (all).  [default: 1; for a cluster all]",
)
@click.option(
    "--linger-ms",
    type=click.IntRange(0),
    metavar="N",
    help="With --acks 0: how long to collect lines for a batch.",
)
@click.option(
    "--max-in-flight",
    type=click.IntRange(1, 5),
    metavar="N",
    help="For a cluster: how many large writes of one open file may run at a time. With more than 1, writes are "
    "answered earlier, and errors are reported by the next write, fsync or close.  [default: 1]",
)
@click.option(
    "--max-waiting",
    type=click.IntRange(1),
    metavar="N",
    help="How many reads of `follow` may wait at a time; one more fails with EMFILE.  [default: 1000]",
)
@click.option("--partitioner", metavar="NAME", help="kafka, roundrobin or module:function.  [default: kafka]")
@click.option(
    "--isolation",
    type=click.Choice([level.value for level in Isolation]),
    help="Whether to show records of aborted transactions.  [default: read_committed]",
)
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Serve metrics to Prometheus at http://HOST:PORT/metrics. Without HOST, "
    "only on this machine. (@metrics in the mount has the same.)",
)
@click.option(
    "--log-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File for the daemon's log.  [default: the terminal; in the background systemd's journal, or else syslog]",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json", "journal"]),
    help="Text lines for people, JSON lines for programs, or entries with fields in systemd's journal.  "
    "[default: text; journal if the log goes there]",
)
@click.option("--debug", is_flag=True, help="Log more.")
@click.pass_context
def mount(context: click.Context, /, **given: object) -> None:
    """Mount the topics of DIR, of several, or of a Kafka cluster, at MOUNTPOINT, an existing, empty directory.

    Then mkdir creates a topic, >> appends records, and cat, tail -f, grep and cp read records. Only one process at a
    time owns a data directory. If one of several directories fails, only the partitions in it go offline. Unmount
    with `topicfs umount MOUNTPOINT`.
    """
    # Import only here, so that the other commands work on machines without FUSE.
    try:
        from topicfs.fusefs.appending.handle import Acks
        from topicfs.fusefs.daemon import MountOptions, run
        from topicfs.fusefs.metrics.address import parse_metrics_address
        from topicfs.fusefs.mounting.daemon_log import LogFormat
        from topicfs.fusefs.nodes.ownership import Ownership
    except ImportError as error:
        raise StorageError(f"{NEEDS_PYFUSE3} ({error})") from error

    options = {name: value for name, value in given.items() if value is not None}
    types: dict[str, Callable[[str], object]] = {
        "acks": Acks.parse,
        "isolation": Isolation,
        "log_format": LogFormat,
        "metrics": parse_metrics_address,
    }
    for name in types.keys() & options.keys():
        try:
            options[name] = types[name](str(options[name]))
        except (StorageError, ValueError) as error:
            raise click.BadParameter(str(error), param_hint=f"'--{name}'") from None
    owner = {name: options.pop(name) for name in ("uid", "gid", "umask") if name in options}
    options["owner"] = Ownership.of_process()._replace(**owner)  # type: ignore[arg-type] # as below
    places, config = options.pop("places"), options.pop("config", None)
    of_cluster = {
        name: options.pop(name, None) for name in ("client_config", "cache", "cache_bytes", "compression")
    }
    named: tuple[str, ...] = ()
    if isinstance(config, Path):
        found = read_config(config)
        options["engine"], named = found.config, found.log_directories
        options["rereads"] = partial(_reread, config.absolute(), options.get("replicas"))
        warn_of_ignored(config, found.ignored)
    place, options["mountpoint"] = place_and_mountpoint(places, named)  # type: ignore[arg-type] # as below
    options["directories"] = place.directories
    _replicate(options, of_cluster=place.cluster is not None)
    in_flight = options.get("max_in_flight")
    if place.cluster is not None:
        if config is not None:
            raise click.UsageError(
                "--config is for a data directory: a cluster has the settings of its brokers"
            )
        if "listener" in options:
            raise click.UsageError("--listen is for a data directory: a cluster has its own brokers")
        opens = _opener(place.cluster, read_only=bool(options["read_only"]), **of_cluster)  # type: ignore[arg-type] # as below
        options = {"acks": Acks.ALL, **options, "opens": opens, "place": str(place.cluster)}
    else:
        for name, value in {**of_cluster, "max_in_flight": in_flight}.items():
            if value is not None:
                option = f"--{name.replace('_', '-')}"
                raise click.UsageError(
                    f"{option} is for a cluster: topicfs mount kafka://HOST:PORT MOUNTPOINT"
                )
    gc.set_threshold(*OFTEN)
    context.exit(run(MountOptions(**options)))  # type: ignore[arg-type] # click has checked each of them


def _replicate(options: dict[str, object], *, of_cluster: bool) -> None:
    """Add options about replicas to a mount's options: whether to replicate, and which directories are lost.

    Raises click.UsageError.
    """
    replicas, without = options.pop("replicas", None), options.pop("without", ())
    if of_cluster and (replicas is not None or without):
        raise click.UsageError(
            "--replicas and --without are for data directories: a cluster has its own replicas"
        )
    assert isinstance(without, tuple)
    options["left_out"] = tuple(path.absolute() for path in without)
    engine = options.get("engine") or EngineConfig()
    assert isinstance(engine, EngineConfig)
    options["replicated"] = isinstance(replicas, int) or engine.replication_factor > 1
    if isinstance(replicas, int):
        options["engine"] = engine._replace(replication_factor=replicas)


def _reread(file: Path, replicas: object) -> EngineConfig:
    """Read the settings again, and apply the given number of replicas. Raises InvalidConfigError, OSError."""
    found = read_config(file).config
    return found._replace(replication_factor=replicas) if isinstance(replicas, int) else found


def _opener(
    address: ClusterAddress,
    *,
    read_only: bool,
    client_config: Path | None,
    cache: Path | None,
    cache_bytes: int | None,
    compression: str | None,
) -> Callable[[], Engine]:
    """Return a function that opens a cluster in the daemon, in any working directory. Raises StorageError, OSError."""
    if cache_bytes is not None and cache is None:
        raise click.UsageError("--cache-bytes needs --cache DIR")
    kept = None if cache is None else (cache.absolute(), cache_bytes or CACHE_BYTES)
    security = checked_security(client_config)
    return partial(open_cluster, address, security, read_only=read_only, cache=kept, compression=compression)


@click.command(
    cls=ExampleCommand,
    examples="""
        topicfs umount ./mnt  # flush everything, unmount, and wait until the daemon is gone
    """,
)
@click.argument(
    "mountpoint", metavar="MOUNTPOINT", type=click.Path(path_type=Path), shell_complete=completion.mountpoints
)
def umount(mountpoint: Path) -> None:
    """Unmount MOUNTPOINT; when the command returns, all records are on disk.

    The daemon ends even if a container or another mount namespace still has the mount, which no longer works there.
    """
    from topicfs.fusefs.mounting.mountpoint import unmount

    word = unmount(mountpoint)
    if word is not None:
        say(f"topicfs: {word}", error=True)


def place_and_mountpoint(places: tuple[str, ...], named: tuple[str, ...]) -> tuple[Place, Path]:
    """Split `places` into the place of the topics and the mountpoint.

    `named` are the directories of a server.properties. Directories on the command line take precedence. Raises
    click.UsageError.
    """
    match places:
        case [place, mountpoint] if is_cluster(mountpoint):
            raise click.UsageError(f"put the cluster first: topicfs mount {mountpoint} {place}")
        case [place, mountpoint] if mountpoint:
            return parse_place(place), Path(mountpoint)
        case [mountpoint] if named:
            return Place(tuple(map(Path, named))), Path(mountpoint)
        case [_] | [_, ""]:
            raise click.UsageError("give a data directory and a mountpoint, as in topicfs mount ./data ./mnt")
    raise click.UsageError("give one mountpoint; separate several data directories by commas")
