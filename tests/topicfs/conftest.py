"""Fixtures that run the command in the test's process."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.doubles.forks import COMMAND, FORKS
from tests.doubles.waiting import TIMEOUT_SECONDS
from tests.pipeline.conftest import connector, spark
from topicfs.main import run
from topicfs.replication.replicas.startup import open_replicas
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk.lock import DirectoryLock

__all__ = ["connector", "spark"]


class Ran(NamedTuple):
    """The exit status and the output of a command."""

    status: int
    output: bytes
    errors: bytes

    @property
    def text(self) -> str:
        return self.output.decode()


Topicfs = Callable[..., Ran]
TOPICFS = str(Path(sys.executable).with_name("topicfs"))
BOTH = "a,b"


def assert_refused(ran: Ran, reason: str, status: int = 1) -> None:
    """Check that a command failed with `status`, and that its standard error contains `reason`."""
    assert (status, True) == (ran.status, reason in ran.errors.decode()), ran


@contextmanager
def mounted(directories: Path | str, mountpoint: Path, *options: str) -> Iterator[Path]:
    """Mount `directories` at `mountpoint` during the `with` block."""
    mountpoint.mkdir()
    subprocess.run([TOPICFS, "mount", *options, directories, mountpoint], check=True)
    try:
        yield mountpoint
    finally:
        subprocess.run([TOPICFS, "umount", mountpoint], check=True)


def on_a_terminal(*words: str, **variables: str) -> str:
    """Run the command on a terminal, with additional environment variables, and return its output."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", **variables}
    with open(ours, "rb", buffering=0) as screen:
        command = FORKS.start(COMMAND, *words, files=(None, theirs, theirs), environment=environment)
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # EIO means that no process has the terminal open for writing.
            while part := screen.read(4096):
                shown += part
    assert 0 == command.wait(TIMEOUT_SECONDS)
    return shown.decode()


@pytest.fixture
def directory(tmp_path, monkeypatch) -> Path:
    """A data directory that does not exist yet, at the path `./data`, which is the command's default."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOPICFS_DATA", raising=False)
    return tmp_path / "data"


@pytest.fixture
def topicfs(directory, capsysbinary, monkeypatch) -> Topicfs:
    """Return a function that runs `topicfs WORD…`, with `stdin` as standard input, and returns a Ran."""

    def execute(*words: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = run(words)
        output, errors = capsysbinary.readouterr()
        return Ran(status, output, errors)

    return execute


@pytest.fixture
def orders(topicfs) -> Topicfs:
    """The fixture `topicfs`, with a topic `orders` that has the records one, two, three at offsets 0 to 2."""
    topicfs("topics", "create", "orders")
    topicfs("append", "orders/0", stdin=b"one\ntwo\nthree\n")
    return topicfs


@pytest.fixture
def owned(directory) -> Iterator[None]:
    """Lock the data directory, as a daemon without a mount does."""
    lock = DirectoryLock(directory)
    yield
    lock.release()


@pytest.fixture
def replicated(topicfs, monkeypatch) -> Topicfs:
    """The fixture `topicfs` with two replica directories, and a topic `orders` of two records in both of them."""
    monkeypatch.setenv("TOPICFS_DATA", BOTH)
    both = [Path(name) for name in BOTH.split(",")]
    with closing(
        open_replicas(both, config=EngineConfig(replication_factor=2), in_background=False)
    ) as engine:
        engine.create_topic("orders")
    assert 0 == topicfs("append", "orders/0", stdin=b"one\ntwo\n").status
    return topicfs


@pytest.fixture
def mnt(orders, directory, tmp_path) -> Iterator[Path]:
    """The mountpoint of a daemon that owns the directory, with `orders` of three records and a schema for it."""
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "7.avsc").write_text('"int"')
    (schemas / "orders-value.avsc").symlink_to("7.avsc")
    (tmp_path / "server.properties").write_text("num.partitions=2\n")
    options = ("--config", "server.properties", "--schema-dir", "schemas")
    with mounted(directory, tmp_path / "mnt", *options) as mountpoint:
        yield mountpoint


@pytest.fixture
def kept(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the Spark session when a job ends, because other tests use the session too."""
    monkeypatch.setattr(type(spark), "stop", lambda session: None)
