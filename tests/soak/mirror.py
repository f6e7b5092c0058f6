"""`python -m tests.soak mirror [--kills N] [--seed N]`: a mirror of a busy broker is killed again and again, and goes on.

Meanwhile records come to a plain topic, a transactional one and one that is compacted, records are deleted, and a topic
is deleted and made again. In the end a last run copies the rest: every record of the broker is in the copy at its own
offset, the files that both have are the same, and `topicfs check` finds nothing.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from storage.disk.native import NativeFileSystem
from storage.inspect.check.directory import DirectoryCheck
from storage.manager import open_engine
from storage.model import Record
from testing.broker.broker import Broker, running_broker
from testing.broker.client import Client, Outgoing, let_go
from testing.broker.libraries import find_java
from tests.interop.ours import read_records

PARTITIONS = 3
LONGEST_LIFE_S = 4.0
SEGMENTS = {"segment.bytes": "1048576"}
TOPICS = {
    "plain": SEGMENTS,
    "transactions": SEGMENTS,
    "keyed": {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01"},
    "remade": {},
}
COMMAND = (sys.executable, "-c", "from topicfs.main import main; main()", "mirror")


class Load(threading.Thread):
    """What comes to the broker until `stop` is set; an error is raised by `join_or_raise`."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.done: Counter[str] = Counter()
        self._client, self._chance = client, chance
        self._error: Exception | None = None
        self._transactional = client.producer(transactional_id="soak")
        self._transactional.init_transactions(30)

    def run(self) -> None:
        steps: list[Callable[[], None]] = [self._plain] * 6 + [self._transaction] * 4 + [self._keyed] * 4
        steps += [self._remake, self._delete]
        try:
            while not self.stop.is_set():
                step = self._chance.choice(steps)
                step()
                self.done[step.__name__.removeprefix("_")] += 1
        except Exception as error:  # noqa: BLE001 (it is raised in the thread that waits)
            self._error = error

    def join_or_raise(self) -> None:
        self.stop.set()
        self.join()
        if self._error is not None:
            raise self._error

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
        with self._client.transaction(self._transactional, commit=self._chance.random() < 0.6):
            for one in self._some():
                self._transactional.produce("transactions", one.value, one.key, self._partition())

    def _keyed(self) -> None:
        records = [one if self._chance.random() < 0.8 else Outgoing(None, one.key) for one in self._some()]
        self._client.produce("keyed", records, partition=self._partition())

    def _delete(self) -> None:
        number = self._partition()
        end = self._client.offset_for("plain", partition=number)
        self._client.delete_records("plain", self._chance.randrange(end + 1), partition=number)

    def _remake(self) -> None:
        self._client.admin.delete_topics(["remade"])["remade"].result(30)
        self._client.create_topic("remade", partitions=PARTITIONS)
        self._client.produce("remade", self._some(), partition=self._partition())


def kill_mirrors(home: Path, broker: Broker, *, kills: int, seed: int) -> Counter[str]:
    """Mirror the broker into `home`, ending each mirror but the last by kill -9; return what was done meanwhile."""
    client, chance, copy = Client(broker.bootstrap_server), random.Random(seed), home / "copy"
    for name, settings in TOPICS.items():
        client.create_topic(name, partitions=PARTITIONS, settings=settings)
    words = (*COMMAND, f"kafka://{client.bootstrap_server}", str(copy))
    load = Load(client, random.Random(seed + 1))
    load.start()
    try:
        for _ in range(kills):
            mirror = subprocess.Popen(words)
            time.sleep(chance.uniform(0.3, LONGEST_LIFE_S))
            mirror.send_signal(signal.SIGKILL)
            assert -signal.SIGKILL == mirror.wait(), "the mirror ended by itself"
    finally:
        load.join_or_raise()
    subprocess.run((*words, "--once"), check=True)
    compare(client, broker, copy)
    return load.done


def compare(client: Client, broker: Broker, copy: Path) -> None:
    """Compare the copy with its source."""
    findings = list(DirectoryCheck(copy, NativeFileSystem(read_only=True)).findings())
    assert [] == findings, findings
    compared = 0
    with closing(open_engine(copy, read_only=True)) as engine:
        for topic in TOPICS:
            for number in range(PARTITIONS):
                ours = read_records(engine.partition(topic, number))
                theirs = client.records(topic, partition=number)
                if topic == "keyed":
                    assert _newest(theirs) == _newest(ours), f"{topic}-{number}"
                else:
                    assert theirs == ours, f"{topic}-{number}"
                    compared += _compare_files(
                        broker.log_dir / f"{topic}-{number}", copy / f"{topic}-{number}"
                    )
    assert compared > 0, "no log file was compared"


def _newest(records: list[Record]) -> dict[bytes | None, Record]:
    newest = {record.key: record for record in records}
    return {key: record for key, record in newest.items() if record.value is not None}


def _compare_files(theirs: Path, ours: Path) -> int:
    """Compare the files that both have, and return their number.

    It may be none: a broker whose records were all deleted goes on in a new file that begins where its log starts,
    while the copy keeps the file that this start lies in.
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
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_broker(Path(folder) / "node", find_java()) as broker,
    ):
        done = kill_mirrors(Path(folder), broker, kills=given.kills, seed=given.seed)
    let_go()
    sys.stdout.write(
        f"{given.kills} kills: {', '.join(f'{count} {name}' for name, count in sorted(done.items()))}\n"
    )


if __name__ == "__main__":
    main()
