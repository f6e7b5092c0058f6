"""Share groups in a directory's files, and how a handover creates them in a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.doubles.engines import DATA, append_lines, engine_on
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.cluster.brokers.share_groups import ShareGroupAdmin
from topicfs.coordination.records.share_state_records import ShareState, StateBatch
from topicfs.coordination.share_groups import Acknowledgement
from topicfs.migration.share_groups import ShareGroupsFound, put_share_groups, read_share_groups
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.disk import names
from topicfs.storage.model import Offset, TopicPartition

PLACE = TopicPartition("orders", 0)


class OtherCluster(ShareGroupAdmin):
    """The coordinators of another cluster, which store the states and topic ids that they get."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, TopicPartition], ShareState] = {}
        self.ids: list[Mapping[str, str]] = []

    def positions(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        return {
            one: Offset(self.states[group, one].start_offset)
            for one in partitions
            if (group, one) in self.states
        }

    def put(
        self, group: str, states: Mapping[TopicPartition, ShareState], topic_ids: Mapping[str, str]
    ) -> None:
        self.states.update({(group, one): state for one, state in states.items()})
        self.ids.append(topic_ids)


def kept_by_us() -> tuple[ShareGroupsFound, str]:
    """Return the share groups in a closed engine's files, and the id of their topic."""
    disk = SimulatedDisk()
    engine = engine_on(disk)
    for internal in ("__consumer_offsets", "__share_group_state"):
        engine.create_topic(internal, partitions=1)
    topic = engine.create_topic("orders", partitions=1)
    append_lines(topic.partitions()[0], "a\nb\nc\n")
    session = engine.share_groups.group("g").open(["orders"], holder="")
    for word in (Acknowledgement.ACCEPT, Acknowledgement.RELEASE):
        leased = session.take()
        assert leased is not None
        session.acknowledge({leased.record_name: word})
    engine.close()
    places = [
        DATA / names.partition_directory(TopicPartition(internal, 0))
        for internal in ("__consumer_offsets", "__share_group_state")
    ]
    return read_share_groups(disk, places[:1], places[1:]), topic.topic_id


def test_groups_and_states_are_read_out_of_files() -> None:
    """Epoch, topics, start offset and released records of share groups are read from a closed engine's files."""
    found, topic_id = kept_by_us()
    ((key, state),) = found.states.items()

    assert ({"g": 1}, ("g", decode_id(topic_id), 0)) == (found.epochs, tuple(key))
    assert ["orders"] == [one.name for one in found.topics["g"].initialized.values()]
    # The second write has the start offset that follows from the first.
    assert (1, (StateBatch(1, 1, 0, 1),)) == (state.start_offset, state.batches)


def test_positions_of_a_share_group_are_set_once() -> None:
    """Positions are set once, with the cluster's topic ids; groups of topics that are not handed over are skipped."""
    found, topic_id = kept_by_us()
    cluster, ids = OtherCluster(), {"orders": "theirs"}
    topics = {decode_id(topic_id): "orders"}

    assert ["share group g: its position was set as here: orders-0 at 1"] == list(
        put_share_groups(cluster, found, topics, ids)
    )
    assert ["share group g: already has positions there: orders-0 at 1"] == list(
        put_share_groups(cluster, found, topics, ids)
    )
    assert ([ids], 1) == (cluster.ids, cluster.states["g", PLACE].start_offset)
    assert [] == list(put_share_groups(cluster, found, {}, ids))
