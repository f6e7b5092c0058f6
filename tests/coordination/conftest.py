"""Fixtures for the tests of several folders."""

from __future__ import annotations

from tests.storage.conftest import clock, disk

__all__ = ["clock", "disk"]
