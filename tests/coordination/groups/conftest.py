"""A fixture: a coordinator of groups."""

from __future__ import annotations

import pytest

from tests.doubles.group_coordinator import Coordination


@pytest.fixture
def all_() -> Coordination:
    """A coordinator without groups, in memory."""
    return Coordination()
