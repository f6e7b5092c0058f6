"""`python -m tests.soak mirror [--kills N] [--seed N] [--brokers 3]`: a mirror is killed repeatedly, and continues.

Its source is busy. Records are written to a plain, a transactional, a compacted and a quickly expiring topic; a
transaction stays open for long, records are deleted, a topic gets partitions, and another topic is deleted and
created again. With three brokers, two of them are stopped or killed in turn, so that leaders change. A last run then
copies what is missing: the copy has every batch of the source at its offset, byte for byte, files that exist in both
are equal, and `topicfs check` finds nothing.
"""

from __future__ import annotations

import argparse
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import cycle
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewPartitions

from testing.broker.broker import Broker, running_broker, running_cluster
from testing.broker.client import Client, Outgoing, let_go
from testing.broker.libraries import find_java
from tests.doubles.forks import COMMAND, FORKS
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from tests.interop.ours import read_records
from tests.soak import say
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.replication import open_engine
from topicfs.storage.codec.batch import scan
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.model import Record

PARTITIONS = 3
MAX_MIRRORED_PARTITIONS = 9
LONGEST_LIFE_SECONDS = 4.0
SEGMENTS = {"segment.bytes": "1048576"}
TOPICS = {
    "plain": SEGMENTS,
    "transactions": SEGMENTS,
    "keyed": {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01"},
    "expiring": {**SEGMENTS, "retention.ms": "1000", "segment.ms": "1000"},
    "remade": {},
}
USUAL = frozenset({"plain", "transaction", "keyed"})
"""Steps that even the shortest run must take."""
REPLICAS = ((2, 3, 1), (3, 1, 2))
"""The replicas that topics get in turn if there are three brokers. The controller leads no partition, because it must
stay alive.
"""


class Load(threading.Thread):
    """Writes to the brokers until `stop` is set; `join_or_raise` raises the error of the thread."""

    def __init__(self, client: Client, chance: random.Random, brokers: Sequence[Broker]) -> None:
        """`brokers` are the brokers that the load may stop."""
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.done: Counter[str] = Counter()
        self._client, self._chance, self._brokers = client, chance, brokers
        self._error: Exception | None = None
        self._transactional = self._made("soak")
        self._holding = self._made("holding")
        self._held = False

    def run(self) -> None:
        steps: list[Callable[[], None]] = [self._plain] * 6 + [self._transaction] * 4 + [self._keyed] * 4
        steps += [self._expiring] * 2 + [self._hold, self._remake, self._delete, self._grow]
        steps += [self._move] * 2 * bool(self._brokers)
        try:
            while not self.stop.is_set():
                step = self._chance.choice(steps)
                # A client's call may fail while leaders change; only the brokers know its outcome.
                with suppress(*((KafkaException, TimeoutError) if self._brokers else ())):
                    step()
                    self.done[step.__name__.removeprefix("_")] += 1
            if self._held:
                self._let_go()
            self._client.set_setting("expiring", "retention.ms", "-1")
        except Exception as error:  # noqa: BLE001 (it is raised in the thread that waits)
            self._error = error

    def wait_for(self, steps: frozenset[str]) -> None:
        """Wait until all steps in `steps` were done or the thread has failed."""
        done = f"{', '.join(steps)} were done"
        wait_until(
            lambda: steps <= self.done.keys() or not self.is_alive(),
            done,
            timeout_seconds=4 * TIMEOUT_SECONDS,
        )

    def join_or_raise(self) -> None:
        self.stop.set()
        self.join()
        if self._error is not None:
            raise self._error

    def _made(self, name: str) -> Producer:
        producer = self._client.producer(transactional_id=name)
        producer.init_transactions(30)
        return producer

    def _some(self) -> list[Outgoing]:
        sizes = (self._chance.choice((10, 300, 20_000)) for _ in range(self._chance.randrange(1, 30)))
        return [Outgoing(bytes(size), b"k%d" % self._chance.randrange(50)) for size in sizes]

    def _partition(self) -> int:
        return self._chance.randrange(PARTITIONS)

    def _plain(self) -> None:
        self._client.produce(
            "plain",
            self._some(),
            partition=self._partition(),
            batch=self._chance.randrange(4),
            enable_idempotence=True,
        )

    def _transaction(self) -> None:
        try:
            with self._client.transaction(self._transactional, commit=self._chance.random() < 0.6):
                for one in self._some():
                    self._transactional.produce("transactions", one.value, one.key, self._partition())
        except KafkaException:
            self._transactional = self._made("soak")
            raise

    def _hold(self) -> None:
        """End the open transaction, or begin a transaction. While it is open, all later records are undecided."""
        self._held = not self._held
        try:
            if self._held:
                self._holding.begin_transaction()
                self._holding.produce("transactions", b"held", None, self._partition())
                self._holding.flush(30)
            elif self._chance.random() < 0.5:
                self._holding.commit_transaction(30)
            else:
                self._holding.abort_transaction(30)
        except KafkaException:
            self._held, self._holding = False, self._made("holding")
            raise

    def _let_go(self) -> None:
        """End the open transaction, unless its coordinator has ended it after its timeout."""
        try:
            self._holding.abort_transaction(30)
        except KafkaException:
            self._made("holding")  # A new producer with the id aborts an open transaction of that id.

    def _keyed(self) -> None:
        records = [one if self._chance.random() < 0.8 else Outgoing(None, one.key) for one in self._some()]
        self._client.produce("keyed", records, partition=self._partition())

    def _expiring(self) -> None:
        self._client.produce("expiring", self._some(), partition=self._partition())

    def _delete(self) -> None:
        number = self._partition()
        end = self._client.offset_for("plain", partition=number)
        self._client.delete_records("plain", self._chance.randrange(end + 1), partition=number)

    def _remake(self) -> None:
        self._client.delete_topics(["remade"])
        self._client.create_topic("remade", partitions=PARTITIONS)
        self._client.produce("remade", self._some(), partition=self._partition())

    def _grow(self) -> None:
        def known() -> int:
            return len(self._client.admin.list_topics("plain").topics["plain"].partitions)

        count = known()
        if count < MAX_MIRRORED_PARTITIONS:
            more = NewPartitions("plain", count + 1)
            self._client.admin.create_partitions([more])["plain"].result(30)
            count += 1
            wait_until(lambda: known() >= count, "the broker knows the partition that its controller made")
        self._client.produce("plain", self._some(), partition=count - 1)

    def _move(self) -> None:
        """Stop or kill a broker for a short time."""
        broker = self._chance.choice(self._brokers)
        (broker.stop if self._chance.random() < 0.5 else broker.kill)()
        try:
            self._plain()
            self._keyed()
        finally:
            broker.start()


def kill_mirrors(home: Path, brokers: Sequence[Broker], *, kills: int, seed: int) -> Counter[str]:
    """Mirror the brokers into `home`, and kill each mirror but the last; return how often the load took each step."""
    client, chance, copy = Client(brokers[0].bootstrap_server), random.Random(seed), home / "copy"
    several = len(brokers) > 1
    for (name, settings), replicas in zip(TOPICS.items(), cycle(REPLICAS), strict=False):
        client.create_topic(
            name, partitions=PARTITIONS, replicas=replicas if several else (), settings=settings
        )
    words = ("mirror", f"kafka://{client.bootstrap_server}", str(copy))
    load = Load(client, random.Random(seed + 1), brokers[1:])
    load.start()
    try:
        for _ in range(kills):
            mirror = FORKS.start(COMMAND, *words)
            time.sleep(chance.uniform(0.3, LONGEST_LIFE_SECONDS))
            mirror.send_signal(signal.SIGKILL)
            assert -signal.SIGKILL == mirror.wait(), "the mirror ended by itself"
        load.wait_for(USUAL)
    finally:
        load.join_or_raise()
    for broker in brokers[1:]:  # A broker that the load's thread started ends with that thread.
        broker.kill()
        broker.start()
    led = "brokers that were away lead their partitions again"
    wait_until(lambda: _all_are_led(client), led, timeout_seconds=4 * TIMEOUT_SECONDS)
    last = FORKS.start(COMMAND, *words, "--once").wait()
    assert 0 == last, f"the last run: {_leaders_by_broker(brokers)}"
    compare(client, brokers, copy)
    return load.done


def _leaders_by_broker(brokers: Sequence[Broker]) -> dict[int, dict[str, list[int]]]:
    """Return the leader of each topic's partitions according to each broker; -1 means no leader."""
    found = {}
    for broker in brokers:
        told = Client(broker.bootstrap_server).admin.list_topics(timeout=30).topics
        found[broker.node] = {
            topic: [one.leader for _, one in sorted(told[topic].partitions.items())] for topic in TOPICS
        }
    return found


def _all_are_led(client: Client) -> bool:
    topics = client.admin.list_topics(timeout=30).topics
    return all(one.leader >= 0 for topic in TOPICS for one in topics[topic].partitions.values())


def compare(client: Client, brokers: Sequence[Broker], copy: Path) -> None:
    """Compare the mirror's copy with its source."""
    findings = list(DirectoryCheck(copy, NativeFileSystem(read_only=True)).findings())
    assert [] == findings, findings
    topics = client.admin.list_topics().topics
    directories = {broker.node: broker.log_dir for broker in brokers}
    compared = 0
    with closing(open_engine(copy, read_only=True)) as engine:
        for topic in TOPICS:
            assert sorted(topics[topic].partitions) == sorted(engine.topic(topic).partitions())
            for number, partition in topics[topic].partitions.items():
                ours = engine.partition(topic, number)
                theirs = client.records(topic, partition=number)
                name = f"{topic}-{number}"
                leader = directories[partition.leader] / name
                if topic == "keyed":
                    assert _newest(theirs) == _newest(read_records(ours)), name
                    continue
                assert theirs == read_records(ours), name
                start = ours.log_start_offset
                assert _batches(leader, start) == _batches(copy / name, start), name
                if len(brokers) == 1:  # Replicas roll segments at different offsets.
                    compared += _compare_files(leader, copy / name)
    assert compared > 0 or len(brokers) > 1, "no log file was compared"


def _batches(directory: Path, start: int) -> dict[int, bytes]:
    """Return a log's batches from offset `start` on by base offset."""
    found: dict[int, bytes] = {}
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for batch in scan(data):
            if batch.last_offset >= start:
                found[batch.base_offset] = data[batch.position : batch.end_position]
    return found


def _newest(records: list[Record]) -> dict[bytes | None, Record]:
    newest = {record.key: record for record in records}
    return {key: record for key, record in newest.items() if record.value is not None}


def _compare_files(theirs: Path, ours: Path) -> int:
    """Compare the files that exist in both directories, and return their number.

    The number may be 0. After all records are deleted, a broker continues in a new file that begins at its log start,
    while the copy keeps the file that contains this log start.
    """
    names = {path.name for path in ours.glob("*.log")} & {path.name for path in theirs.glob("*.log")}
    for name in names:
        assert (theirs / name).read_bytes() == (ours / name).read_bytes(), (
            f"{theirs / name} and {ours / name}"
        )
    return len(names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home, java = Path(folder), find_java()
        if given.brokers == 1:
            brokers = [stack.enter_context(running_broker(home / "node", java))]
        else:
            brokers = list(stack.enter_context(running_cluster(home, java)).values())
        done = kill_mirrors(home, brokers, kills=given.kills, seed=given.seed)
    let_go()
    say(f"{given.kills} kills: {', '.join(f'{count} {name}' for name, count in sorted(done.items()))}")


if __name__ == "__main__":
    main()
