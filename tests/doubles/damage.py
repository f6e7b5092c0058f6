"""Functions that damage a file on a real disk."""

from __future__ import annotations

from pathlib import Path


def overwrite(file: Path, position: int, data: bytes) -> None:
    content = bytearray(file.read_bytes())
    content[position : position + len(data)] = data
    file.write_bytes(content)


def flip(file: Path, position: int, mask: int = 1) -> None:
    """Flip the bits `mask` of one byte in place, even if an engine has mapped the file."""
    with file.open("r+b", buffering=0) as opened:
        opened.seek(position)
        octet = opened.read(1)[0]
        opened.seek(position)
        opened.write(bytes([octet ^ mask]))


def flip_text(file: Path, text: bytes) -> None:
    """Find `text` in the file, and flip a bit of its first byte there."""
    overwrite(file, file.read_bytes().index(text), bytes([text[0] ^ 1]))
