"""A fresh Debian, and the packages that are installed in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from testing.debian import UnavailableError, debian

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def fresh() -> Callable[[Sequence[str]], Path]:
    """What makes a Debian with some packages; a test that cannot have it is skipped, with the reason."""

    def tree(packages: Sequence[str] = ()) -> Path:
        try:
            return debian(packages)
        except UnavailableError as error:
            pytest.skip(str(error))

    return tree
