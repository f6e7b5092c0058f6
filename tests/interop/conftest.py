"""Fixtures: Java, one running broker and a client, shared by all tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.broker.broker import Broker, running_broker
from testing.broker.client import Client, let_go
from testing.broker.libraries import Java


@pytest.fixture(scope="session")
def broker(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The shared running broker; a test that stops it starts it again. Each test has its own topics."""
    with running_broker(tmp_path_factory.mktemp("kafka") / "node", java) as broker:
        yield broker


@pytest.fixture(scope="session")
def client(broker: Broker) -> Iterator[Client]:
    yield Client(broker.bootstrap_server)
    let_go()
