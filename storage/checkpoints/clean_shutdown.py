"""The clean-shutdown marker: if it exists, every log was closed cleanly (kafka-storage.md#clean-shutdown).

    {"version":0,"brokerEpoch":-1}          only brokers read this

It is written last of all, and deleted before any log is read, so that a start that fails makes the next one unclean.
"""

from __future__ import annotations

from pathlib import Path

from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem

CONTENT = b'{"version":0,"brokerEpoch":-1}'
"""The broker epoch is unknown here; in Kafka, -1 means unknown."""


def is_marked_clean(files: FileSystem, directory: Path) -> bool:
    return files.exists(directory / names.CLEAN_SHUTDOWN)


def mark_clean(files: FileSystem, directory: Path) -> None:
    """Write the marker in place and flush it with its name (OSError; blocking)."""
    files.write_bytes(directory / names.CLEAN_SHUTDOWN, CONTENT, sync=True)
    files.sync_directory(directory)


def remove_mark(files: FileSystem, directory: Path) -> bool:
    """Remove the marker, also on disk; return whether it existed (OSError; blocking)."""
    try:
        files.unlink(directory / names.CLEAN_SHUTDOWN)
    except FileNotFoundError:
        return False
    files.sync_directory(directory)
    return True
