"""A function that damages a file on a real disk."""

from __future__ import annotations

from pathlib import Path


def overwrite(file: Path, position: int, data: bytes) -> None:
    content = bytearray(file.read_bytes())
    content[position : position + len(data)] = data
    file.write_bytes(content)
