"""Runs the example scripts and the first session as a new user does: with the command, on a real mount."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A directory with only the project's scripts and a working `.venv/bin/topicfs`."""
    for folder in ("scripts", "examples"):
        (tmp_path / folder).mkdir()
        for script in (ROOT / folder).iterdir():
            if script.is_file():
                target = tmp_path / folder / script.name
                target.write_bytes(script.read_bytes())
                target.chmod(0o755)
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, arguments in (("topicfs", "-c 'from topicfs.main import main; main()'"), ("python", "")):
        program = programs / name
        program.write_text(
            f"#!/bin/sh\nexport PYTHONPATH={shlex.quote(str(ROOT))}${{PYTHONPATH:+:$PYTHONPATH}}\n"
            f'exec {shlex.quote(sys.executable)} {arguments} "$@"\n'
        )
        program.chmod(0o755)
    return tmp_path


def shell(checkout: Path, line: str, **environment: str) -> str:
    """Return the output of a command line, including standard error; fail if the command fails.

    The output omits a warning of `topicfs umount`: a parallel test may have a copy of the mount.
    """
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=checkout,
        env={**os.environ, "PATH": f"{checkout}/.venv/bin:{os.environ['PATH']}", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stdout
    return "".join(
        line for line in done.stdout.splitlines(keepends=True) if "still mounted elsewhere" not in line
    )


@pytest.fixture
def mounted(checkout) -> Iterator[Path]:
    """The checkout with ./data mounted at ./mnt by `topicfs mount`."""
    shell(checkout, "mkdir mnt && topicfs mount data mnt")
    try:
        yield checkout
    finally:
        shell(checkout, "scripts/stop.sh")
