"""Whatever dies in a streaming query, the topic has each input once. `soak` is the long form."""

from __future__ import annotations

import pytest

from tests.pipeline.crashes import Moment, Scene

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1800),  # several sessions, one after the other, however busy the machine
]


@pytest.fixture
def scene(tmp_path):
    """Input, a topic of two partitions, a daemon that owns the data directory, and a person who appends through its mount."""
    scene = Scene(tmp_path, mounted=True)
    yield scene
    scene.clean_up()


@pytest.mark.fuse
def test_whoever_is_killed_doubles_and_loses_nothing(scene, chance):
    """The daemon under a driver, which goes on alone until there is one again; and the driver, beside a daemon and alone.

    A run to the end brings the rest, although its tasks fail after writing: what a failed attempt staged is never
    appended, and no file of it stays. Other moments are in the soak.
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
