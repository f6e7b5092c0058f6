"""`topicfs transactions` reads the transactional ids of a directory, and ends a transaction that hangs."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.producing import batch
from tests.topicfs.conftest import assert_refused
from topicfs.coordination.transactions.coordinator import TransactionCoordinator
from topicfs.coordination.transactions.transaction import End
from topicfs.replication import open_engine
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk.native import system_clock
from topicfs.storage.model import TopicPartition

ID_OF_NOBODY = 7


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with an idle transactional id, an id with an open transaction, and a transaction that hangs."""
    directory = tmp_path / "data"
    config = EngineConfig(transaction_topic_num_partitions=2)
    with closing(open_engine(directory, config=config)) as engine:
        topic = engine.create_topic("orders", partitions=2)
        with closing(TransactionCoordinator(engine, engine.groups, config, system_clock)) as coordinator:
            coordinator.load()
            idle, busy = (coordinator.init_producer_id(name, 60_000, None) for name in ("idle", "busy"))
            coordinator.add_partitions("idle", idle, [TopicPartition("orders", 0)], 2)
            coordinator.end("idle", End(idle, commit=True, version=2))
            coordinator.add_partitions("busy", busy, [TopicPartition("orders", 1)], 2)
        for number, producer_id in ((0, ID_OF_NOBODY), (1, busy.producer_id)):
            stamp = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
            topic.partitions()[number].append(batch(b"open", transactional=True, **stamp))
    return directory


def test_list_and_describe(topicfs: Any, place: Path) -> None:
    """Each transactional id is listed with its state, and described with its partitions; an unknown id is an error."""
    rows = [line.split() for line in topicfs("transactions", "list", "-d", str(place)).text.splitlines()]
    assert [["busy", "0", "Ongoing"], ["idle", "1", "CompleteCommit"]] == [
        [row[0], *row[2:]] for row in rows[1:]
    ]
    listed = json.loads(topicfs("transactions", "list", "--json", "-d", str(place)).text)
    busy = json.loads(topicfs("transactions", "describe", "busy", "-d", str(place)).text)
    assert busy == listed[0]
    assert (["orders-1"], 60_000) == (busy["partitions"], busy["timeout_ms"])
    unknown = topicfs("transactions", "describe", "nobody", "-d", str(place))
    assert_refused(unknown, "nobody: no such transactional id")


def test_a_hanging_transaction_is_found_and_aborted(topicfs: Any, place: Path) -> None:
    """A transaction that is open in a log, but not at the coordinator, is listed as hanging, and can be aborted.

    No other transaction can be aborted.
    """
    where = ("--max-transaction-timeout", "0", "-d", str(place))
    found = topicfs("transactions", "find-hanging", *where).text.splitlines()
    assert [["orders", "0", str(ID_OF_NOBODY), "0", "1"]] == [line.split() for line in found[1:]]
    other = ("--topic", "orders", "--partition", "1", "--start-offset", "0", "-d", str(place))
    assert_refused(topicfs("transactions", "abort", *other), "a transactional id has this transaction open")
    hanging = ("--topic", "orders", "--partition", "0", "--start-offset", "1", "-d", str(place))
    assert 0 == topicfs("transactions", "abort", *hanging).status
    assert "" == topicfs("transactions", "find-hanging", *where).text
    assert_refused(topicfs("transactions", "abort", *hanging), "no open transaction begins at offset 1")


def test_a_directory_without_transactions(topicfs: Any, orders: Any) -> None:
    """If no client used transactions, nothing is listed and nothing hangs."""
    for command in ("list", "find-hanging"):
        assert "" == orders("transactions", command).text
