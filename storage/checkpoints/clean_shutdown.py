"""The clean-shutdown marker: its existence says that every log was closed in order.

    {"version":0,"brokerEpoch":-1}

Only existence decides; the content is Kafka's, unknown fields are passed over. It is written last of all and
deleted before any log is read, so that a start that fails makes the next one unclean (kafka-storage.md#clean-shutdown).
"""

from __future__ import annotations

import json
from pathlib import Path

from storage.disk import names
from storage.disk.filesystem import FileSystem

VERSION = 0
NO_BROKER_EPOCH = -1


def encode_marker(broker_epoch: int = NO_BROKER_EPOCH) -> bytes:
    return json.dumps({"version": VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_marker(data: bytes) -> int:
    """Give the broker epoch; whatever is no marker of this version has none (-1)."""
    try:
        content = json.loads(data)
        epoch = content["brokerEpoch"] if content["version"] == VERSION else NO_BROKER_EPOCH
    except (ValueError, KeyError, TypeError):
        return NO_BROKER_EPOCH
    return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH


def is_marked_clean(files: FileSystem, directory: Path) -> bool:
    return files.exists(directory / names.CLEAN_SHUTDOWN)


def mark_clean(files: FileSystem, directory: Path) -> None:
    """Write the marker in place and flush it with its name (OSError; blocking)."""
    files.write_bytes(directory / names.CLEAN_SHUTDOWN, encode_marker(), sync=True)
    files.sync_directory(directory)


def take_mark(files: FileSystem, directory: Path) -> bool:
    """Delete the marker for good; True where there was one (OSError; blocking)."""
    try:
        files.unlink(directory / names.CLEAN_SHUTDOWN)
    except FileNotFoundError:
        return False
    files.sync_directory(directory)
    return True
