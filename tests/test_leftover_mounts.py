"""Tests that a test run leaves nothing mounted, however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing.leftover_mounts import mounts_under
from tests.doubles.waiting import wait_until

ROOT = Path(__file__).parents[1]
MOUNTS = """
import subprocess

def test_it(tmp_path):
    (tmp_path / "a mount").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path / "a mount"], check=True)
    {after}
"""


@pytest.mark.root
@pytest.mark.parametrize(
    "after", ["pass", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"], ids=["ended", "killed"]
)
def test_what_a_test_left_mounted_is_unmounted(tmp_path: Path, after: str):
    """A leftover mount is unmounted even if the run was killed; a run that ends by itself fails and names the mount."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import no_mount_is_left\n")
    (tmp_path / "test_it.py").write_text(MOUNTS.format(after=after))
    options = [
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(tmp_path),
        f"--basetemp={tmp_path}/base",
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode != 0
    assert ("a mount" in ran.stdout) == (after == "pass")
    wait_until(lambda: not mounts_under(str(tmp_path)), "the leftover mount is unmounted")
