"""Tests of the package's postinst script with a systemctl that fails."""

from __future__ import annotations

import subprocess

import pytest

from tests.installing.conftest import ROOT

pytestmark = pytest.mark.root

SCRIPT = """
set -eu
mount -t tmpfs none /run
mkdir -p /run/systemd/system /run/bin
printf '#!/bin/sh\\necho "$@"\\n[ "$1" != try-restart ]\\n' > /run/bin/systemctl
chmod +x /run/bin/systemctl
PATH=/run/bin:$PATH sh "$0" configure "$@"
"""


def configured(*version: str) -> subprocess.CompletedProcess[str]:
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", SCRIPT]
    postinst = ROOT / "packaging" / "debian" / "postinst"
    return subprocess.run([*command, postinst, *version], capture_output=True, text=True, check=False)


def test_a_unit_that_fails_to_restart_does_not_fail_an_upgrade():
    """An upgrade succeeds even if a unit fails to restart; a failed upgrade would leave a half-configured package."""
    done = configured("0.1.0-1")
    assert (0, "topicfs: some units did not start again\n") == (done.returncode, done.stderr)
    assert ["daemon-reload", "try-restart topicfs@*.service"] == done.stdout.splitlines()


def test_a_first_installation_starts_nothing():
    """A first installation restarts nothing, because no unit exists yet."""
    assert (0, "daemon-reload\n", "") == (
        (done := configured()).returncode,
        done.stdout,
        done.stderr,
    )
