"""`--commit-group GROUP`: commits a job's progress as a group's positions, so that the job's lag is shown."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import click

from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.source.query.offsets import StreamState, decode_stream_offset
from topicfs.storage.errors import StorageError
from topicfs.storage.model import Offset

NO_OFFSETS = "-"
"""Stands in a checkpoint in place of the offsets of a source that has no offsets yet."""


def offsets_done(checkpoint: Path) -> StreamState:
    """Return the next offset of each partition after the last finished batch, and the topics' IDs.

        CHECKPOINT/offsets/7    v1 · the batch's settings · a line per source: {"orders": {"0": 42}}
        CHECKPOINT/commits/7    batch 7 is done

    The result is empty before the first batch. Our format and Spark's Kafka connector write a source's offsets in the
    same way. Raises PipelineError if the files are not those of a checkpoint, OSError.
    """
    done = [int(one.name) for one in (checkpoint / "commits").glob("*") if one.name.isdecimal()]
    if not done:
        return StreamState({}, {})
    file = checkpoint / "offsets" / str(max(done))
    lines = file.read_text(encoding="utf-8").splitlines()[2:]
    found = StreamState({}, {})
    try:
        for line in lines:
            if line != NO_OFFSETS:
                source = decode_stream_offset(json.loads(line))
                found.offsets.update(source.offsets)
                found.topic_ids.update(source.topic_ids)
    except (ValueError, AttributeError) as error:
        raise PipelineError(f"{file}: not the offsets of a query: {error}") from None
    return found


commit_group_option = click.option(
    "--commit-group",
    metavar="GROUP",
    help="At the end, commit the job's progress as GROUP's positions, so that `topicfs groups describe GROUP` "
    "shows its lag. The job itself only uses its checkpoint.",
)


def commit_positions(place: SparkPlace, group: str | None, state: StreamState) -> None:
    """Commit the next offsets in `state` as the positions of `group`. If a daemon runs for `place`, use its mount.

    Raises GroupNotEmptyError for a group with members, StorageError (also if a topic was created again), OSError.
    """
    from topicfs.groups.location import opened_groups
    from topicfs.places import parse_place

    if group is not None and state.offsets:
        present = _topic_ids(place, state)
        again = [topic for topic, one in state.topic_ids.items() if present.get(topic, one) != one]
        if again:
            raise StorageError(
                f"{', '.join(again)}: created again since this job read it; the positions of {group} were not changed"
            )
        positions = {partition: Offset(offset) for partition, offset in state.offsets.items()}
        named = parse_place(str(place))._replace(client_config=place.client_config, left_out=place.left_out)
        with opened_groups(named, writing=True) as groups:
            groups.set_positions(group, positions)


def _topic_ids(place: SparkPlace, state: StreamState) -> dict[str, str | None]:
    """Return the present IDs of a state's topics; leaves out deleted topics."""
    if place.is_kafka:
        from topicfs.pipeline.places.cluster_records import opened_cluster

        with opened_cluster(place) as engine:
            return {name: topic.topic_id for name, topic in engine.topics().items()}
    from topicfs.pipeline.source.directories import SourceDirectories

    with closing(SourceDirectories(place.directories, place.left_out)) as directories:
        one_of_each = {one.topic: one for one in directories.partitions() if one.topic in state.topic_ids}
        return {topic: directories.topic_id(one) for topic, one in one_of_each.items()}
