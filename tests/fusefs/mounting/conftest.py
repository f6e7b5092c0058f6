"""A socket in place of the one at which a system service listens."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.waiting import TIMEOUT_SECONDS


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """A datagram socket in a folder with a short name, because a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(Path(folder) / "server"))
        server.settimeout(TIMEOUT_SECONDS)
        yield server
