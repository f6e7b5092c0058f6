"""Modules of other projects that have the names of topicfs's folders, as `storage.py` beside a user's program has one."""

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
    """Put a module of each name into a folder of Python's path; importing one fails."""
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} of another project was imported')\n")
