"""Which tests of a mount also run over a Kafka cluster, and why other tests do not.

A test that must fail over a cluster, according to fusefs/SEMANTICS.md, is run and has to fail. A test about data
directories is not run.
"""

from __future__ import annotations

from collections.abc import Mapping

SIZES = "a size is known only after a read: fusefs/SEMANTICS.md#a-kafka-cluster"
NO_FILES = "brokers show no files: fusefs/SEMANTICS.md#a-kafka-cluster"
NO_DISK = "the brokers' disks are unknown: fusefs/SEMANTICS.md#a-kafka-cluster"
MANY_TRIPS = "its round trips take minutes; see tests/cluster/test_shells_while_leaders_go.py"
NO_QUEUES = "the client of a cluster has no share groups: fusefs/SEMANTICS.md#a-kafka-cluster"
OWN_DISK = "it tests the disk of a data directory"

DIFFERENT: Mapping[str, str] = {
    "test_shell_appending::test_a_synchronous_descriptor_is_on_disk_when_write_returns": NO_DISK,
    "test_shell_appending::test_fsync_puts_records_on_disk": NO_DISK,
    "test_shell_appending::test_sync_of_a_file_puts_records_on_disk": NO_DISK,
    "test_shell_tools::test_segments_are_dumped_through_the_mount": NO_FILES,
    "test_shell_tools::test_two_mounted_views_of_one_file_see_each_append": SIZES,
    "test_backups::test_a_copy_of_the_whole_mount_ends_and_is_whole": NO_FILES,
    "test_backups::test_a_backup_is_restored_from_its_segments": NO_FILES,
    "test_backups::test_nothing_that_is_listed_changes_while_it_is_read": SIZES,
    "test_backups::test_tools_read_a_topic_as_a_whole[rsync]": SIZES,
    "test_backups::test_tools_read_a_topic_as_a_whole[stat]": SIZES,
    "test_backups::test_tools_read_a_topic_as_a_whole[tar]": SIZES,
    "test_polls::test_a_file_is_readable_only_with_a_record[take]": NO_QUEUES,
    "test_polls::test_an_edge_triggered_epoll_is_notified_of_each_record[take]": NO_QUEUES,
    "test_polls::test_an_epoll_is_woken_when_the_topic_is_deleted[take]": NO_QUEUES,
    "test_polls::test_an_epoll_is_woken_whoever_polls_meanwhile[take]": NO_QUEUES,
    "test_errnos::test_eperm[creation of a selector]": "open(2) resolves the name, which gives ENOENT",
}
"""Tests that fail over a cluster, as fusefs/SEMANTICS.md says, with the reasons."""

DIFFERENT_EXAMPLES: Mapping[str, str] = {
    "ls orders/1/segments": NO_FILES,
    "stat -c %s pages/log pages/0/log pages/1/log": SIZES,
    "grep -v '^#' orders/config": "the brokers decide how long a new topic keeps its records",
    "grep -e first_dirty -e cleanable prices/0/status": NO_DISK,
}
"""Examples of fusefs/SEMANTICS.md whose output differs over a cluster, except the examples about queues."""


def differs(example: str) -> bool:
    """Return whether the output of an example differs over a cluster."""
    return example in DIFFERENT_EXAMPLES or "@queues" in example


DIRECTORY_ALONE: Mapping[str, str] = {
    "test_compaction_mounted": "brokers decide when they compact; see tests/cluster/topics/test_reader.py",
    "test_daemon": "it tests which process owns a data directory",
    "test_decoding_mounted::test_readers_see_whole_lines_of_exact_size_while_schemas_come": "a size is known only "
    "after a read; the examples of fusefs/SEMANTICS.md#payloads-with-a-schema run",
    "test_disk_space": OWN_DISK,
    "test_ends_of_records": "a broker accepts only what its clients and settings allow",
    "test_groups_in_trouble": OWN_DISK,
    "test_groups_mounted::test_more_waiting_members_than_the_bound": "requests to the cluster wait, too, so that no "
    "waiting place is left for the status",
    "test_groups_mounted::test_positions_and_settings_survive": "over a cluster the settings of a group end with the mount: "
    "fusefs/SEMANTICS.md#a-kafka-cluster",
    "test_groups_mounted::test_thousands_of_members_wait_in_one_program": "each member needs a thread",
    "test_last_words": OWN_DISK,
    "test_little": OWN_DISK,
    "test_metrics": "tests/fusefs/metrics/test_collector.py tests the metrics of a remote engine",
    "test_queues_mounted": NO_QUEUES,
    "test_replicas": OWN_DISK,
    "test_remote_mounted": "it uses its own remote engine",
    "test_scrub_mounted": OWN_DISK,
    "test_staged_writes": "tasks of Spark stage their writes in a data directory",
    "test_transactions": "it needs a broker's files; tests/cluster/test_shown_as_files.py tests the records",
    "test_two_directories": OWN_DISK,
    "test_errnos::test_a_failed_fsync_stops_the_partition": OWN_DISK,
    "test_errnos::test_a_full_disk_leaves_no_partial_batch": OWN_DISK,
    "test_errnos::test_eio_for_a_damaged_batch_alone": OWN_DISK,
    "test_refused_writes::test_a_line_that_found_no_room_in_the_middle_leaves_nothing": OWN_DISK,
    "test_shell_appending::test_four_shells_append_at_once": MANY_TRIPS,
    "test_shell_appending::test_writers_that_hold_their_file_never_interleave_inside_a_record": MANY_TRIPS,
    "test_shell_following::test_tail_neither_repeats_nor_loses_a_line": "brokers decide when they delete",
    "test_shell_tools::test_tail_f_follows_a_whole_topic": SIZES,
}
"""Modules and tests that are not run over a cluster, with the reasons."""
