"""The locked packages suit every Python that the project runs on."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text()
LOCKED = re.findall(r"(?m)^([a-z0-9][\w.-]*)==[^ ]+ \\$", LOCK)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIRED = [
    Requirement(each)
    for group in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for each in group
]
DEBIAN_12 = "3.11.2"
"""The oldest Python on which the README's commands are to work."""


@pytest.mark.parametrize("name", LOCKED)
def test_a_locked_package_runs_on_debian_12(name: str):
    """Else `make run` and `make test` end there with "no matching distribution"."""
    needed = metadata(name)["Requires-Python"] or ""
    assert SpecifierSet(needed).contains(DEBIAN_12), f"{name} needs Python {needed}"


@pytest.mark.parametrize("requirement", REQUIRED, ids=lambda requirement: requirement.name)
def test_the_lock_has_what_the_project_requires(requirement: Requirement):
    """A version within the bounds, and the marker: pip-compile drops it, so it is put back by hand."""
    entries = re.findall(rf"(?mi)^{requirement.name}==([^ ]+)(?: ; (.+))? \\$", LOCK)
    assert 1 == len(entries), requirement.name
    version, marker = entries[0]
    assert requirement.specifier.contains(version)
    assert str(requirement.marker or "") == marker
