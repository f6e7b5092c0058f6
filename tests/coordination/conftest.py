"""What tests of several folders are given."""

from __future__ import annotations

from tests.storage.conftest import clock, disk

__all__ = ["clock", "disk"]
