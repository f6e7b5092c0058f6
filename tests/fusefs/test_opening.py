"""How the daemon of a mount acquires its data directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from topicfs.fusefs.daemon import OWNER_PATIENCE_SECONDS, MountOptions, open_when_free
from topicfs.replication import open_engine
from topicfs.storage.disk.lock import DirectoryLock
from topicfs.storage.errors import DirectoryLockedError


@pytest.fixture
def options(tmp_path: Path) -> MountOptions:
    open_engine(tmp_path / "data").close()
    return MountOptions(directories=(tmp_path / "data",), mountpoint=tmp_path / "mnt")


def test_an_owner_of_a_moment_is_waited_for(options):
    """The daemon waits for a process that owns the directory for a short time, such as a pipeline that commits."""
    lock = DirectoryLock(options.directories[0])
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            lock.release()

    open_when_free(options, clock=lambda: 0.0, sleep=sleep).close()
    assert 3 == len(pauses)


def test_an_owner_that_stays_is_reported(options):
    """After OWNER_PATIENCE_SECONDS the daemon fails, and its error names the process that owns the directory."""
    lock = DirectoryLock(options.directories[0])
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with pytest.raises(DirectoryLockedError, match="in use by process"):
        open_when_free(options, clock=lambda: now[0], sleep=sleep)
    assert OWNER_PATIENCE_SECONDS <= now[0] < OWNER_PATIENCE_SECONDS + 1
    lock.release()
