"""Tests that the locked packages support every Python on which the project runs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import metadata, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

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
"""The oldest Python on which the README's commands must work."""


@pytest.mark.parametrize("name", LOCKED)
def test_a_locked_package_runs_on_debian_12(name: str):
    """Every locked package supports Debian 12's Python; otherwise `make run` fails with "no matching distribution"."""
    needed = metadata(name).get("Requires-Python", "")
    assert SpecifierSet(needed).contains(DEBIAN_12), f"{name} needs Python {needed}"


@pytest.mark.parametrize("requirement", REQUIRED, ids=lambda requirement: requirement.name)
def test_the_lock_has_what_the_project_requires(requirement: Requirement):
    """The lock has each requirement in an allowed version and with its marker; pip-compile alone would drop markers."""
    entries = re.findall(rf"(?mi)^{requirement.name}==([^ ]+)(?: ; (.+))? \\$", LOCK)
    assert 1 == len(entries), requirement.name
    version, marker = entries[0]
    assert requirement.specifier.contains(version)
    assert str(requirement.marker or "") == marker


def needed(*extras: str) -> set[str]:
    """Return the packages that scripts/sources.sh finds for `extras` by the comments of the lock."""
    script = 'source scripts/sources.sh; needed "$@"'
    called = ["bash", "-euc", script, "needed", sys.executable, *extras]
    return set(
        subprocess.run(called, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    )


def required(requirements: list[str], extras: set[str]) -> set[str]:
    """Return the packages that `requirements` need according to the metadata of installed packages."""
    names: set[str] = set()
    for requirement in map(Requirement, requirements):
        if not requirement.marker or any(
            requirement.marker.evaluate({"extra": each}) for each in extras | {""}
        ):
            name = canonicalize_name(requirement.name)
            names |= {name} | required(requires(name) or [], requirement.extras)
    return names


@pytest.mark.parametrize("extras", [("mount",), ("mount", "build"), ("mount", "build", "docs")], ids="-".join)
def test_the_packages_of_some_extras_are_those_that_they_require(extras: tuple[str, ...]):
    """The lock's comments name all packages that an extra requires, because `make run` installs without resolving."""
    asked = [
        *PROJECT["dependencies"],
        *(each for extra in extras for each in PROJECT["optional-dependencies"][extra]),
    ]
    assert required(asked, set()) == needed(*extras)


def test_what_only_spark_and_the_tests_need_is_left_to_make_test():
    """`make run` does not install the large packages that only Spark and the tests use."""
    assert set() == {"matplotlib", "mypy", "pyarrow", "pyspark", "pytest"} & needed("mount", "build")
