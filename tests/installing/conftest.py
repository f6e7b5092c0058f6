"""A fresh Debian, and the packages that are installed in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from testing.debian import UnavailableError, debian, run_inside

ROOT = Path(__file__).parents[2]
CERTIFICATES = Path(os.environ.get("PIP_CERT") or "/etc/ssl/certs/ca-certificates.crt")
INSIDE = "/run/certificates"
"""Path of this machine's certificates in the Debian: a mirror of packages may need one that Debian does not know."""


def run_with_certificates(
    tree: Path,
    changes: Path,
    script: str,
    *,
    shared: Mapping[Path, str] | None = None,
    timeout_seconds: float = 600,
) -> str:
    """What a script prints in a Debian in which pip trusts what it trusts here; the script must succeed."""
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
    """What makes a Debian with some packages; a test that cannot have it is skipped, with the reason."""

    def tree(packages: Sequence[str] = (), release: str | None = None) -> Path:
        try:
            return debian(packages, release)
        except UnavailableError as error:
            pytest.skip(str(error))

    return tree
