"""`topicfs pipeline … --commit-group` commits the progress of a job as the positions of a group."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from tests.doubles.engines import append_lines
from tests.topicfs.conftest import assert_refused
from topicfs.jobs.commit_group import commit_positions
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.source.query.offsets import StreamState
from topicfs.replication import open_engine
from topicfs.storage.errors import StorageError
from topicfs.storage.model import TopicPartition


def test_a_job_without_a_checkpoint_has_no_place(topicfs):
    """The option --commit-group without --checkpoint is a usage error, reported before Spark starts."""
    for job in (("replay", "orders", "copy"), ("aggregate", "orders", "copy", "--window", "1 hour")):
        found = topicfs("pipeline", *job, "--commit-group", "g")
        assert_refused(found, "--commit-group needs --checkpoint", status=2)


def test_positions_of_a_topic_that_was_created_again_are_not_committed(tmp_path):
    """If a topic was deleted and created again, positions of the old topic are not committed.

    In the new topic these positions would skip records.
    """
    place, read = SparkPlace(str(tmp_path)), {TopicPartition("orders", 0): 2}
    with closing(open_engine(tmp_path)) as engine:
        before = engine.create_topic("orders").topic_id
        append_lines(engine.partition("orders", 0), "a\nb\n")
    commit_positions(place, "g", StreamState(read, {"orders": before}))
    with closing(open_engine(tmp_path)) as engine:
        assert read == {one: at.offset for one, at in engine.groups.positions("g").committed.items()}
        engine.delete_topic("orders")
        engine.create_topic("orders")
    with pytest.raises(
        StorageError,
        match="^orders: created again since this job read it; the positions of g were not changed",
    ):
        commit_positions(place, "g", StreamState(read, {"orders": before}))
    with closing(open_engine(tmp_path, read_only=True)) as engine:
        assert {} == engine.groups.positions("g").committed


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("kept")
def test_jobs_commit_how_far_they_came(tmp_path, topicfs):
    """An archive and a replay commit their positions. Records that are appended later count as the groups' lag."""
    data = tmp_path / "data"
    with closing(open_engine(data)) as engine:
        engine.create_topic("copy")
        for number, partition in engine.create_topic("orders", partitions=2).partitions().items():
            append_lines(partition, "a\n" * (3 + number))
    place = ("--data", str(data))
    archive = topicfs(
        "pipeline", "archive", "orders", str(tmp_path / "archive"), "--commit-group", "archive", *place
    )
    assert 0 == archive.status, archive.errors
    progress = ("--checkpoint", str(tmp_path / "progress"), "--commit-group", "copier")
    replay = topicfs("pipeline", "replay", "orders", "copy", *progress, *place)
    assert 0 == replay.status, replay.errors
    with closing(open_engine(data)) as engine:
        append_lines(engine.partition("orders", 1), "b\nc\n")
    described = json.loads(topicfs("groups", "describe", "archive", "copier", "--json", *place).text)
    assert [("archive", "Empty", 2), ("copier", "Empty", 2)] == [
        (one["group"], one["state"], one["lag"]) for one in described
    ]
    assert [(0, 3), (1, 4)] == [(one["partition"], one["position"]) for one in described[0]["positions"]]
