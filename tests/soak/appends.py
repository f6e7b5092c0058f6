"""`python -m tests.soak appends [--moves N] [--seed N]`: leaders change repeatedly while files are appended.

A mount of three brokers has up to five large writes of a file in flight. Three shells append files to two partitions,
and a fourth appends single lines, while two of the brokers are stopped, killed or paused in turn. In the end each
file whose `cat` succeeded is in its partition once and in order; a file whose `cat` failed is there only up to some
line.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from testing.broker.broker import Broker, running_cluster
from testing.broker.client import Client, let_go
from testing.broker.libraries import find_java
from tests.doubles.broker_away import away
from tests.doubles.cluster_mount import mounted_cluster
from tests.doubles.waiting import wait_until
from tests.soak import say
from topicfs.cluster.place import cluster_address

TOPIC = "files"
REPLICAS = (2, 3, 1)
LINES = (1, 40_000)
"""Minimum and maximum number of lines in a file; a line has 100 bytes, and the largest file needs eight writes."""
LINE_BYTES = 100
AWAY_SECONDS = (0.2, 4.0)
BETWEEN_SECONDS = (0.5, 3.0)


class Written(NamedTuple):
    """A file that was appended."""

    name: str
    partition: int
    lines: int
    status: int
    """The exit status of `cat`."""

    def text(self) -> list[bytes]:
        return [f"{self.name} {number} ".encode().ljust(LINE_BYTES - 1, b".") for number in range(self.lines)]


class Shell(threading.Thread):
    """A shell that appends file after file until `stop` is set."""

    def __init__(self, mountpoint: Path, number: int, chance: random.Random, *, max_lines: int) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.written: list[Written] = []
        self._mountpoint, self._number = mountpoint, number
        self._chance, self._most_lines = chance, max_lines

    def run(self) -> None:
        source = self._mountpoint.parent / f"source-{self._number}"
        while not self.stop.is_set():
            name, partition = f"{self._number}-{len(self.written)}", self._chance.randrange(2)
            one = Written(name, partition, self._chance.randint(1, self._most_lines), 0)
            source.write_bytes(b"".join(line + b"\n" for line in one.text()))
            log = self._mountpoint / TOPIC / str(partition) / "log"
            status = subprocess.run(
                ("sh", "-c", f"cat {source} >> {log}"), stderr=subprocess.DEVNULL, check=False
            ).returncode
            self.written.append(one._replace(status=status))


def append_while_leaders_go(
    home: Path, brokers: Mapping[int, Broker], *, moves: int, seed: int
) -> Counter[str]:
    """Append files while brokers stop and restart `moves` times; return the numbers of stops and of files by kind."""
    client, chance = Client(brokers[1].bootstrap_server), random.Random(seed)
    client.create_topic(TOPIC, partitions=2, replicas=REPLICAS, settings={"min.insync.replicas": "2"})
    done: Counter[str] = Counter()
    address = cluster_address(f"kafka://{client.bootstrap_server}")
    with mounted_cluster(address, home, "--max-in-flight", "5") as mountpoint:
        wait_until((mountpoint / TOPIC / "1/log").exists, "the topic shows")
        shells = [
            Shell(mountpoint, number, random.Random(seed + number), max_lines=LINES[1] if number else 1)
            for number in range(4)
        ]
        for shell in shells:
            shell.start()
        for _ in range(moves):
            time.sleep(
                chance.uniform(*BETWEEN_SECONDS)
            )  # A random moment that does not depend on what the mount does.
            how = chance.choice(("stopped", "killed", "standing still"))
            with away(brokers[chance.choice((2, 3))], how):
                time.sleep(chance.uniform(*AWAY_SECONDS))  # The broker stays away for this time.
            done[how] += 1
        for shell in shells:
            shell.stop.set()
        for shell in shells:
            shell.join()
    written = [one for shell in shells for one in shell.written]
    for partition in range(2):
        _compare([one for one in written if one.partition == partition], client, partition)
    done["files"], done["files that were refused"] = len(written), sum(one.status != 0 for one in written)
    return done


def _compare(written: list[Written], client: Client, partition: int) -> None:
    """Check that the partition has the files in `written`."""
    found: dict[bytes, list[bytes]] = {}
    for record in client.records(TOPIC, partition=partition):
        assert record.value is not None
        found.setdefault(record.value.split(b" ", 1)[0], []).append(record.value)
    for one in written:
        mine, text = found.pop(one.name.encode(), []), one.text()
        assert text[: len(mine)] == mine, f"{one}: the {len(mine)} lines in the log are not its first lines"
        assert one.status or len(mine) == one.lines, f"{one}: only {len(mine)} lines are in the log"
    assert not found, f"the log has lines that no shell wrote: {list(found)[:5]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--moves", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with running_cluster(home, find_java()) as brokers:
            done = append_while_leaders_go(home, brokers, moves=given.moves, seed=given.seed)
        let_go()
    say(f"{', '.join(f'{count} {name}' for name, count in sorted(done.items()))}; none lost or doubled")


if __name__ == "__main__":
    main()
