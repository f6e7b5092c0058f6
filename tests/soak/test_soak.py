"""The soak's short form: everything at once, with both request loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.cycle import run_cycle


@pytest.mark.fuse
@pytest.mark.parametrize("request_loop", ["short", "plain"])
def test_everything_at_once(tmp_path: Path, request_loop: str):
    """Nothing is lost, doubled, reordered or stuck, and the mount ends in order under load."""
    cycle = run_cycle(tmp_path / "soak", seconds=4, request_loop=request_loop)

    assert {
        name
        for name, seen in cycle.seen.items()
        for counted, value in seen.items()
        if not value and counted != "syncs"
    } == set()
