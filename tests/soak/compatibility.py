"""`python -m tests.soak compatibility [--releases 2.8.0,4.3.1] [--lines N] [--seed N]`: use several Kafka releases.

For each release, Maven downloads Kafka, Kafka's tool formats the broker's directory, and the broker's topics are
mounted. The session appends and reads files, reads records of every codec and of transactions, and follows a topic.
It reads in groups and sets their positions, changes settings, mirrors the topics, and shows them in `topicfs top`. The
mount must show what a Kafka client finds in the broker, and vice versa.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from testing.broker.broker import Broker
from testing.broker.client import Client, Outgoing, let_go
from testing.broker.libraries import KAFKA, Java, find_java, find_java_of
from testing.processes import ending_with_this
from tests.doubles.cluster_mount import bash, mounted_cluster, topicfs
from tests.doubles.forks import COMMAND, FORKS
from tests.doubles.waiting import wait_until
from tests.interop.ours import read_records
from tests.soak import say
from topicfs.cluster.place import ClusterAddress, cluster_address
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.replication import open_engine
from topicfs.storage.config.properties import format_properties
from topicfs.storage.disk.native import NativeFileSystem

OLDER = ("2.8.0", "3.0.2", "3.9.1")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC, MADE, OTHER, GROUP, OTHER_GROUP = "session", "made", "theirs", "readers", "others"

WITHOUT_ZOOKEEPER = frozenset(
    {
        "process.roles",
        "node.id",
        "controller.listener.names",
        "controller.quorum.voters",
        "broker.session.timeout.ms",
        "broker.heartbeat.interval.ms",
        "metadata.max.idle.interval.ms",
    }
)
"""Settings that only a broker in KRaft mode has."""


class ZooKeeperBroker(Broker):
    """A broker with ZooKeeper; ZooKeeper listens on the port that other brokers use for their controller."""

    def __init__(self, home: Path, java: Java, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(home, java, settings)
        self._zookeeper: subprocess.Popen[bytes] | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper.wait()

    def format(self, *, by_tool: bool = False) -> None:
        """Write the settings; this release formats an empty directory itself when it starts."""
        self.log_dir.mkdir(parents=True)
        self._properties_file.write_bytes(format_properties(self._properties()))

    def launch(self) -> None:
        """Start ZooKeeper and the broker. Call this from the main thread, as for any broker."""
        if self._zookeeper is None:
            settings = {
                "dataDir": str(self.home / "zookeeper"),
                "clientPort": str(self.controller_port),
                "clientPortAddress": "127.0.0.1",
                "admin.enableServer": "false",
            }
            file = self.home / "zookeeper.properties"
            file.write_bytes(format_properties(settings))
            program = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            command = self._java.command(program, str(file), heap="128M", temporary=self.home)
            with (self.home / "zookeeper.log").open("wb") as output:
                self._zookeeper = subprocess.Popen(
                    ending_with_this(command, "KILL"),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
        super().launch()

    def _properties(self) -> dict[str, str]:
        given = super()._properties()
        kept = {name: value for name, value in given.items() if name not in WITHOUT_ZOOKEEPER}
        return {
            **kept,
            "listeners": given["advertised.listeners"],
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
            "broker.id": str(self.node),
            "zookeeper.connect": f"127.0.0.1:{self.controller_port}",
        }


class Session(NamedTuple):
    """A broker, and its mount."""

    broker: Broker
    client: Client
    address: ClusterAddress
    home: Path
    mountpoint: Path
    chance: random.Random
    lines: int
    done: Counter[str]

    def run(self, script: str) -> str:
        """Return the output of a shell in the mount."""
        ran = bash(self.mountpoint, f"set -e; {script}")
        assert 0 == ran.status, f"{script}: {ran.errors}"
        return ran.output

    def command(self, *words: str) -> str:
        """Return the output of a `topicfs` command over the cluster."""
        ran = topicfs(self.address, *words)
        assert 0 == ran.status, f"topicfs {' '.join(words)}: {ran.errors}"
        return ran.output

    def values(self, partition: int = 0) -> list[bytes]:
        return [one.value or b"" for one in self.client.records(TOPIC, partition=partition)]

    def end(self) -> int:
        """Return the sum of both partitions' end offsets, including the offsets of transaction markers."""
        return sum(self.client.offset_for(TOPIC, partition=number) for number in range(2))


def _append_and_read(session: Session) -> None:
    """Append a file to one partition; a client writes to the other partition with each codec and in transactions."""
    source = session.home / "source"
    lines = [b"%d %d" % (number, session.chance.getrandbits(400)) for number in range(session.lines)]
    source.write_bytes(b"".join(line + b"\n" for line in lines))
    session.run(f"cat {source} >> {TOPIC}/0/log; cmp {source} {TOPIC}/0/log")
    assert lines == session.values()
    for codec in CODECS:
        records = [Outgoing(line) for line in lines[: session.lines // len(CODECS)]]
        session.client.produce(TOPIC, records, partition=1, batch=100, compression_type=codec)
    producer = session.client.producer(transactional_id=TOPIC)
    producer.init_transactions(30)
    for commit in (False, True, False):
        with session.client.transaction(producer, commit=commit):
            producer.produce(TOPIC, b"committed" if commit else b"aborted", partition=1)
    theirs = session.values(1)
    assert b"committed" == theirs[-1]
    shown = "the records of all codecs are shown"
    wait_until(lambda: (session.mountpoint / TOPIC / "1/log").read_bytes().splitlines() == theirs, shown)
    session.done["lines appended"] += len(lines)
    session.done["records read"] += len(lines) + len(theirs)


def _follow(session: Session) -> None:
    """Check that a follower gets lines that the mount and a client append."""
    output = session.home / "followed"
    with output.open("wb") as file:
        path = session.mountpoint / TOPIC / "0/follow"
        reader = subprocess.Popen(("cat", str(path)), stdout=file, stdin=subprocess.DEVNULL)
    try:
        for number in range(20):
            session.run(f"echo mine {number} >> {TOPIC}/0/log")
            session.client.produce(TOPIC, [Outgoing(b"theirs %d" % number)])
        wait_until(lambda: output.read_bytes().endswith(b"theirs 19\n"), "the last line was followed")
    finally:
        reader.terminate()
        reader.wait()
    assert output.read_bytes().splitlines() == session.values()[-40:]
    session.done["lines followed"] += 40


def _read_in_groups(session: Session) -> None:
    """Read as a new group, show another client's group, and set the positions of both groups."""
    group = f"@groups/{GROUP}"
    given = session.run(f"mkdir {group}; cat {group}/{TOPIC}/drain").splitlines()
    assert sorted(given) == sorted(one.decode() for number in range(2) for one in session.values(number))
    wait_until(
        lambda: "lag 0" in session.run(f"cat {group}/status").splitlines(), "the group's positions are set"
    )
    session.client.consume_in_group(OTHER_GROUP, TOPIC, 10)
    assert {GROUP, OTHER_GROUP} <= set(session.command("groups", "list").split())
    for name, count in ((GROUP, session.end()), (OTHER_GROUP, 10)):
        (described,) = json.loads(session.command("groups", "describe", name, "--json"))
        assert "Empty" == described["state"], described
        assert sum(one["position"] for one in described["positions"]) == count, described
    session.run(f"echo earliest > {group}/{TOPIC}/0/position")
    session.command("groups", "reset", OTHER_GROUP, "--topic", TOPIC, "--to-latest")
    first = len(session.values())
    wait_until(
        lambda: f"lag {first}" in session.run(f"cat {group}/status").splitlines(),
        "the group's position is set",
    )
    assert "" == session.command("cat", "--group", OTHER_GROUP, f"{TOPIC}/log")
    session.command("groups", "delete", OTHER_GROUP)
    assert OTHER_GROUP not in session.command("groups", "list").split()
    session.done["records given to groups"] += len(given)


def _change_topics(session: Session) -> None:
    """Create a topic by mkdir; then change, extend, trim and remove it. A client creates and deletes another topic."""
    session.run(f"mkdir {MADE}; echo one >> {MADE}/0/log; echo two >> {MADE}/0/log")
    session.command("config", MADE, "retention.ms=3600000", "max.message.bytes=100000")
    shown = json.loads(session.command("config", MADE, "--set", "--json"))
    assert {"retention.ms": "3600000", "max.message.bytes": "100000"}.items() <= {
        one["name"]: str(one["value"]) for one in shown
    }.items(), shown
    session.run(f"echo retention.ms=7200000 > {MADE}/config; grep '^retention.ms=7200000' {MADE}/config")
    session.run(f"mkdir {MADE}/1; echo three >> {MADE}/1/log; echo 1 > {MADE}/0/start")
    assert ["two", "three"] == session.run(f"cat {MADE}/0/log {MADE}/1/log").split()
    session.command("topics", "delete", MADE, "--with-records")
    wait_until(lambda: MADE not in session.client.topics(), "the topic is gone")
    session.client.create_topic(OTHER)
    wait_until((session.mountpoint / OTHER).exists, "a topic that a client makes shows")
    session.client.delete_topics([OTHER])
    wait_until(lambda: not (session.mountpoint / OTHER).exists(), "the topic that a client deleted is gone")
    session.done["changes of topics"] += 8


def _mirror(session: Session) -> None:
    """Mirror the topic and the groups' positions; compare records and files with those of the broker."""
    copy = session.home / "copy"
    ended = FORKS.run(COMMAND, "mirror", str(session.address), str(copy), "--once", "--groups")
    assert 0 == ended.status, ended.errors.decode()
    assert not [*DirectoryCheck(copy, NativeFileSystem(read_only=True)).findings()]
    with closing(open_engine(copy, read_only=True)) as engine:
        for number in range(2):
            found = read_records(engine.partition(TOPIC, number))
            assert found == session.client.records(TOPIC, partition=number)
            session.done["records mirrored"] += len(found)
    for path in copy.glob(f"{TOPIC}-*/*.log"):
        theirs = session.broker.log_dir / path.relative_to(copy)
        assert path.read_bytes() == theirs.read_bytes(), path


def _top(session: Session) -> None:
    """Compare the figures of `topicfs top` for the cluster and for its mount."""
    for place in (str(session.address), str(session.mountpoint)):
        ended = FORKS.run(COMMAND, "top", "--json", "--interval", "0.1", place)
        assert 0 == ended.status, ended.errors.decode()
        shown = next(one for one in json.loads(ended.output)["topics"] if one["topic"] == TOPIC)
        assert (shown["partitions"], shown["records"]) == (2, session.end()), shown


STEPS = (_append_and_read, _follow, _read_in_groups, _change_topics, _mirror, _top)


def visit(home: Path, java: Java, *, zookeeper: bool = False, lines: int, seed: int) -> Counter[str]:
    """Run all steps with a broker of the release in `java`, with or without ZooKeeper; return what was done."""
    kind, done = ZooKeeperBroker if zookeeper else Broker, Counter[str]()
    with kind(home / "node", java) as broker:
        broker.format(by_tool=True)
        broker.start()
        client = Client(broker.bootstrap_server)
        client.create_topic(TOPIC, partitions=2)
        address = cluster_address(f"kafka://{broker.bootstrap_server}")
        with mounted_cluster(address, home, "--allow-delete") as mountpoint:
            wait_until((mountpoint / TOPIC / "1/log").exists, "the topic shows")
            session = Session(
                broker, client, address, home, mountpoint, random.Random(seed), lines=lines, done=done
            )
            for step in STEPS:
                step(session)
    return done


def present() -> str:
    """Return the release that all tests use."""
    found = re.search(r"<kafka\.version>([^<]+)", KAFKA.pom.read_text())
    assert found is not None
    return found[1]


def main() -> None:
    newest = present()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--releases", default=",".join((*OLDER, newest)))
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for release in given.releases.split(","):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            java = find_java() if release == newest else find_java_of(release)
            zookeeper = release.startswith("2.")
            done = visit(Path(folder), java, zookeeper=zookeeper, lines=given.lines, seed=given.seed)
        let_go()
        counts = ", ".join(f"{count:,} {name}" for name, count in done.items())
        say(f"Kafka {release}: {counts}; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
