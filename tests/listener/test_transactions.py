"""Transactional clients on a served directory: librdkafka's producer, exactly-once copies, and the next process."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from testing.broker.libraries import Java
from tests.doubles.waiting import wait_until
from tests.listener.daemon import Daemon
from tests.listener.serving import Served, serve
from topicfs.protocol.transaction_messages import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    TXN_OFFSET_COMMIT,
)
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk.names import TRANSACTION_STATE
from topicfs.storage.model import Isolation

TIMEOUT_SECONDS = 60.0


def producer(served: Served | Daemon, name: str = "tx", **settings: Any) -> Producer:
    """Return a producer whose transactions are initialized."""
    made = Producer({"bootstrap.servers": served.address, "transactional.id": name, **settings})
    made.init_transactions(TIMEOUT_SECONDS)
    return made


def transact(one: Producer, topic: str, value: bytes) -> None:
    """Produce a record in a transaction of its own, and commit it."""
    one.begin_transaction()
    one.produce(topic, value, partition=0)
    one.commit_transaction(TIMEOUT_SECONDS)


def consumed(
    served: Served | Daemon, topic: str, count: int, isolation: str = "read_committed"
) -> list[bytes]:
    """Consume `count` values from the beginning, and check that there are no other values."""
    settings = {"bootstrap.servers": served.address, "group.id": "reader", "isolation.level": isolation}
    with closing(
        Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    ) as one:
        one.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        while True:
            [message] = one.consume(1, TIMEOUT_SECONDS)
            if message.error() is not None:
                assert count == len(found)
                return found
            found.append(message.value())


def test_a_state_topic_that_appears_later_is_served(served: Served) -> None:
    """The coordinator starts when `__transaction_state` appears, as after the failure of its directory."""

    def coordinators() -> int:
        return sum(one.name == "transactions" for one in threading.enumerate())

    before = coordinators()
    served.engine.create_topic(TRANSACTION_STATE, partitions=1)
    wait_until(lambda: before + 1 == coordinators(), "the coordinator has started")


def test_transactions_are_seen_whole_or_not_at_all(served: Served) -> None:
    """A read_committed consumer gets a committed transaction's records of both topics, and no aborted records."""
    one = producer(served)
    for number, commit in enumerate((True, False, True)):
        one.begin_transaction()
        for topic in ("a", "b"):
            one.produce(topic, f"{number}".encode(), partition=0)
        assert 0 == one.flush(TIMEOUT_SECONDS)
        (one.commit_transaction if commit else one.abort_transaction)(TIMEOUT_SECONDS)
    for topic in ("a", "b"):
        assert [b"0", b"2"] == consumed(served, topic, 2)
        assert 3 == len(consumed(served, topic, 3, "read_uncommitted"))


def test_a_zombie_is_fenced(served: Served) -> None:
    """A second producer of a transactional id aborts the first producer's transaction. The first producer fails."""
    zombie = producer(served)
    zombie.begin_transaction()
    zombie.produce("t", b"lost", partition=0)
    assert 0 == zombie.flush(TIMEOUT_SECONDS)
    successor = producer(served)
    with pytest.raises(KafkaException):
        zombie.commit_transaction(TIMEOUT_SECONDS)
    transact(successor, "t", b"kept")
    assert [b"kept"] == consumed(served, "t", 1)


def fill_source(served: Served | Daemon, count: int) -> list[bytes]:
    """Produce lines to the topic `source`; return the lines."""
    lines = [f"{number}".encode() for number in range(count)]
    source = Producer({"bootstrap.servers": served.address})
    for line in lines:
        source.produce("source", line, partition=0)
    assert 0 == source.flush(TIMEOUT_SECONDS)
    return lines


def copied(served: Served, copier: Producer, crash_before_commit: Callable[[int], bool]) -> Iterator[int]:
    """Copy the topic `source` to `target` exactly once, in transactions of some records; yield after each commit."""
    settings = {"bootstrap.servers": served.address, "group.id": "copier", "enable.auto.commit": False}
    reader = Consumer({**settings, "auto.offset.reset": "earliest", "isolation.level": "read_committed"})
    with closing(reader):
        reader.subscribe(["source"])
        for number in range(100):
            messages = reader.consume(7, TIMEOUT_SECONDS)
            copier.begin_transaction()
            for message in messages:
                copier.produce("target", message.value(), partition=0)
            places = reader.position(reader.assignment())
            copier.send_offsets_to_transaction(places, reader.consumer_group_metadata(), TIMEOUT_SECONDS)
            if crash_before_commit(number):
                copier.abort_transaction(TIMEOUT_SECONDS)
                return
            copier.commit_transaction(TIMEOUT_SECONDS)
            yield len(messages)


def test_an_exactly_once_copy(served: Served) -> None:
    """A copier that is stopped in the middle of a transaction continues at the committed positions."""
    lines = fill_source(served, 30)
    copier = producer(served)
    done = sum(copied(served, copier, lambda number: number == 2))
    assert 0 < done < len(lines)
    for count in copied(served, producer(served), lambda _: False):
        done += count
        if done == len(lines):
            break
    assert lines == consumed(served, "target", len(lines))
    found = served.engine.groups.positions("copier")
    assert [len(lines)] == [one.offset for one in found.committed.values()]
    assert {} == found.pending


def test_the_next_process_continues(tmp_path: Path) -> None:
    """A transactional id keeps its producer across a restart; an open transaction is aborted by the next producer."""
    directory = tmp_path / "data"
    config = EngineConfig(transaction_topic_num_partitions=3)
    with closing(serve([directory], transaction_topic_num_partitions=3)) as served:
        one = producer(served)
        transact(one, "t", b"first")
        one.begin_transaction()
        one.produce("t", b"open", partition=0)
        assert 0 == one.flush(TIMEOUT_SECONDS)
        before = served.client().ask(DESCRIBE_TRANSACTIONS, {"transactionalIds": ["tx", "other", ""]})
    assert config.transaction_topic_num_partitions == len(list(directory.glob("__transaction_state-*")))
    with closing(serve([directory], transaction_topic_num_partitions=3)) as served:
        two = producer(served)
        assert [b"first"] == consumed(served, "t", 1)
        transact(two, "t", b"second")
        assert [b"first", b"second"] == consumed(served, "t", 2)
        after = served.client().ask(DESCRIBE_TRANSACTIONS, {"transactionalIds": ["tx"]})
    found, unknown, invalid = before["transactionStates"]
    assert ("Ongoing", [{"topic": "t", "partitions": [0]}]) == (found["transactionState"], found["topics"])
    assert (105, 42) == (unknown["errorCode"], invalid["errorCode"])
    [latest] = after["transactionStates"]
    assert ("CompleteCommit", found["producerId"]) == (latest["transactionState"], latest["producerId"])
    assert latest["producerEpoch"] > found["producerEpoch"]


def test_open_transactions_are_shown(served: Served) -> None:
    """Open transactions are listed by state and duration. DescribeProducers names the producer of each of them."""
    one = producer(served)
    one.begin_transaction()
    one.produce("t", b"v", partition=0)
    assert 0 == one.flush(TIMEOUT_SECONDS)
    client = served.client()

    def listed(states: list[str], duration: int = -1) -> list[str]:
        asked = {"stateFilters": states, "producerIdFilters": [], "durationFilter": duration}
        return [
            found["transactionalId"] for found in client.ask(LIST_TRANSACTIONS, asked)["transactionStates"]
        ]

    assert ["tx"] == listed([]) == listed(["Ongoing"])
    assert [] == listed(["Empty"]) == listed([], 10**9)
    asked = {"topics": [{"name": "t", "partitionIndexes": [0, 9]}]}
    known, unknown = client.ask(DESCRIBE_PRODUCERS, asked)["topics"][0]["partitions"]
    [found] = known["activeProducers"]
    assert (0, 0, 0) == (found["currentTxnStartOffset"], found["lastSequence"], known["errorCode"])
    assert 3 == unknown["errorCode"]
    one.commit_transaction(TIMEOUT_SECONDS)
    assert 2 == served.engine.partition("t", 0).visible_end(Isolation.READ_COMMITTED)


def test_kill_9_while_transactions_end(daemon: Callable[..., Daemon]) -> None:
    """A producer continues after each kill of the daemon. Each of its transactions is in both topics exactly once."""
    server = daemon()
    one = producer(server)
    killed = [threading.Event() for _ in range(3)]

    def kill_again_and_again() -> None:
        for event in killed:
            assert event.wait(TIMEOUT_SECONDS)
            server.end(signal.SIGKILL)
            server.start()

    killer = threading.Thread(target=kill_again_and_again)
    killer.start()
    done = 0
    while done < 10 or killer.is_alive():
        one.begin_transaction()
        for topic in ("a", "b"):
            one.produce(topic, f"{done}".encode(), partition=0)
        if done % 3 == 2 and done // 3 < len(killed):
            killed[done // 3].set()
        done += commits(one)
    killer.join()
    expected = [f"{number}".encode() for number in range(done)]
    assert expected == consumed(server, "a", done) == consumed(server, "b", done)
    assert 0 == server.end()


def commits(one: Producer) -> bool:
    """Commit a transaction, and retry if librdkafka asks for it. Return False if it had to be aborted instead."""
    while True:
        try:
            one.commit_transaction(TIMEOUT_SECONDS)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                one.abort_transaction(TIMEOUT_SECONDS)
                return False
            assert error.args[0].retriable(), error
        else:
            return True


def copier(address: str, count: int) -> list[str]:
    """Return class and options of Kafka's own test program.

    It copies `count` records of the topic `source` to `target` in transactions with its positions.
    """
    return [
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", address, "--transactional-id", "copier", "--consumer-group", "copiers"),
        *("--input-topic", "source", "--input-partition", "0", "--output-topic", "target"),
        *("--transaction-size", "10", "--max-messages", str(count)),
        *("--enable-random-aborts", "--use-group-metadata"),
    ]


class Copier:
    """Kafka's own test program, which can be killed and started again."""

    def __init__(self, java: Java, address: str, count: int) -> None:
        self._command = java.command(*copier(address, count))
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._copied = 0

    def wait_for_a_transaction(self) -> None:
        """Return after the next commit, or if all lines are copied. A copier that gave up is started again."""
        assert self._process.stdout is not None
        before = self._copied
        while before == self._copied:
            if line := self._process.stdout.readline():
                self._copied = json.loads(line)["totalProcessed"]
                continue
            is_done = self.end() == 0
            self._start()
            if is_done:
                return
            before = self._copied

    def kill(self) -> None:
        self._process.kill()
        self.end()
        self._start()

    def end(self) -> int:
        """Wait for the copier to end; return its exit status."""
        self._process.communicate()
        return self._process.returncode

    def finish(self) -> None:
        """Let the copier copy the remaining lines."""
        while self.end():
            self._start()


@pytest.mark.java
def test_kill_9_of_kafkas_exactly_once_copier_and_of_the_daemon(
    java: Java, daemon: Callable[..., Daemon]
) -> None:
    """Each line is copied once, although the copier and the daemon are killed while transactions end."""
    server = daemon()
    lines = fill_source(server, 200)
    copying = Copier(java, server.address, len(lines))
    for victim in (server, copying, server):
        copying.wait_for_a_transaction()
        if victim is copying:
            copying.kill()
        else:
            server.end(signal.SIGKILL)
            server.start()
    copying.finish()
    assert lines == consumed(server, "target", len(lines))
    assert 0 == server.end()


def test_a_group_whose_name_is_too_long_gets_no_positions(served: Served) -> None:
    """TxnOffsetCommit of a group name that no record can hold is answered with INVALID_GROUP_ID."""
    producer(served)
    client = served.client()
    client.topic("t")
    [known] = client.ask(DESCRIBE_TRANSACTIONS, {"transactionalIds": ["tx"]})["transactionStates"]
    position = {"partitionIndex": 0, "committedOffset": 1, "committedLeaderEpoch": -1}
    asked = {
        "transactionalId": "tx",
        "groupId": "g" * 32768,
        "producerId": known["producerId"],
        "producerEpoch": known["producerEpoch"],
        "topics": [{"name": "t", "partitions": [{**position, "committedMetadata": None}]}],
    }
    member = {"generationId": -1, "memberId": "", "groupInstanceId": None}
    [found] = client.ask(TXN_OFFSET_COMMIT, {**asked, **member})["topics"]
    assert [24] == [one["errorCode"] for one in found["partitions"]]
