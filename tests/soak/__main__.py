"""`python -m tests.soak NAME [OPTION...]`: run one of the long tests; `NAME --help` shows the test's options."""

from __future__ import annotations

import runpy
import sys
import tempfile
from pathlib import Path

from testing.leftover_mounts import unmounted_in_the_end
from tests.soak import RUNS


def main() -> None:
    """Run the named module with the remaining arguments."""
    name = next(iter(sys.argv[1:]), "")
    if name not in RUNS:
        sys.exit(f"python -m tests.soak NAME [OPTION...]: NAME is one of {', '.join(RUNS)}")
    sys.argv[:2] = [f"{sys.argv[0]} {name}"]
    tempfile.tempdir = tempfile.mkdtemp(prefix="topicfs-soak-")
    with unmounted_in_the_end(Path(tempfile.tempdir)):
        runpy.run_module(RUNS[name], run_name="__main__")


if __name__ == "__main__":
    main()
