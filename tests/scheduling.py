"""How tests are given to the processes of a parallel run (pytest-xdist).

A file goes to one process as a whole, for its tests may share a mount. Files that share something costly, one broker or
one session of Spark, go to one process together. What takes longest begins first, so that no process is left alone
with it at the end.
"""

from __future__ import annotations

import pytest

SHARING = {
    "a broker": ("tests/interop/",),
    "a broker and Spark": tuple(
        f"tests/pipeline/test_{name}.py"
        for name in ("equal_sinks", "equal_to_kafka", "jobs_over_kafka", "queries", "restore")
    ),
    "Spark": tuple(
        f"tests/pipeline/test_{name}"
        for name in (
            "aggregate.",
            "documented_lines.",
            "jobs.",
            "killed_jobs.",
            "report_job.",
            "spark_",
            "verify_job.",
        )
    ),
}
"""Files by the beginning of their path, and what they share."""
SECONDS = {
    "a broker and Spark": 200,
    "a broker": 150,
    "Spark": 150,
    "tests/pipeline/test_standalone_cluster.py": 60,
    "tests/pipeline/test_installed.py": 50,
}
"""What takes long, in seconds of a processor, roughly; a file that is not named is short."""


def group_of(path: str) -> str:
    """What is given to one process together with the file `path`: named by what is shared, else the file alone."""
    return next((name for name, files in SHARING.items() if path.startswith(files)), path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Called where a run is in parallel."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 (a run in one process needs no xdist)

    class LongestFirst(LoadFileScheduling):
        """Gives the group that takes longest to whichever process asks next."""

        def _split_scope(self, nodeid: str) -> str:
            return group_of(super()._split_scope(nodeid))

        def _assign_work_unit(self, node: object) -> None:
            longest = max(
                self.workqueue, key=lambda group: (SECONDS.get(group, 0), len(self.workqueue[group]))
            )
            self.workqueue.move_to_end(longest, last=False)
            super()._assign_work_unit(node)

    return LongestFirst(config, log)
