"""A topic of the embedded engine, and the rules for the overrides of topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from types import MappingProxyType
from typing import TypeAlias

from topicfs.storage.config.listing import ShownSetting, topic_settings
from topicfs.storage.config.topic import SETTINGS, TopicConfig
from topicfs.storage.disk import names
from topicfs.storage.engine import Partition, Topic, records_of
from topicfs.storage.errors import InvalidConfigError, PartitionOfflineError, TopicNotEmptyError
from topicfs.storage.log.log import Log
from topicfs.storage.messages import did_you_mean
from topicfs.storage.model import Timestamp


class Unopened:
    """A partition that its last owner closed cleanly, and of which only names and checkpoints have been read."""

    __slots__ = ("_open", "due", "examined_by", "number", "partition")

    def __init__(self, number: int, open_one: Callable[[Unopened], Partition]) -> None:
        self.number = number
        self._open = open_one
        self.partition: Partition | None = None
        """The partition once it is open; None before that."""
        self.examined_by: TopicConfig | None = None
        """The settings for which `due` was computed; None if it was not computed yet."""
        self.due: Timestamp | None = None
        """Time at which, under the settings in `examined_by`, a duty requires the partition to be open; None: never."""

    def open(self) -> Partition:
        """Open the partition if it is not open yet. Blocks."""
        return self.partition or self._open(self)


Served: TypeAlias = Partition | Unopened


class Partitions(Mapping[int, Partition]):
    """The partitions by ascending number; a snapshot. Getting a partition opens it and blocks; iterating does not."""

    def __init__(self, served: Mapping[int, Served]) -> None:
        self.served = dict(sorted(served.items()))
        """Each partition, opened or not. Only the engine uses this attribute."""

    def __getitem__(self, number: int) -> Partition:
        found = self.served[number]
        if isinstance(found, Unopened):
            found = self.served[number] = found.open()
        return found

    def __contains__(self, number: object) -> bool:
        return number in self.served

    def __iter__(self) -> Iterator[int]:
        return iter(self.served)

    def __len__(self) -> int:
        return len(self.served)


NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's zero ID, for a topic whose directory has no topic ID and is read-only."""

INTERNAL_OVERRIDES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        names.CONSUMER_OFFSETS: {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        },
        names.TRANSACTION_STATE: {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": "104857600",
        },
        "__share_group_state": {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "retention.ms": "-1",
            "segment.bytes": "104857600",
        },
    }
)
"""The overrides with which Kafka creates its own topics."""


class EmbeddedTopic:
    """A topic's name, ID and settings. Only the engine changes them, each by one assignment."""

    def __init__(
        self, name: str, *, topic_id: str, config: TopicConfig, overrides: Mapping[str, str]
    ) -> None:
        self.name, self.topic_id, self.internal = name, topic_id, names.is_internal(name)
        self._settings = (config, MappingProxyType(dict(overrides)))

    @property
    def config(self) -> TopicConfig:
        return self._settings[0]

    @property
    def overrides(self) -> Mapping[str, str]:
        return self._settings[1]

    def settings(self) -> Sequence[ShownSetting]:
        return list(topic_settings(self.config, overrides=self.overrides, given={}))

    def set_overrides(self, config: TopicConfig, overrides: Mapping[str, str]) -> None:
        """Replace the overrides, and `config`, which follows from them. Only the engine calls this method."""
        self._settings = (config, MappingProxyType(dict(overrides)))


class LogTopic(EmbeddedTopic):
    """A topic over the logs of its partitions, each of which may be opened on first use."""

    def __init__(
        self,
        name: str,
        *,
        topic_id: str,
        config: TopicConfig,
        overrides: Mapping[str, str],
        partitions: Mapping[int, Served],
    ) -> None:
        super().__init__(name, topic_id=topic_id, config=config, overrides=overrides)
        self._opening = Lock()
        self._load: Callable[[int], Partition] = self._refuse
        self._untouched = True
        """True while no partition is open."""
        self._partitions: Mapping[int, Partition] = MappingProxyType({})
        self.put_partitions(partitions)

    def partitions(self) -> Mapping[int, Partition]:
        return self._partitions

    @property
    def served(self) -> Mapping[int, Served]:
        """The partitions by ascending number; reading this opens no partition."""
        partitions = self._partitions
        # Not isinstance, which asks the abstract base class and is slow: duties call this often.
        return partitions.served if type(partitions) is Partitions else partitions

    def known(self) -> dict[int, Partition | None]:
        """Return the partitions by number; None for a partition that is not open yet."""
        return {
            number: one.partition if isinstance(one, Unopened) else one for number, one in self.served.items()
        }

    def opened(self) -> Iterable[Partition]:
        """Return the partitions that are open, including offline partitions."""
        if self._untouched:
            return ()
        partitions = self._partitions
        if type(partitions) is not Partitions:
            return (
                partitions.values()
            )  # The mapping is replaced as a whole when a partition is added or removed.
        return [one for one in self.known().values() if one is not None]

    def unopened(self) -> Iterator[Unopened]:
        """Yield the partitions that are not open yet."""
        if isinstance(self._partitions, Partitions):
            for one in list(self._partitions.served.values()):
                if isinstance(one, Unopened) and one.partition is None:
                    yield one

    def put_partitions(self, changes: Mapping[int, Served]) -> None:
        """Add partitions, or replace partitions with the same numbers. For the manager."""
        served = {**self.served, **changes}
        closed = any(isinstance(one, Unopened) for one in served.values())
        if not all(isinstance(one, Unopened) for one in served.values()):
            self._untouched = False
        self._partitions = Partitions(served) if closed else _all_opened(served)

    def take_partitions(self, numbers: Iterable[int]) -> None:
        """Remove partitions that are no longer here. For the manager."""
        gone = set(numbers)
        served = {number: one for number, one in self.served.items() if number not in gone}
        self._partitions = MappingProxyType({})
        self.put_partitions(served)

    def leave_unopened(self, numbers: Iterable[int], load: Callable[[int], Partition]) -> None:
        """Add partitions that `load` opens on first use. For the manager."""
        self._load = load
        self.put_partitions({number: Unopened(number, self._open) for number in numbers})

    def open_no_more(self) -> None:
        """From now on, refuse to open partitions that are not open yet. For the manager."""
        with self._opening:
            self._load = self._refuse

    def _open(self, one: Unopened) -> Partition:
        with self._opening:
            if one.partition is None:
                found = self._load(one.number)
                self._untouched = False
                one.partition = found
                if isinstance(found, Log) and found.config is not self.config:
                    found.update_config(
                        self.config
                    )  # The settings were altered while the partition was loaded.
            return one.partition

    def _refuse(self, number: int) -> Partition:
        raise PartitionOfflineError(f"{self.name}-{number}: closed")


def _all_opened(served: Mapping[int, Served]) -> Mapping[int, Partition]:
    opened = sorted((number, one) for number, one in served.items() if not isinstance(one, Unopened))
    return MappingProxyType(dict(opened))


def own_overrides(name: str, creation_overrides: Mapping[str, str]) -> Mapping[str, str]:
    """Return the overrides for a topic that was found without overrides. They keep its records from being deleted."""
    return INTERNAL_OVERRIDES.get(name, creation_overrides)


def merge_overrides(present: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Apply `changes` to overrides; None removes an override. Raises InvalidConfigError for an unknown name."""
    merged = dict(present)
    for name, value in changes.items():
        if value is not None:
            merged[name] = value
        elif name in SETTINGS:
            merged.pop(name, None)
        else:
            raise InvalidConfigError(f"{name}: no such topic setting{did_you_mean(name, SETTINGS)}")
    return merged


def lenient_config(
    overrides: Mapping[str, str], defaults: TopicConfig
) -> tuple[TopicConfig, tuple[str, ...]]:
    """Return the settings of `overrides`, and the problems of invalid ones: a topic must open in spite of them."""
    with suppress(InvalidConfigError):  # Two overrides that require each other are not valid one by one.
        return TopicConfig.from_overrides(overrides, defaults), ()
    config = defaults
    problems = []
    for name, value in overrides.items():
        try:
            config = TopicConfig.from_overrides({name: value}, config)
        except InvalidConfigError as error:
            problems.append(str(error))
    return config, tuple(problems)


def check_empty(topic: Topic) -> None:
    """Raise TopicNotEmptyError if a topic has records, PartitionOfflineError if a partition may have records."""
    for partition in topic.partitions().values():
        partition.find_bounds()
    if records := records_of(topic):
        raise TopicNotEmptyError(topic.name, records)
