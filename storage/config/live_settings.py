"""Which settings of a running engine can change while it serves. Other settings change at the next start."""

from collections.abc import Iterator
from typing import NamedTuple

from topicfs.storage.config.broker import EngineConfig, broker_settings
from topicfs.storage.config.setting import Setting
from topicfs.storage.config.topic import SETTINGS

_FROM_THE_NEXT_START = frozenset({
    "node_id",
    "replication_factor",
    "recovery_threads",
    "initial_task_delay_ms",
    "max_request_bytes",
    "max_queued_bytes",
    "max_connections",
    "max_connections_per_ip",
    "max_idle_ms",
    "failed_authentication_delay_ms",
    "producer_id_expiration_ms",
    "offsets_topic_num_partitions",
    "offsets_retention_minutes",
    "offset_metadata_max_bytes",
    "group_max_size",
    "group_min_session_timeout_ms",
    "group_max_session_timeout_ms",
    "group_initial_rebalance_delay_ms",
})  # fmt: skip
"""Fields of EngineConfig that the engine reads only when it is opened."""


class LiveSettings:
    """The settings of one engine, which are replaced as a whole. Any thread may read them."""

    __slots__ = ("config",)

    def __init__(self, config: EngineConfig) -> None:
        self.config = config


class SettingChange(NamedTuple):
    """A changed setting, with its old and new value in Kafka's spelling."""

    name: str
    before: str
    after: str
    from_next_start: bool

    def __str__(self) -> str:
        when = ", from the next start on" if self.from_next_start else ""
        return f"{self.name}: {self.after} in place of {self.before}{when}"


def reloaded_config(running: EngineConfig, wanted: EngineConfig) -> EngineConfig:
    """Return the settings in force after a reload. Settings that change only at a start stay as in `running`."""
    kept = {name: getattr(running, name) for name in _FROM_THE_NEXT_START}
    return wanted._replace(follows=running.follows, **kept)


def differences(running: EngineConfig, wanted: EngineConfig) -> Iterator[SettingChange]:
    """Yield the settings that differ. A topic setting is named by its name in a server.properties."""
    for one in SETTINGS.values():
        name = one.row.synonyms[0].name if one.row.synonyms else one.name
        yield from _difference(one, name, running.topic_defaults, wanted.topic_defaults)
    for name, one in broker_settings().items():
        yield from _difference(one, name, running, wanted)


def _difference(one: Setting, name: str, running: object, wanted: object) -> Iterator[SettingChange]:
    before, after = getattr(running, one.field), getattr(wanted, one.field)
    if before != after:
        late = one.field in _FROM_THE_NEXT_START
        yield SettingChange(name, one.print(before), one.print(after), from_next_start=late)
