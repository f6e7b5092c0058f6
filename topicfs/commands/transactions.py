"""`topicfs transactions`: lists and describes transactional ids; finds and aborts transactions that hang."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topicfs.data_directory import opened_for_reading, opened_for_writing
from topicfs.examples import ExampleCommand, ExampleGroup
from topicfs.groups.output import say_table
from topicfs.lines import say
from topicfs.options import data_option
from topicfs.storage.disk.native import system_clock
from topicfs.storage.errors import InvalidTransactionStateError, StorageError
from topicfs.storage.model import Offset, TopicPartition

if TYPE_CHECKING:
    from topicfs.coordination.engine import Engine
    from topicfs.coordination.transactions.coordinator import TransactionCoordinator
    from topicfs.coordination.transactions.transaction import Transaction

THROUGH_CLIENTS = "kafka-transactions --bootstrap-server HOST:PORT"
MINUTE_MS = 60_000


@click.group(
    cls=ExampleGroup,
    examples="""
        topicfs transactions list  # all transactional ids
        topicfs transactions describe orders-writer  # its producer, and the partitions of its transaction
        topicfs transactions find-hanging  # transactions that nobody will end
    """,
)
def transactions() -> None:
    """List, describe and abort transactions of Kafka clients, in the words of kafka-transactions.

    A transactional id has one producer and at most one open transaction, kept in __transaction_state as a broker
    keeps it. The daemon that serves clients (--listen) ends transactions. These commands read the directory, also
    while a daemon owns it.
    """


@transactions.command(
    "list",
    cls=ExampleCommand,
    examples="""
        topicfs transactions list  # each transactional id with its producer and state
        topicfs transactions list --json | jq -c .[]  # for programs
    """,
)
@click.option("--json", "as_program", is_flag=True, help="One JSON array.")
@data_option
def list_transactions(*, as_program: bool, directories: tuple[Path, ...]) -> None:
    """List transactional ids."""
    with _reading(directories) as (_, coordinator):
        rows = [_shown(name, one) for name, one in _listed(coordinator).items()]
    if as_program:
        say(json.dumps(rows))
    elif rows:
        say_table("TRANSACTIONAL-ID PRODUCER EPOCH STATE", [list(row.values())[:4] for row in rows])


@transactions.command(
    cls=ExampleCommand,
    examples="""
        topicfs transactions describe orders-writer  # one JSON object for each id
    """,
)
@click.argument("names", metavar="ID…", nargs=-1, required=True)
@data_option
def describe(names: tuple[str, ...], *, directories: tuple[Path, ...]) -> None:
    """Describe transactional ids: producer, state, timeout, and the partitions of the transaction."""
    with _reading(directories) as (_, coordinator):
        listed = _listed(coordinator)
    for name in names:
        if name not in listed:
            raise StorageError(f"{name}: no such transactional id; topicfs transactions list shows all")
        say(json.dumps(_shown(name, listed[name])))


@transactions.command(
    "find-hanging",
    cls=ExampleCommand,
    examples="""
        topicfs transactions find-hanging  # older than 15 minutes, the longest timeout of a broker
        topicfs transactions find-hanging --max-transaction-timeout 0  # of any age
    """,
)
@click.option(
    "--max-transaction-timeout",
    "minutes",
    metavar="MINUTES",
    type=click.IntRange(0),
    default=15,
    show_default=True,
    help="Leave out transactions with a record that is younger.",
)
@data_option
def find_hanging(*, minutes: int, directories: tuple[Path, ...]) -> None:
    """Find transactions that are open in a partition, although no transactional id has them open.

    Readers of committed records wait at such a transaction for ever. `abort` ends it.
    """
    from topicfs.coordination.transactions.open_transactions import hanging_transactions

    with _reading(directories) as (engine, coordinator):
        _listed(coordinator)
        oldest = system_clock() - minutes * MINUTE_MS
        rows = [
            (
                one.place.topic,
                one.place.partition,
                one.producer.producer_id,
                one.producer.epoch,
                one.first_offset,
            )
            for one in hanging_transactions(engine, coordinator)
            if one.producer.last_timestamp <= oldest
        ]
    if rows:
        say_table("TOPIC PARTITION PRODUCER EPOCH START-OFFSET", rows)


@transactions.command(
    cls=ExampleCommand,
    examples="""
        # as find-hanging shows it
        topicfs transactions abort --topic orders --partition 0 --start-offset 7
    """,
)
@click.option("--topic", metavar="TOPIC", required=True, help="The topic of the transaction.")
@click.option("--partition", metavar="N", type=click.IntRange(0), required=True, help="The partition.")
@click.option(
    "--start-offset",
    metavar="OFFSET",
    type=click.IntRange(0),
    required=True,
    help="The offset at which the transaction begins.",
)
@data_option
def abort(topic: str, *, partition: int, start_offset: int, directories: tuple[Path, ...]) -> None:
    """Abort a transaction that hangs in a partition; no daemon may own the directory.

    While clients are served, use kafka-transactions abort.
    """
    from topicfs.coordination.transactions.open_transactions import (
        abort_hanging,
        find_open,
        hanging_transactions,
    )

    with (
        opened_for_writing(
            directories, through_mount="", through_listener=f"{THROUGH_CLIENTS} abort"
        ) as engine,
        _coordinating(engine) as coordinator,
    ):
        _listed(coordinator)
        found = find_open(engine, TopicPartition(topic, partition), Offset(start_offset))
        if found not in hanging_transactions(engine, coordinator):
            raise InvalidTransactionStateError(
                f"{found.place}: a transactional id has this transaction open; it ends with its producer, or after "
                "its timeout while topicfs serve is running"
            )
        abort_hanging(coordinator, found)
    say(f"{found.place}: the transaction at offset {found.first_offset} is aborted")


@contextmanager
def _reading(directories: tuple[Path, ...]) -> Iterator[tuple[Engine, TransactionCoordinator]]:
    with opened_for_reading(directories) as engine, _coordinating(engine) as coordinator:
        yield engine, coordinator


@contextmanager
def _coordinating(engine: Engine) -> Iterator[TransactionCoordinator]:
    """Yield a coordinator that has read the transactions and does not end any of them."""
    from typing import cast

    from topicfs.coordination.groups.runtime.service import EmbeddedGroups
    from topicfs.coordination.transactions.coordinator import TransactionCoordinator
    from topicfs.storage.config.broker import EngineConfig

    groups = cast(EmbeddedGroups, engine.groups)
    with closing(TransactionCoordinator(engine, groups, EngineConfig(), system_clock)) as coordinator:
        coordinator.load()
        yield coordinator


def _listed(coordinator: TransactionCoordinator) -> dict[str, Transaction]:
    """Return the transactions by transactional id. Raises StorageError if a part of them cannot be read.

    Without this error, a transaction of an unreadable id would look as if it hung.
    """
    if coordinator.failed:
        raise StorageError(f"{', '.join(coordinator.failed)}: cannot be read; topicfs check shows why")
    return dict(coordinator.listed())


def _shown(name: str, one: Transaction) -> dict[str, Any]:
    from topicfs.coordination.records.transaction_records import STATUSES

    return {
        "transactional_id": name,
        "producer_id": one.producer_id,
        "producer_epoch": one.epoch,
        "state": STATUSES[one.status],
        "timeout_ms": one.timeout_ms,
        "started_ms": one.started,
        "updated_ms": one.updated,
        "partitions": [str(place) for place in sorted(one.partitions)],
    }
