"""Creates the groups of the embedded engine from its settings."""

from __future__ import annotations

from topicfs.coordination.groups.rebalance import GroupLimits
from topicfs.coordination.groups.runtime.service import EmbeddedGroups, GroupsOwner
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk.filesystem import Clock

MS_A_MINUTE = 60_000


def make_groups(engine: GroupsOwner, config: EngineConfig, clock: Clock) -> EmbeddedGroups:
    """Return the object that serves an engine's groups. It reads nothing from disk until it is used."""
    limits = GroupLimits(
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        metadata_max_bytes=config.offset_metadata_max_bytes,
        retention_ms=config.offsets_retention_minutes * MS_A_MINUTE,
    )
    return EmbeddedGroups(
        engine,
        clock=clock,
        limits=limits,
        partitions=config.offsets_topic_num_partitions,
        follows=config.follows,
    )
