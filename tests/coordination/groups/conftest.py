"""A fixture: a coordinator of groups."""

from __future__ import annotations

import pytest

from tests.doubles.group_coordinator import Coordination


@pytest.fixture
def all_() -> Coordination:
    """A new group coordinator that has no groups yet and keeps its records in memory."""
    return Coordination()
