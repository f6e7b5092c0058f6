"""A data directory that is served to Kafka clients in this process, and clients of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from testing.broker.broker import Broker, running_broker
from testing.broker.libraries import Java, UnavailableError, find_java
from tests.listener.serving import Served, serve
from topicfs.listener.limits import ListenerLimits


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Serve directories: `start()`, with limits or other directories where a test needs them; ended after the test."""
    with ExitStack() as stack:

        def begin(*directories: Path, **how: object) -> Served:
            return stack.enter_context(closing(serve(directories or (tmp_path / "data",), **how)))

        yield begin


@pytest.fixture
def served(start: Callable[..., Served]) -> Served:
    """A new directory that is served; a client that stalls is given up soon."""
    return start(limits=ListenerLimits(stall_seconds=5.0))


@pytest.fixture(scope="session")
def java() -> Java:
    """Skips, with the reason in one line, where Java or the jars cannot be had."""
    try:
        return find_java()
    except UnavailableError as error:
        pytest.skip(f"no Kafka client: {error}")


@pytest.fixture(scope="session")
def broker(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real broker, whose answers are the measure."""
    settings = {"auto.create.topics.enable": "true"}
    with running_broker(tmp_path_factory.mktemp("kafka") / "node", java, settings) as broker:
        yield broker
