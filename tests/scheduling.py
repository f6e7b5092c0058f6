"""How tests are given to the processes of a parallel run (pytest-xdist).

A file goes to one process as a whole, for its tests may share a mount. Files that share something costly, one broker or
one session of Spark, go to one process together. What takes longest begins first, so that no process is left alone
with it at the end.
"""

from __future__ import annotations

import pytest

SHARING = {
    "a broker and Spark": ("equal_sinks", "equal_to_kafka", "jobs_over_kafka", "queries", "restore"),
    "Spark": ("documented_lines", "jobs", "report_job", "spark_", "verify_job"),
}
"""Files of `tests/pipeline` by the beginning of their name, and the session that they share.

A session is quicker the longer it lives; a broker starts in a second and is shared by what happens to meet.
"""
SECONDS = {
    "a broker and Spark": 200,
    "Spark": 180,
    "tests/pipeline/test_exactly_once.py": 80,
    "tests/pipeline/test_aggregate.py": 80,
    "tests/pipeline/test_killed_jobs.py": 70,
    "tests/examples/test_scripts.py": 65,
    "tests/interop/test_brokers_files_under_us.py": 55,
    "tests/pipeline/test_installed.py": 50,
    "tests/interop/test_handover.py": 45,
    "tests/cluster/mirror/test_three_brokers.py": 45,
    "tests/cluster/mirror/test_following.py": 45,
    "tests/topicfs/test_verify_and_report.py": 45,
    "tests/interop/test_our_files_under_a_broker.py": 40,
    "tests/fuzz/test_fuzz_requests.py": 35,
    "tests/fusefs/mounted/test_backups.py": 35,
    "tests/pipeline/test_standalone_cluster.py": 35,
    "tests/storage/compaction/test_killed_passes.py": 25,
    "tests/interop/test_snapshots_after_recovery.py": 25,
    "tests/interop/test_flipped_bits.py": 25,
    "tests/benchmarks/test_benchmark_frame.py": 20,
    "tests/storage/manager/test_kills.py": 15,
}
"""What takes long, in seconds, roughly; a file that is not named is short."""


def group_of(path: str) -> str:
    """What is given to one process together with the file `path`: named by what is shared, else the file alone."""
    name = path.removeprefix("tests/pipeline/test_")
    return next((group for group, names in SHARING.items() if name.startswith(names)), path)


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
