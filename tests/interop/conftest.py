"""One Java, one running broker and one client of it for all the tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.broker.broker import Broker, running_broker
from testing.broker.client import Client, let_go
from testing.broker.libraries import Java, UnavailableError, find_java


@pytest.fixture(scope="session")
def java() -> Java:
    """Skips, with the reason in one line, where Java or the jars cannot be had."""
    try:
        return find_java()
    except UnavailableError as error:
        pytest.skip(f"no Kafka broker: {error}")


@pytest.fixture(scope="session")
def broker(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The one broker that the tests share, running; who stops it starts it again. Topics are each test's own."""
    with running_broker(tmp_path_factory.mktemp("kafka") / "node", java) as broker:
        yield broker


@pytest.fixture(scope="session")
def client(broker: Broker) -> Iterator[Client]:
    yield Client(broker.bootstrap_server)
    let_go()
