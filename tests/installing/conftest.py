"""Fixtures: a new Debian system, and packages that are installed in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.doubles.debian import SYSTEM_PATH, UnavailableError, debian, run_inside

ROOT = Path(__file__).parents[2]
CERTIFICATES = Path(os.environ.get("PIP_CERT") or "/etc/ssl/certs/ca-certificates.crt")
INSIDE = "/run/certificates"
"""Path in the Debian system of this machine's certificates, which a package mirror may need."""
CCACHE = "ccache"
"""The package that a Debian system needs to use this machine's cache of compiled code."""
COMPILED = "/run/ccache"
"""Path in the Debian system of this machine's cache of compiled code."""
QUICK = {"DPKG_DEB_COMPRESSOR_TYPE": "none"}
"""Packages for tests are not compressed, which would take half a minute of processor time each."""


def run_with_certificates(
    tree: Path,
    changes: Path,
    script: str,
    *,
    shared: Mapping[Path, str] | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float = 2000,
) -> str:
    """Return a script's output in a Debian whose pip trusts this machine's certificates; the script must succeed."""
    known = {CERTIFICATES: INSIDE} if CERTIFICATES.is_file() else {}
    done = run_inside(
        tree,
        changes,
        script,
        shared={**known, **(shared or {})},
        environment={**({"PIP_CERT": INSIDE} if known else {}), **(environment or {})},
        timeout_seconds=timeout_seconds,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def run_compiling(tree: Path, changes: Path, script: str, *, shared: Mapping[Path, str] | None = None) -> str:
    """Return a script's output like `run_with_certificates`; if `tree` has ccache, compile with this machine's cache."""
    cache, environment = {}, dict(QUICK)
    if shutil.which("ccache"):
        place = subprocess.run(
            ["ccache", "--get-config", "cache_dir"], capture_output=True, text=True, check=True
        )
        folder = Path(place.stdout.strip())
        folder.mkdir(parents=True, exist_ok=True)
        cache = {folder: COMPILED}
        environment |= {"CCACHE_DIR": COMPILED, "PATH": f"/usr/lib/ccache:{SYSTEM_PATH}"}
    return run_with_certificates(
        tree, changes, script, shared={**cache, **(shared or {})}, environment=environment
    )


@pytest.fixture(scope="session")
def fresh() -> Callable[..., Path]:
    """A function that makes a Debian system with the given packages, or skips the test with the reason."""

    def tree(packages: Sequence[str] = (), release: str | None = None) -> Path:
        try:
            return debian(packages, release)
        except UnavailableError as error:
            pytest.skip(str(error))

    return tree
