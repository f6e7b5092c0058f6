"""The flush of a whole disk, by syncfs(2), which Python does not have."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_SYNCFS = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
"""Flushes one disk, with one call where thousands of files would take two each; None where only all disks can be."""


def sync_disk(descriptor: int, path: Path) -> None:
    """Flush the disk of an open directory; `path` is its name. Raises OSError."""
    if _SYNCFS is None:
        os.sync()
    elif _SYNCFS(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
