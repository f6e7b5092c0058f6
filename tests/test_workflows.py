"""Tests that the workflows in `.github` call the project's own commands, on each supported Python version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEXTS = {path.name: path.read_text() for path in WORKFLOWS}
JOBS = {name: yaml.safe_load(text)["jobs"] for name, text in TEXTS.items()}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
CIBUILDWHEEL = PYPROJECT["tool"]["cibuildwheel"]
PYTHONS = [
    found[1]
    for classifier in PROJECT["classifiers"]
    if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", classifier))
]


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in JOBS[name].values() for step in job["steps"]]


def commands(name: str) -> list[str]:
    """Return the shell commands that a workflow file runs, one per line."""
    return [line.strip() for step in steps(name) for line in step.get("run", "").splitlines()]


def test_the_supported_pythons_begin_with_the_oldest():
    """The oldest Python version in the classifiers is the oldest that `requires-python` allows."""
    assert f">={PYTHONS[0]}" == PROJECT["requires-python"]


def test_quick_checks_run_on_each_supported_python():
    """The job `quick` runs once for each Python version in the classifiers."""
    assert PYTHONS == JOBS["checks.yml"]["quick"]["strategy"]["matrix"]["python"]


def test_wheels_are_built_for_each_supported_python():
    """cibuildwheel builds a wheel for each Python version in the classifiers, on both processor types."""
    assert [f"cp{each.replace('.', '')}-*" for each in PYTHONS] == CIBUILDWHEEL["build"].split()
    runs = JOBS["wheels.yml"]["wheels"]["strategy"]["matrix"]["include"]
    assert ["x86-64", "arm64"] == [run["processor"] for run in runs]
    assert any("cibuildwheel==" in line for line in commands("wheels.yml"))


def test_the_checks_are_those_of_a_developer():
    """Developers can run the quick checks with one command in their checkouts, and the full suite with another."""
    checks = commands("checks.yml")
    assert {"make quick", ".ci/run"} <= {*checks}
    assert [] == [line for line in checks if "pytest" in line or "mypy" in line or "ruff" in line]


@pytest.mark.parametrize("name", TEXTS)
def test_the_files_that_a_workflow_names_exist(name: str):
    """Each file that a workflow reads, or whose changes start a workflow, exists."""
    named = {*re.findall(r"(?:scripts|\.ci)/[\w.-]+|requirements\.lock", TEXTS[name])}
    assert named
    assert [] == sorted(path for path in named if not (ROOT / path).is_file())


@pytest.mark.parametrize("name", TEXTS)
def test_actions_have_a_full_version(name: str):
    """Actions are named with a full version such as v6.0.2, because a tag such as v6 moves with each release."""
    used = [step["uses"] for step in steps(name) if "uses" in step]
    assert used
    assert [] == [action for action in used if not re.fullmatch(r"actions/[\w-]+@v\d+\.\d+\.\d+", action)]


@pytest.mark.parametrize("name", TEXTS)
def test_a_workflow_may_only_read(name: str):
    """A job's token cannot change the repository, and steps after the checkout cannot read the token."""
    assert {"contents": "read"} == yaml.safe_load(TEXTS[name])["permissions"]
    checkouts = [step for step in steps(name) if step.get("uses", "").startswith("actions/checkout@")]
    assert len(JOBS[name]) == len(checkouts)
    assert [] == [step for step in checkouts if step["with"]["persist-credentials"] is not False]
