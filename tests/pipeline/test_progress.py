"""Tests of the progress of a session, as a progress bar shows it."""

from __future__ import annotations

from topicfs.jobs.progress_bar import JobProgress, Tally

SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream"


def progress(batch, records, end, latest, *, run="r"):
    return {
        "runId": run,
        "batchId": batch,
        "numInputRows": records,
        "sources": [
            {"description": f"{SOURCE}@1", "endOffset": {"orders": end}, "latestOffset": {"orders": latest}}
        ],
    }


def test_tasks_are_counted_over_all_stages():
    """The tasks of a finished stage count as done, although Spark no longer reports the stage."""
    tally = Tally()
    assert (0, None) == (tally.work().done, tally.work().total)
    tally.add_stages({0: (1, 4)})
    assert JobProgress(1, 4) == tally.work()
    tally.add_stages({1: (2, 3), 2: (0, 1)})
    assert JobProgress(6, 8) == tally.work()
    tally.add_stages({})
    assert (8, 8) == (tally.work().done, tally.work().total)


def test_records_are_counted_once_a_micro_batch():
    """The records of a micro-batch count once, however often the progress is polled.

    The progress of the newest micro-batch shows how many records are left.
    """
    tally = Tally()
    for told in (
        progress(0, 10, {"0": 6, "1": 4}, {"0": 9, "1": 4}),
        progress(1, 2, {"0": 8, "1": 4}, {"0": 9, "1": 4}),
    ):
        tally.add_query(told)
        tally.add_query(told)
    work = tally.work()
    assert (12, 13, {"orders": 1}) == (work.done, work.total, dict(work.left))


def test_a_query_that_is_started_again_counts_from_zero():
    """A query that is started again counts its micro-batches from 0."""
    tally = Tally()
    tally.add_query(progress(0, 10, {"0": 10}, {"0": 10}))
    tally.add_query(progress(0, 5, {"0": 15}, {"0": 15}, run="s"))
    assert (15, 15, {}) == (tally.work().done, tally.work().total, dict(tally.work().left))
