"""Mirrors of the shared broker's topics, run in the test's own process."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.fetch import EARLIEST
from topicfs.cluster.mirror.mirror import MirrorOptions, Summary, mirror
from topicfs.cluster.mirror.topics import TopicNames
from topicfs.cluster.place import ClusterAddress
from topicfs.cluster.protocol.connection import Connection
from topicfs.cluster.protocol.security import PLAINTEXT, Security


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


@pytest.fixture
def copy(tmp_path, address):
    return Mirror(tmp_path / "copy", address)
