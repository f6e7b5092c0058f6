"""The soak's short form: everything at once, with each request loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.cycle import run_cycle
from tests.soak.followers import follow_for
from tests.soak.full_disk import keep_full


@pytest.mark.fuse
@pytest.mark.parametrize("request_loop", ["direct", "short", "plain"])
def test_everything_at_once(tmp_path: Path, request_loop: str):
    """Nothing is lost, doubled, reordered or stuck, and the mount ends in order under load."""
    cycle = run_cycle(tmp_path / "soak", seconds=2, request_loop=request_loop)

    assert {
        name
        for name, seen in cycle.seen.items()
        for counted, value in seen.items()
        if not value and counted != "syncs"
    } == set()


@pytest.mark.slow
def test_followers_of_all_speeds(tmp_path: Path):
    """Fifty of them get every line once and in order, beside aborts, rolls and retention, and some are overtaken."""
    counts = follow_for(tmp_path / "data", seconds=2, seed=1)

    assert set() == {
        name for name in ("lines", "commits", "aborts", "deleted", "followers") if not counts[name]
    }


@pytest.mark.root
@pytest.mark.fuse
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_disk_that_is_kept_full_gets_its_room_back_every_time(tmp_path: Path, kind: str) -> None:
    """By retention, compaction, a deleted topic, a shorter retention and a raised start; the mount ends in order."""
    seen = keep_full(tmp_path, seconds=4, kind=kind, size_mb=32)
    assert {"given back: delete", "given back: shorten", "given back: raise_start"} < set(seen)
