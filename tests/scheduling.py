"""How the tests are distributed among the processes of a parallel run (pytest-xdist).

All tests of a file run in one process, because they may share a mount. Files that share something costly, such as a
broker or a Spark session, also run in one process. The longest groups start first, so that no process is still busy
with a long group after all others have ended.
"""

from __future__ import annotations

from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

SHARING = {
    "a broker and Spark": (
        "tests/pipeline/test_documented_lines.py",
        "tests/pipeline/test_equal_*.py",
        "tests/pipeline/test_jobs*.py",
        "tests/pipeline/test_queries.py",
        "tests/pipeline/test_restore.py",
        "tests/pipeline/test_spark_registration.py",
    ),
    "Spark": (
        "tests/pipeline/test_aggregate.py",
        "tests/pipeline/test_killed_jobs.py",
        "tests/pipeline/test_one_directory.py",
        "tests/pipeline/test_report_job.py",
        "tests/pipeline/test_spark_*.py",
        "tests/pipeline/test_verify_job.py",
        "tests/topicfs/test_commit_group.py",
        "tests/topicfs/test_verify_and_report.py",
    ),
    "three brokers": (
        "tests/cluster/brokers/test_leader_moves.py",
        "tests/cluster/cache/test_cached_reads.py",
        "tests/cluster/mirror/test_three_brokers.py",
        "tests/cluster/test_a_broker_down.py",
        "tests/cluster/test_large_files_ahead.py",
        "tests/cluster/test_shells_while_leaders_go.py",
        "tests/cluster/topics/test_producer.py",
        "tests/cluster/topics/test_sent_batches.py",
    ),
    "a broker to mirror": ("tests/cluster/mirror/test_*.py",),
    "a broker of a cluster": ("tests/cluster/*.py",),
    "a broker's files": (
        "tests/interop/test_brokers_files_under_us.py",
        "tests/interop/test_compaction_by_both.py",
        "tests/interop/test_defaults_of_a_broker.py",
        "tests/interop/test_flipped_bits.py",
        "tests/interop/test_our_files_under_a_broker.py",
    ),
    "a Debian": ("tests/installing/test_*.py",),
}
"""Patterns of test files, by what the files share. A file belongs to the first group that matches.

A Spark session gets faster the longer it runs. A broker takes three seconds of CPU time to start, and some hundredths
of a CPU even when idle: twenty idle brokers would take half of a small machine.
"""
MOUNTS_OF_A_CLUSTER = "a broker whose topics are mounted"
"""The group of mount tests with a cluster. The variants of these tests with a data directory stay with their files."""
SECONDS = {
    "a Debian": 600,
    "three brokers": 375,
    "a broker of a cluster": 340,
    "a broker and Spark": 210,
    MOUNTS_OF_A_CLUSTER: 200,
    "Spark": 130,
    "a broker's files": 100,
    "tests/replication/replicas/healing/test_renewal.py": 80,
    "tests/examples/test_scripts.py": 70,
    "a broker to mirror": 65,
    "tests/interop/test_handover.py": 65,
    "tests/topicfs/test_resolve_on_disks.py": 60,
    "tests/pipeline/test_installed.py": 55,
    "tests/interop/test_snapshots_after_recovery.py": 45,
    "tests/fuzz/test_fuzz_answers.py": 40,
    "tests/soak/test_appends.py": 35,
    "tests/soak/test_soak.py": 35,
    "tests/interop/test_scrubbed_files.py": 30,
    "tests/pipeline/test_ends_of_records.py": 30,
    "tests/pipeline/test_exactly_once.py": 30,
    "tests/pipeline/test_standalone_cluster.py": 30,
    "tests/test_repairs.py": 30,
    "tests/fusefs/mounted/test_shell_following.py": 25,
    "tests/interop/test_groups.py": 25,
    "tests/interop/test_share_groups.py": 25,
    "tests/storage/manager/test_kills.py": 25,
    "tests/fusefs/files/test_log_batch_headers.py": 20,
    "tests/fusefs/mounted/test_groups_mounted.py": 20,
    "tests/fusefs/mounted/test_next_mounted.py": 20,
    "tests/fusefs/mounted/test_queues_mounted.py": 20,
    "tests/fuzz/test_fuzz_requests.py": 20,
    "tests/storage/compaction/test_killed_passes.py": 20,
    "tests/test_site.py": 15,
    "tests/test_what_tests_rest_on.py": 20,
    "tests/topicfs/test_manual.py": 20,
}
"""Approximate duration in seconds of the long groups and files. All other files are short."""


def group_of(path: str, nodeid: str = "") -> str:
    """Return the group of a test in the file `path`: a resource that the file shares with others, or the path."""
    if path.startswith("tests/fusefs/mounted/") and "[cluster" in nodeid:
        return MOUNTS_OF_A_CLUSTER
    return next(
        (group for group, files in SHARING.items() if any(fnmatchcase(path, file) for file in files)), path
    )


def _group_of_test(item: pytest.Item) -> str:
    return group_of(item.nodeid.partition("::")[0], item.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> object:
    """After a group's last test, tear down what the group shares, as if no other test followed.

    Only a worker of a parallel run does this, because it runs each group once. If shared brokers stayed until the run
    ends, they would use CPU time.
    """
    in_parallel = hasattr(item.config, "workerinput")
    if nextitem is None or not in_parallel or _group_of_test(item) == _group_of_test(nextitem):
        return None
    return item.ihook.pytest_runtest_protocol(item=item, nextitem=None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Return the scheduler of a parallel run."""
    from xdist.scheduler import LoadFileScheduling

    class LongestFirst(LoadFileScheduling):
        """Gives the longest remaining group to the next process that is free."""

        def _split_scope(self, nodeid: str) -> str:
            return group_of(super()._split_scope(nodeid), nodeid)

        def _assign_work_unit(self, node: WorkerController) -> None:
            if not self.workqueue:  # The other processes have taken all groups.
                node.shutdown()
                return
            longest = max(
                self.workqueue, key=lambda group: (SECONDS.get(group, 0), len(self.workqueue[group]))
            )
            self.workqueue.move_to_end(longest, last=False)
            with suppress(OSError):  # The process has ended, and will be removed.
                super()._assign_work_unit(node)
            # A process starts a test only when it knows whether another test follows.
            if not self.workqueue:
                node.shutdown()
            elif self._pending_of(self.assigned_work[node]) < 2:
                self._assign_work_unit(node)

        def remove_node(self, node: WorkerController) -> str | None:
            """Give the unstarted tests of a killed process to others, and return the test that was running in it.

            pytest-xdist itself would run that test again, and wait for tests that have already ended.
            """
            groups = self.assigned_work.pop(node)
            left = [
                (group, test) for group, tests in groups.items() for test, ended in tests.items() if not ended
            ]
            if not left:
                return None
            group, last = left[0]
            groups[group][last] = True
            self.workqueue.update({group: groups[group] for group, _ in left[1:]})
            for other in self.assigned_work:
                self._reschedule(other)
            return last

    return LongestFirst(config, log)
