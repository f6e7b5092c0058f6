"""Fixtures for tests of programs that use Kafka. pytest finds them wherever topicfs is installed."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from topicfs.api.server import Server

MAX_NAME_LENGTH = 150
"""Longest part of a prefix that comes from the test's name. Kafka allows topic names of 249 characters."""


@pytest.fixture(scope="session")
def topicfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Kafka broker for all tests of a session, over a new data directory. Connect to its `bootstrap_servers`."""
    import topicfs

    # The first group creates __consumer_offsets. With one partition instead of 50, the default, this takes
    # 0.2 s less.
    settings = {"offsets.topic.num.partitions": 1}
    with topicfs.serve(tmp_path_factory.mktemp("topicfs") / "data", settings=settings) as server:
        yield server


@pytest.fixture
def topicfs_prefix(request: pytest.FixtureRequest) -> str:
    """A prefix for names of topics and groups that no other test uses."""
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:MAX_NAME_LENGTH]
    return f"{name}-{uuid.uuid4().hex[:8]}-"
