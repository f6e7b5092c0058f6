"""Mirrors of the shared broker's topics, run in the test's own process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.interop.ours import read_records
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.fetch import EARLIEST
from topicfs.cluster.mirror.mirror import MirrorOptions, Summary, mirror
from topicfs.cluster.mirror.topics import TopicNames
from topicfs.cluster.place import ClusterAddress
from topicfs.cluster.protocol.connection import Connection
from topicfs.cluster.protocol.security import PLAINTEXT, Security
from topicfs.replication import open_engine


@dataclass
class Mirror:
    """A mirror of some topics in its own directory."""

    directory: Path
    address: ClusterAddress
    security: Security = PLAINTEXT
    said: list[str] = field(default_factory=list)

    def once(
        self, *topics: str, begin: int = EARLIEST, groups: bool = False, patience: float = 60
    ) -> Summary:
        """Copy the records that exist now."""
        options = MirrorOptions(
            names=TopicNames(topics, groups=groups), begin=begin, once=True, idle_timeout_seconds=patience
        )
        with closing(Brokers(self.address, partial(Connection, security=self.security))) as brokers:
            return mirror(self.directory, brokers, options, self.said.append, threading.Event())

    def forget_the_end(self) -> None:
        """Remove the ends of the copies from the journal, as if the mirror had been killed before it wrote them."""
        journal = self.directory / "topicfs.mirror"
        content = json.loads(journal.read_text())
        del content["ends"]
        journal.write_text(json.dumps(content))


@contextmanager
def running(address: ClusterAddress, directory: Path, *topics: str) -> Iterator[list[str]]:
    """Mirror topics in a thread during the block; yields the mirror's messages."""
    stop, said = threading.Event(), list[str]()
    options = MirrorOptions(names=TopicNames(topics), metadata_seconds=0.2)

    def run() -> None:
        with closing(Brokers(address)) as brokers:
            mirror(directory, brokers, options, said.append, stop)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield said
    finally:
        stop.set()
        thread.join()


def values(directory: Path, topic: str, number: int = 0) -> list[bytes | None]:
    """Return the values in a partition of a copy."""
    with closing(open_engine(directory, read_only=True)) as engine:
        return [record.value for record in read_records(engine.partition(topic, number))]


@pytest.fixture
def copy(tmp_path, address):
    return Mirror(tmp_path / "copy", address)
