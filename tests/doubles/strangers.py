"""Modules of other projects with the names of topicfs's folders, such as a `storage.py` beside a user's program."""

from __future__ import annotations

from pathlib import Path

NAMES = (
    "storage",
    "coordination",
    "replication",
    "inspection",
    "migration",
    "protocol",
    "listener",
    "cluster",
    "schemas",
    "fusefs",
    "pipeline",
)


def write_strangers(folder: Path) -> None:
    """Write a module of each name into a folder of Python's path; its import fails."""
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} of another project was imported')\n")
