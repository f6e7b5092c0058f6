"""The settings of an engine that runs: which of them it takes over while it serves, and what a change of them is.

As with a broker's dynamic settings the others hold from the next start on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from topicfs.storage.config.broker import EngineConfig, broker_settings
from topicfs.storage.config.topic import SETTINGS

_FROM_THE_NEXT_START = frozenset({
    "node_id",
    "replication_factor",
    "recovery_threads",
    "initial_task_delay_ms",
    "producer_id_expiration_ms",
    "offsets_topic_num_partitions",
    "offsets_retention_minutes",
    "offset_metadata_max_bytes",
    "group_max_size",
    "group_min_session_timeout_ms",
    "group_max_session_timeout_ms",
    "group_initial_rebalance_delay_ms",
})  # fmt: skip
"""Fields of EngineConfig that are read once, when the engine is opened."""


class LiveSettings:
    """The settings of one engine, which replaces them as a whole. Read from any thread."""

    __slots__ = ("config",)

    def __init__(self, config: EngineConfig) -> None:
        self.config = config


class SettingChange(NamedTuple):
    """A setting that has another value than before, in Kafka's spelling."""

    name: str
    before: str
    after: str
    from_next_start: bool

    def __str__(self) -> str:
        when = ", from the next start on" if self.from_next_start else ""
        return f"{self.name}: {self.after} in place of {self.before}{when}"


def taken_over(running: EngineConfig, wanted: EngineConfig) -> EngineConfig:
    """Return what an engine has that ran with one and is given the other: its own of what is read at the start alone."""
    kept = {name: getattr(running, name) for name in _FROM_THE_NEXT_START}
    return wanted._replace(follows=running.follows, **kept)


def differences(running: EngineConfig, wanted: EngineConfig) -> Iterator[SettingChange]:
    """Yield the settings that differ, those of topics under the names that they have in a server.properties."""
    for setting in SETTINGS.values():
        before = getattr(running.topic_defaults, setting.field)
        after = getattr(wanted.topic_defaults, setting.field)
        if before != after:
            name = setting.row.synonyms[0].name if setting.row.synonyms else setting.name
            yield SettingChange(name, setting.print(before), setting.print(after), from_next_start=False)
    for name, own in broker_settings().items():
        before, after = getattr(running, own.field), getattr(wanted, own.field)
        if before != after:
            kind = own.row.kind
            late = own.field in _FROM_THE_NEXT_START
            yield SettingChange(name, kind.print(before), kind.print(after), from_next_start=late)
