"""Tests that a topic has each input once, whichever process of a streaming query is killed. `soak` repeats this."""

from __future__ import annotations

import pytest

from tests.pipeline.crashes import Moment, Scene

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1800),  # several sessions in sequence, on a busy machine
]


@pytest.fixture
def scene(tmp_path):
    """Make input, a topic of two partitions, a daemon that owns the directory, and a person at its mount."""
    scene = Scene(tmp_path, mounted=True)
    yield scene
    scene.clean_up()


@pytest.mark.fuse
def test_whoever_is_killed_doubles_and_loses_nothing(scene, chance):
    """No record is duplicated or lost when the daemon is killed, or when the driver is killed with or without a daemon.

    A last run writes the remaining records. Its tasks fail after writing, but the owner never appends files that a
    failed attempt staged, and none of these files is left. The soak kills at other moments.
    """
    scene.start()
    scene.until_committed()
    scene.until_moment(Moment.REQUESTED, chance)
    scene.kill_daemon()
    scene.until_moment(Moment.ANY, chance)
    scene.remount()
    scene.check_after_a_kill()
    scene.until_committed()
    scene.until_moment(Moment.STAGED, chance)
    scene.kill_driver()
    scene.check_after_a_kill()
    scene.kill_daemon()
    scene.start()
    scene.until_committed()
    scene.until_moment(Moment.CLAIMED, chance)
    scene.kill_driver()
    scene.remount()
    scene.check_after_a_kill()
    witness = scene.folder / "failed"
    scene.finish("--flaky", str(witness))
    assert witness.exists()
    scene.check_at_the_end()
