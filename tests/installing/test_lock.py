"""The locked packages suit every Python that the project runs on."""

from __future__ import annotations

import re
from importlib.metadata import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
LOCKED = re.findall(r"(?m)^([a-z0-9][\w.-]*)==[^ ]+ \\$", (ROOT / "requirements.lock").read_text())
DEBIAN_12 = "3.11.2"
"""The oldest Python on which the README's commands are to work."""


@pytest.mark.parametrize("name", LOCKED)
def test_a_locked_package_runs_on_debian_12(name: str):
    """Else `make run` and `make test` end there with "no matching distribution"."""
    needed = metadata(name)["Requires-Python"] or ""
    assert SpecifierSet(needed).contains(DEBIAN_12), f"{name} needs Python {needed}"
