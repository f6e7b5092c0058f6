"""When tests that need more than Python may be left out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

FUSE_DEVICE = Path("/dev/fuse")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out, with a reason, what this machine cannot run; on a build machine (CI) a mount is no matter of choice."""
    absent = {
        "fuse": None if FUSE_DEVICE.exists() or os.environ.get("CI") else f"{FUSE_DEVICE} is missing",
        "java": None if shutil.which("java") and shutil.which("mvn") else "java or mvn is missing",
    }
    for item in items:
        for marker, reason in absent.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
