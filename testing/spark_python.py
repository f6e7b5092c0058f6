"""The Python of Spark's workers in tests, whose daemons import what workers need before they fork.

Spark starts a daemon for each kind of work, `python -m pyspark.daemon MODULE`, which forks a worker for each piece of
it. The worker imports everything, half a second of the processor, since what is imported might start threads, and these
do not survive a fork. Those of pyarrow and NumPy may be missing.
"""

from __future__ import annotations

import gc
import os
import runpy
import sys
from importlib import import_module
from pathlib import Path

PROGRAM = Path(__file__).parents[1] / "build" / "spark" / "python"
DAEMON = ["-m", "pyspark.daemon"]


def spark_python() -> Path:
    """Return the program, made where it is absent or of another environment."""
    script = f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n'
    if not PROGRAM.exists() or PROGRAM.read_text() != script:
        PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        unfinished = PROGRAM.with_suffix(f".{os.getpid()}")
        unfinished.write_text(script)
        unfinished.chmod(0o755)
        unfinished.replace(PROGRAM)
    return PROGRAM


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:2] != DAEMON:
        os.execv(sys.executable, [sys.executable, *arguments])
    # This file's own folder stands first, as that of any script.
    sys.path[0] = str(Path.cwd())
    for module in ("pyarrow", *arguments[2:3], "pipeline.data_source"):
        import_module(module)
    gc.freeze()
    sys.argv = arguments[1:]
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
