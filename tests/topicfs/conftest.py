"""Fixtures that run the command in the test's process."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.pipeline.conftest import connector, spark
from topicfs.main import run

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
TOPICFS = Path(sys.executable).with_name("topicfs")


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
def mnt(orders, directory, tmp_path) -> Iterator[Path]:
    """The mountpoint of a daemon that owns the directory, with `orders` of three records and a schema for it."""
    mountpoint, schemas = tmp_path / "mnt", tmp_path / "schemas"
    mountpoint.mkdir()
    schemas.mkdir()
    (schemas / "7.avsc").write_text('"int"')
    (schemas / "orders-value.avsc").symlink_to("7.avsc")
    (tmp_path / "server.properties").write_text("num.partitions=2\n")
    asked = [
        "mount",
        "--config",
        "server.properties",
        "--schema-dir",
        "schemas",
        str(directory),
        str(mountpoint),
    ]
    subprocess.run([str(TOPICFS), *asked], check=True)
    try:
        yield mountpoint
    finally:
        subprocess.run([str(TOPICFS), "umount", str(mountpoint)], check=True)


@pytest.fixture
def kept(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the Spark session when a job ends, because other tests use the session too."""
    monkeypatch.setattr(type(spark), "stop", lambda session: None)
