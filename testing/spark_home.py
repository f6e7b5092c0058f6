"""Spark's home directory in tests: the installed PySpark, without the archive of its Python modules.

Spark puts `python/lib/pyspark.zip` of its home first in the module path of every Python process that it starts, and
Python compiles modules from that file again in each process. Without the file, the processes import the installed
modules.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).parents[1] / "build" / "spark"
PARTS = ("bin", "jars", "sbin")
"""The folders that Spark's scripts expect in its home."""


def spark_home() -> Path | None:
    """Return the home; make it of links if it is missing or belongs to another environment. None without PySpark."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    HOME.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        link, target = HOME / part, Path(spec.origin).parent / part
        if not link.is_symlink() or link.readlink() != target:
            link.unlink(missing_ok=True)
            link.symlink_to(target)
    return HOME
