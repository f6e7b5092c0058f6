"""Fixtures: a new Debian system, and packages that are installed in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.doubles.debian import UnavailableError, debian, run_inside

ROOT = Path(__file__).parents[2]
CERTIFICATES = Path(os.environ.get("PIP_CERT") or "/etc/ssl/certs/ca-certificates.crt")
INSIDE = "/run/certificates"
"""Path in the Debian system of this machine's certificates, which a package mirror may need."""


def run_with_certificates(
    tree: Path,
    changes: Path,
    script: str,
    *,
    shared: Mapping[Path, str] | None = None,
    timeout_seconds: float = 2000,
) -> str:
    """Return a script's output in a Debian whose pip trusts this machine's certificates; the script must succeed."""
    known = {CERTIFICATES: INSIDE} if CERTIFICATES.is_file() else {}
    done = run_inside(
        tree,
        changes,
        script,
        shared={**known, **(shared or {})},
        environment={"PIP_CERT": INSIDE} if known else {},
        timeout_seconds=timeout_seconds,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def fresh() -> Callable[..., Path]:
    """A function that makes a Debian system with the given packages, or skips the test with the reason."""

    def tree(packages: Sequence[str] = (), release: str | None = None) -> Path:
        try:
            return debian(packages, release)
        except UnavailableError as error:
            pytest.skip(str(error))

    return tree
