"""`topicfs mirror`: copies topics of a Kafka cluster into a data directory."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import click

from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.fetch import EARLIEST, LATEST
from topicfs.cluster.mirror.mirror import MirrorOptions, mirror
from topicfs.cluster.mirror.topics import TopicNames
from topicfs.cluster.place import ClusterAddress
from topicfs.cluster.protocol.connection import Connection
from topicfs.examples import ExampleCommand
from topicfs.fusefs.times import TimeError, parse_time
from topicfs.lines import say
from topicfs.options import CLUSTER_METAVAR, checked_security, client_config_option, parse_cluster


def beginning(text: str) -> int:
    """Parse where copies begin. An invalid value is a usage error."""
    if text in _BEGINNINGS:
        return _BEGINNINGS[text]
    if not text.startswith("@"):
        raise click.BadParameter(f"{text!r}: must be earliest, latest or @TIME")
    try:
        return max(0, parse_time(text[1:]))
    except TimeError as error:
        raise click.BadParameter(str(error)) from None


ALL = "*"
_BEGINNINGS = {"earliest": EARLIEST, "latest": LATEST}


@click.command(
    "mirror",
    cls=ExampleCommand,
    examples="""
        topicfs mirror kafka://localhost:9092 ./copy  # every topic, and new records until Ctrl-C
        topicfs mirror kafka://one:9092,two:9092 ./copy --once  # only existing records
        topicfs mirror kafka://localhost:9092 ./copy --topics 'orders*,payments'  # some of the topics
        topicfs mirror kafka://localhost:9092 ./copy --from @2026-11-01  # new copies begin on that day
        topicfs mirror kafka://host:9093 ./copy --client-config client.properties  # over TLS, or with SASL
        topicfs mount --read-only ./copy ./mnt  # view it meanwhile, from another terminal
    """,
)
@click.argument("source", metavar=CLUSTER_METAVAR, type=parse_cluster)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--topics",
    "patterns",
    metavar="PATTERN[,PATTERN]",
    default=ALL,
    show_default=True,
    help="Names of topics, or shell patterns. Kafka's own topics are left out.",
)
@click.option(
    "--from",
    "begin",
    metavar="earliest|latest|@TIME",
    type=beginning,
    default="earliest",
    show_default=True,
    help="Where new copies of partitions begin.",
)
@client_config_option
@click.option("--once", is_flag=True, help="End when everything is copied that the cluster had at the start.")
@click.option(
    "--groups", is_flag=True, help="Copy the positions of consumer groups too: the topic __consumer_offsets."
)
@click.option(
    "--throttle",
    metavar="BYTES",
    type=click.IntRange(min=1),
    help="Fetch at most this many bytes per second from the whole cluster.  [default: unlimited]",
)
def mirror_topics(
    source: ClusterAddress,
    directory: Path,
    *,
    patterns: str,
    begin: int,
    client_config: Path | None,
    once: bool,
    groups: bool,
    throttle: int | None,
) -> None:
    """Copy topics of a Kafka cluster into a data directory, batch by batch at their own offsets.

    Transaction markers and aborted records, topic IDs, settings, leader epochs and log starts are also copied, so
    that the files are byte for byte those of the brokers. The mirror follows retention and deletions of records. If a
    topic is deleted in the cluster, its copy is kept until a topic with the same name is created again. The mirror
    may be interrupted at any point, and continues when it is run again. Records that the cluster loses in an unclean
    election are also removed from the copy.

    DIR is a data directory. While it is mirrored, it can be mounted read-only, checked, and handed to a broker with
    `topicfs handover`. No other program may write to DIR: if a copy differs from what the mirror left, the mirror
    refuses it.
    """
    security = checked_security(client_config)
    stop = threading.Event()
    names = TopicNames(tuple(filter(None, map(str.strip, patterns.split(",")))), groups=groups)
    options = MirrorOptions(names=names, begin=begin, once=once, throttle=throttle)
    with ended_by_signals(stop), closing(Brokers(source, partial(Connection, security=security))) as brokers:
        done = mirror(directory, brokers, options, say, stop)
    if once and not done.topics and patterns != ALL:
        raise click.ClickException(f"no topic in the cluster is named {patterns}")
    for problem in done.problems:
        say(f"not complete: {problem}", error=True)
    counts = f"{_many(done.topics, 'topic')}, {_many(done.partitions, 'partition')}"
    say(f"{counts}: {done.copied_bytes:,} bytes copied")
    if done.problems:
        raise SystemExit(1)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


@contextmanager
def ended_by_signals(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the mirror cleanly."""

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
