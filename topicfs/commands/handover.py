"""`topicfs handover` and `topicfs takeover`: move topics to a Kafka broker, and from a broker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import click

from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.share_groups import ShareGroupAdmin
from topicfs.cluster.place import cluster_address
from topicfs.cluster.protocol.connection import Connection
from topicfs.data_directory import require_directories
from topicfs.examples import ExampleCommand
from topicfs.lines import say
from topicfs.migration.cluster import KafkaCluster
from topicfs.migration.handover import Handover
from topicfs.migration.takeover import BrokerDirectories, Takeover
from topicfs.options import checked_security, client_config_option, parse_directories
from topicfs.storage.disk.lock import LockHolder, find_holder
from topicfs.storage.errors import StorageError

HANDOVER_POLL_SECONDS = 0.2


@click.command(
    cls=ExampleCommand,
    examples="""
        # run it while the broker runs; stop the broker when asked to, start it, and run it once more
        topicfs handover ./data --bootstrap-server localhost:9092 --log-dir /var/lib/kafka/data
    """,
)
@click.argument("directories", metavar="DATA[,DATA]", type=parse_directories)
@click.option(
    "--bootstrap-server",
    metavar="HOST:PORT",
    required=True,
    help="Address of the cluster while the broker runs.",
)
@client_config_option
@click.option(
    "--log-dir",
    "log_dirs",
    metavar="DIR",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="The broker's log directory; repeat for each of its log.dirs.",
)
@click.option(
    "--no-wait",
    is_flag=True,
    help="Do not wait until the broker is stopped: exit, and continue when run again.",
)
@click.option(
    "--with-open-transactions",
    is_flag=True,
    help="Hand over partitions with an open transaction, too; end it afterwards with kafka-transactions abort.",
)
def handover(
    directories: tuple[Path, ...],
    *,
    bootstrap_server: str,
    client_config: Path | None,
    log_dirs: tuple[Path, ...],
    no_wait: bool,
    with_open_transactions: bool,
) -> None:
    """Put the topics of a data directory under a Kafka broker.

    The broker must create the topics itself, because it sets unknown directories aside as strays. So this command
    lets the broker create the topics, with their partitions and settings, waits until the broker is stopped, and puts
    the files in place. Run the command again after the broker has started: it then compares the records that the
    broker serves. It may be interrupted and run again at any point. Files of the broker are never overwritten, and
    DATA is not changed. Kafka's own topics are left out.

    Groups with committed positions in the topics get the same positions when the topics are created; positions that
    the cluster still lacks at the end are set then. The position of a group that has moved on in the cluster is not
    changed. Stop the consumers of the groups before. Share groups are handed over too, with the records that they will
    deliver again.

    A topic with an open transaction is refused, because no coordinator in the cluster knows the transaction. Batches
    keep their producer IDs, but the cluster assigns IDs from its own counter. A new producer may therefore be
    assigned an ID that is already used in a partition. Until the old producer has expired (producer.id.expiration.ms
    after its last batch, by default a day), the broker takes the new producer's first batches in that partition for
    repeated or out of order. To prevent this, hand over topics whose idempotent producers have been silent for that
    long, or use a cluster that has already assigned higher IDs.
    """
    require_directories(directories)
    require_directories(log_dirs, of_broker=True)
    connect = partial(Connection, security=checked_security(client_config))
    brokers = Brokers(cluster_address(f"kafka://{bootstrap_server}"), connect)
    with closing(brokers):
        work = Handover(
            directories,
            log_dirs,
            report=say,
            with_open_transactions=with_open_transactions,
            share_groups=ShareGroupAdmin(brokers),
        )
        if _running(log_dirs):
            cluster = KafkaCluster(brokers)
            if work.placed and work.prepared:
                work.verify(cluster)
                say(f"done: the broker has everything; {_text(directories)} is no longer needed")
                return
            work.prepare(cluster)
            if not work.placed:
                _wait_until_stopped(log_dirs, no_wait=no_wait)
        elif not work.prepared:
            raise StorageError(
                "the broker is not running; start it first, because it must create the topics "
                f"(no process has {log_dirs[0]} open)"
            )
        work.place()
        say("the files are in place: start the broker, then run this once more to compare")


@click.command(
    cls=ExampleCommand,
    examples="""
        topicfs takeover /var/lib/kafka/data ./data  # copy a stopped broker's topics
        topicfs takeover --link /var/lib/kafka/data /var/lib/topics  # hard links for segments that no longer change
    """,
)
@click.argument("log_dirs", metavar="LOG_DIR[,LOG_DIR]", type=parse_directories)
@click.argument("directories", metavar="DATA[,DATA]", type=parse_directories)
@click.option(
    "--link", is_flag=True, help="Make hard links instead of copies of segments that get no more appends."
)
@click.option(
    "--metadata-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The broker's metadata.log.dir, if it is not the log directory: it has the topics' settings.",
)
@click.option(
    "--without-settings", is_flag=True, help="Continue without the topics' settings if they cannot be read."
)
def takeover(
    log_dirs: tuple[Path, ...],
    directories: tuple[Path, ...],
    *,
    link: bool,
    metadata_dir: Path | None,
    without_settings: bool,
) -> None:
    """Take the topics of a stopped Kafka broker into a data directory.

    Records, offsets, topic IDs and settings are kept. A topic without its own retention.ms gets -1, because the
    broker's default is not in its files. Positions of groups in the topics are also taken over, and transactions that
    the broker has not ended: `topicfs serve` commits those that the broker was committing, and aborts the others after
    their timeout. Kafka's own topics are otherwise left out. LOG_DIR is only read, also with --link, because a segment
    that must change later is copied first. Name all log.dirs if the broker has several. After an interruption, run the
    command again.
    """
    require_directories(log_dirs, of_broker=True)
    source = BrokerDirectories(
        log_dirs=log_dirs, metadata_dir=metadata_dir, without_settings=without_settings
    )
    Takeover(source, directories, report=say).take(link=link)
    say(f"done: topicfs mount {_text(directories)} MOUNTPOINT")


def _text(directories: Sequence[Path]) -> str:
    return ",".join(map(str, directories))


def _running(log_dirs: Sequence[Path]) -> LockHolder | None:
    """Return the process that has one of the directories open."""
    return next((holder for holder in map(find_holder, log_dirs) if holder), None)


def _wait_until_stopped(log_dirs: Sequence[Path], *, no_wait: bool) -> None:
    holder = _running(log_dirs)
    if holder is None:
        return
    broker = f"the broker (process {holder.pid})" if holder.pid else "the broker"
    if no_wait:
        raise StorageError(f"{broker} still runs: stop it, then run the same command again")
    say(f"now stop {broker}; this command continues after its end (or run it again then)")
    while _running(log_dirs):
        time.sleep(HANDOVER_POLL_SECONDS)
