"""The room on the disks of several data directories, as `df` shows it of one file system."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def disk_space(directories: Sequence[Path]) -> os.statvfs_result:
    """Add up the disks that hold the directories, each once, in blocks of the first one's size.

    A directory that cannot be asked is left out; OSError where none can.
    """
    figures: dict[int, os.statvfs_result] = {}
    error: OSError | None = None
    for directory in directories:
        try:
            figures.setdefault(directory.stat().st_dev, os.statvfs(directory))
        except OSError as refused:
            error = refused
    if not figures:
        raise error or FileNotFoundError("no data directory")
    first, *others = figures.values()
    if not others:
        return first
    fields = list(first)
    for one in others:
        for index in (2, 3, 4):  # f_blocks, f_bfree, f_bavail
            fields[index] += one[index] * one.f_frsize // first.f_frsize
        for index in (5, 6, 7):  # f_files, f_ffree, f_favail
            fields[index] += one[index]
    return os.statvfs_result(fields)
