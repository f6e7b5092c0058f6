"""The clean-shutdown marker: if it exists, every log was closed cleanly (kafka-storage.md#clean-shutdown).

    {"version":0,"brokerEpoch":-1}          only brokers read this

An engine writes the marker as the last step of its close. The next engine deletes it before it reads a log. If
that engine fails, the one after it recovers the logs.
"""

from __future__ import annotations

from pathlib import Path

from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem

CONTENT = b'{"version":0,"brokerEpoch":-1}'
"""The broker epoch is not known here; -1 means unknown in Kafka."""


def is_marked_clean(files: FileSystem, directory: Path) -> bool:
    return files.exists(directory / names.CLEAN_SHUTDOWN)


def mark_clean(files: FileSystem, directory: Path) -> None:
    """Write the marker, and flush the file and its name. Blocks. Raises OSError."""
    files.write_bytes(directory / names.CLEAN_SHUTDOWN, CONTENT, sync=True)
    files.sync_directory(directory)


def remove_mark(files: FileSystem, directory: Path) -> bool:
    """Remove the marker, and flush the directory; return whether the marker existed. Blocks. Raises OSError."""
    try:
        files.unlink(directory / names.CLEAN_SHUTDOWN)
    except FileNotFoundError:
        return False
    files.sync_directory(directory)
    return True
