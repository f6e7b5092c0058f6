"""Fixtures: two or three replicas of an empty partition."""

from __future__ import annotations

import pytest

from tests.doubles.replicated import Replicated, with_orders


@pytest.fixture
def two() -> Replicated:
    return with_orders()


@pytest.fixture
def three() -> Replicated:
    return with_orders(3, replicas=3)
