"""Fixtures: Java, one running broker and a client, shared by all tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.broker.broker import Broker, running_broker
from testing.broker.client import Client, let_go
from testing.broker.libraries import Java
from tests.doubles.broker_away import back_again


@pytest.fixture(scope="session")
def broker(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The shared running broker; a test that stops it starts it again. Each test has its own topics."""
    with running_broker(tmp_path_factory.mktemp("kafka") / "node", java) as broker:
        yield broker


@pytest.fixture(scope="session")
def client(broker: Broker) -> Iterator[Client]:
    yield Client(broker.bootstrap_server)
    let_go()


@pytest.fixture(scope="module")
def own_node(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"share.coordinator.state.topic.num.partitions": "4"}
    with running_broker(tmp_path_factory.mktemp("own") / "node", java, settings) as broker:
        yield broker


@pytest.fixture
def node(own_node: Broker) -> Iterator[Broker]:
    """A module's own broker, which runs before each test, even if an earlier test has stopped it."""
    with back_again(own_node):
        yield own_node
