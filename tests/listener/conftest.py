"""Fixtures: a data directory served to Kafka clients by this process, and its clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from testing.broker.broker import Broker, running_broker
from testing.broker.libraries import Java, UnavailableError, find_java
from tests.doubles.certificates import Certificates
from tests.listener.daemon import Daemon
from tests.listener.serving import RawClient, Served, serve
from topicfs.listener.limits import ListenerLimits
from topicfs.listener.security.files import SecurityFiles
from topicfs.listener.security.users import entry


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """A function that serves a new directory, or the directories and limits that a test passes.

    After the test the directories are closed.
    """
    with ExitStack() as stack:

        def begin(*directories: Path, **how: object) -> Served:
            return stack.enter_context(closing(serve(directories or (tmp_path / "data",), **how)))

        yield begin


@pytest.fixture
def served(start: Callable[..., Served]) -> Served:
    """A new served directory. Its listener soon disconnects a stalled client."""
    return start(limits=ListenerLimits(stall_seconds=5.0))


@pytest.fixture
def client(served: Served) -> RawClient:
    """A connection to the served directory."""
    return served.client()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """A function that starts `topicfs serve` with options. After the test the processes are killed."""
    started: list[Daemon] = []

    def begin(*options: str, **how: str) -> Daemon:
        started.append(Daemon(tmp_path, *options, **how))
        return started[-1]

    yield begin
    for one in started:
        one.process.kill()


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A file of users: alice, with the password `alice-secret`."""
    path = tmp_path / "users"
    path.touch(mode=0o600)
    path.write_text(entry("alice", "alice-secret"))
    return path


@pytest.fixture
def guarded(start: Callable[..., Served], users: Path) -> Served:
    """A served directory that requires the password of a user."""
    return start(security=SecurityFiles(users=users), limits=ListenerLimits(stall_seconds=5.0))


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def java() -> Java:
    """Java and its jars. If they are unavailable, the test is skipped with a one-line reason."""
    try:
        return find_java()
    except UnavailableError as error:
        pytest.skip(f"no Kafka client: {error}")


@pytest.fixture(scope="session")
def broker(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real broker, whose answers are the reference."""
    settings = {"auto.create.topics.enable": "true"}
    with running_broker(tmp_path_factory.mktemp("kafka") / "node", java, settings) as broker:
        yield broker
