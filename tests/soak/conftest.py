"""Fixtures of the short forms of the soak tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """Silence the warnings that recovery logs after each kill."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
