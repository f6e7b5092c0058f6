"""Modules of other projects that have the names of topicfs's folders, such as a `storage.py` in a user's folder."""

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
    """Write a module for each of NAMES into `folder`, a folder of Python's path. Importing one raises ImportError."""
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} of another project was imported')\n")
