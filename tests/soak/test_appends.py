"""The short form of the soak test `appends`: leaders change during writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.broker.broker import running_cluster
from testing.broker.libraries import Java
from tests.soak.appends import append_while_leaders_go


@pytest.mark.java
@pytest.mark.fuse
def test_files_are_whole_while_leaders_go(tmp_path: Path, java: Java) -> None:
    """While leaders change, each file whose `cat` succeeded is in its partition once and in order."""
    with running_cluster(tmp_path / "three", java) as brokers:
        done = append_while_leaders_go(tmp_path, brokers, moves=2, seed=1)
    assert done["files"] > done["files that were refused"]
