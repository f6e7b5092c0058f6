"""Another user mounts a forged `@status`; no command trusts it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.doubles.forks import COMMAND, FORKS
from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount, is_mounted
from topicfs.fusefs.mounting.mountpoint import daemon_values, mountpoint_of

pytestmark = [pytest.mark.fuse, pytest.mark.root]

NOBODY = "65534"
CLAIMS = """
import os
from pathlib import Path
from topicfs.fusefs.mounting import mountpoint
os.getpid = lambda own=os.getpid: int(Path("claimed").read_text() or own())
words = Path("words").read_text()
mountpoint.LastWords.__init__ = lambda self, init=mountpoint.LastWords.__init__: (
    init(self),
    setattr(self, "path", words or self.path),
)[0]
from topicfs.main import main
main()
"""
"""A script that runs the command with a forged `@status` in its mount.

The forged `pid` is read from the file `claimed`, and the forged `umount_report` from the file `words`.
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """A directory that every user may write to."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        base.chmod(0o777)
        (base / "mnt").mkdir()
        (base / "claimed").write_text("")
        (base / "words").write_text("")
        yield base


@pytest.fixture
def hostile(base: Path) -> Iterator[Callable[[], Path]]:
    """Return a function that, as another user who may mount, starts a mount with a forged `@status`."""
    daemons: list[subprocess.Popen[bytes]] = []
    mnt = base / "mnt"

    def start() -> Path:
        capabilities = "+sys_admin,+dac_override"
        become = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
        become += ["--inh-caps", capabilities, "--ambient-caps", capabilities]
        command = [sys.executable, "-c", CLAIMS, "mount", "-f", "--allow-other", str(base / "data"), str(mnt)]
        daemons.append(subprocess.Popen([*become, *command], cwd=base, stderr=subprocess.DEVNULL))
        wait_until(lambda: is_mounted(mnt), "the hostile mount is there", timeout_seconds=60)
        return mnt

    yield start
    for daemon in daemons:
        daemon.terminate()
        daemon.wait(60)
    assert not is_mounted(mnt)


def test_a_directory_has_only_the_mount_of_its_owner(
    base: Path, hostile: Callable[[], Path], unmounted: Mount
) -> None:
    """The mount of a data directory is found by its owner's process ID, even if a forged mount claims this ID."""
    mnt = hostile()
    daemon = unmounted.start().daemon
    (base / "claimed").write_text(str(daemon.pid))
    assert f"pid {daemon.pid}\n" in (mnt / "@status").read_text()
    assert unmounted.path == mountpoint_of(daemon.pid)
    assert "pid" not in daemon_values(str(mnt))


def test_an_unmount_waits_for_no_process_of_another(
    base: Path, hostile: Callable[[], Path], unmounted: Mount
) -> None:
    """An unmount does not wait for the process whose ID a forged `@status` claims."""
    mnt = hostile()
    daemon = unmounted.start().daemon
    (base / "claimed").write_text(str(daemon.pid))
    done = FORKS.run(COMMAND, "umount", str(mnt))
    assert (0, b"") == (done.status, done.errors)
    assert None is daemon.poll()


def test_an_unmount_reads_no_file_that_a_forged_status_names(base: Path, hostile: Callable[[], Path]) -> None:
    """An unmount does not read the file that a forged `@status` names: the file may be private or endless."""
    secret = base / "secret"
    secret.write_text("a secret\n")
    secret.chmod(0o600)
    (base / "words").write_text(str(secret))
    mnt = hostile()
    assert f"umount_report {secret}\n" in (mnt / "@status").read_text()
    done = FORKS.run(COMMAND, "umount", str(mnt))
    assert (0, b"") == (done.status, done.errors)
