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
    """Input, a topic of two partitions, and nobody at work yet."""
    scene = Scene(tmp_path)
    yield scene
    scene.clean_up()


@pytest.fixture
def mounted(tmp_path):
    """The same with a daemon that owns the data directory, and a person who appends through its mount."""
    scene = Scene(tmp_path, mounted=True)
    yield scene
    scene.clean_up()


def test_a_driver_that_is_killed_doubles_and_loses_nothing(scene, chance):
    """SIGKILL of driver and JVM while a batch is handed in; then a run to the end, whose tasks fail after writing.

    What a failed attempt staged is never appended, and no file of it stays. Other moments are below, and in the soak.
    """
    scene.start()
    scene.until_committed()
    scene.until_moment(Moment.CLAIMED, chance)
    scene.kill_driver()
    scene.check_after_a_kill()
    witness = scene.folder / "failed"
    scene.finish("--flaky", str(witness))
    assert witness.exists()
    scene.check_at_the_end()


@pytest.mark.fuse
def test_a_daemon_that_is_killed_under_a_driver_doubles_and_loses_nothing(mounted, chance):
    """The driver goes on alone until there is a daemon again; then the driver is killed, too."""
    mounted.start()
    mounted.until_committed()
    mounted.until_moment(Moment.REQUESTED, chance)
    mounted.kill_daemon()
    mounted.until_moment(Moment.ANY, chance)
    mounted.remount()
    mounted.check_after_a_kill()
    mounted.until_committed()
    mounted.until_moment(Moment.STAGED, chance)
    mounted.kill_driver()
    mounted.check_after_a_kill()
    mounted.finish()
    mounted.check_at_the_end()
