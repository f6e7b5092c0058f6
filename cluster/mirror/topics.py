"""The topics of a mirror: the topics in the source, and their copies."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from topicfs.cluster.brokers.brokers import Brokers, Metadata, TopicMetadata
from topicfs.cluster.brokers.settings import topic_settings
from topicfs.cluster.errors import DELETED, NONE, TOPIC_AUTHORIZATION_FAILED, WrittenByOthersError
from topicfs.cluster.mirror.copy import MirroredPartition
from topicfs.cluster.mirror.journal import MirrorJournal
from topicfs.storage.config.topic import SETTINGS, TopicConfig
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import ClusterError, InvalidConfigError, InvalidNameError, TopicExistsError
from topicfs.storage.log.log import Log
from topicfs.storage.manager import LogManager
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import TopicPartition

GROUPS_TOPIC = "__consumer_offsets"
IDS_SECONDS = 2.0
"""Time limit for a broker's answer about topic ids."""
SETTINGS_POLL_SECONDS = 60.0
"""Interval for refreshing the settings of topics."""


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Selects the topics to copy."""

    patterns: tuple[str, ...] = ("*",)
    """Names or shell patterns."""
    groups: bool = False
    """True: also copy the positions of groups, which Kafka keeps in an internal topic."""

    def match(self, topic: TopicMetadata) -> bool:
        if topic.internal:
            return self.groups and topic.name == GROUPS_TOPIC
        return any(fnmatchcase(topic.name, pattern) for pattern in self.patterns)


class TopicCopies:
    """The copies of topics in one directory. One thread changes them, between rounds."""

    def __init__(
        self, engine: LogManager, directory: Path, brokers: Brokers, names: TopicNames, report: ReportLine
    ) -> None:
        self.journal = MirrorJournal("")
        self.copies: dict[TopicPartition, MirroredPartition] = {}
        """The copies of topics that exist in the source now."""
        self.disputed: Mapping[str, str] = {}
        """Messages by topic name. A topic has a message if its id in the source differs from the id of its copy,
        while a broker still knows the old id.
        """
        self._engine, self._directory, self._brokers = engine, directory, brokers
        self._names, self._report = names, report
        self._files = NativeFileSystem()
        self._said: dict[str, str] = {}
        self._settings_at = 0.0
        self._verified = False

    def say_once(self, about: str, text: str | None) -> None:
        """Report `text` about the subject `about`, unless the last report about this subject had the same text.

        If `text` is None, forget the last report, so that the next report is never suppressed.
        """
        if text is None:
            self._said.pop(about, None)
        elif self._said.get(about) != text:
            self._said[about] = text
            self._report(text)

    def take_over(self, journal: MirrorJournal) -> None:
        """Check that only mirrors have changed the directory. Raises WrittenByOthersError."""
        for name, topic in self._engine.topics().items():
            if journal.topics.get(name) != topic.topic_id:
                raise WrittenByOthersError(self._directory, f"topic {name} is not the topic that was copied")
        for name, end in self.ends().items():
            left = (journal.ends or {}).get(name, end)
            if left != end:
                what = f"{name} ends at {end}, and the mirror left it at {left}"
                raise WrittenByOthersError(self._directory, what)
        self._verified = journal.ends is not None
        self.journal = replace(journal, ends=None)
        self.journal.write(self._directory, self._files)

    def follow(self, metadata: Metadata) -> None:
        """Create, extend, replace and configure copies like the source (blocking). Raises OSError, StorageError."""
        found = {
            name: topic
            for name, topic in metadata.topics.items()
            if self._names.match(topic) and topic.error == NONE and topic.leaders
        }
        self.say_once("names", metadata.warning)
        self.disputed = self._find_disputed(found, metadata)
        for name, text in self.disputed.items():
            self.say_once(f"topic {name}", text)
            del found[name]
        settings = self._settings(found)
        copies: dict[TopicPartition, MirroredPartition] = {}
        for name, topic in found.items():
            try:
                self._follow_topic(topic, settings.get(name))
            except (InvalidConfigError, InvalidNameError, TopicExistsError) as error:
                self.say_once(f"topic {name}", f"{name}: not copied: {error}")
                continue
            self.say_once(f"topic {name}", None)
            copies |= self._copies_of(topic)
        self.copies = copies
        missing = {
            name: one.topic_id for name, one in self._engine.topics().items() if name not in metadata.topics
        }
        codes = self._brokers.answers_by_id(missing, seconds=IDS_SECONDS) if missing else {}
        for name, code in codes.items():
            if code in {TOPIC_AUTHORIZATION_FAILED, *DELETED}:
                why = "no longer in the cluster" if code in DELETED else "the user may no longer describe it"
                self.say_once(f"topic {name}", f"{name}: {why}; its copy stays")

    def note_placed(self) -> None:
        """Record in the journal which copies have a first offset now."""
        placed = {str(one.partition) for one in self.copies.values() if one.placed}
        if placed & self.journal.unplaced:
            self._write(replace(self.journal, unplaced=self.journal.unplaced - placed))

    def ends(self) -> dict[str, int]:
        """Return the log ends of all partitions that are online."""
        return {
            f"{name}-{number}": log.log_end_offset
            for name, topic in self._engine.topics().items()
            for number, log in topic.partitions().items()
            if isinstance(log, Log) and log.offline_reason is None
        }

    def _find_disputed(self, found: Mapping[str, TopicMetadata], metadata: Metadata) -> dict[str, str]:
        """Return messages about topics that seem recreated, unless all brokers agree that they were (blocking).

        A broker that lags behind may still report a deleted topic, and ids do not show which topic is newer.
        Therefore no copy is deleted until all brokers agree.
        """
        copied = {
            name: copy.topic_id
            for name, copy in self._engine.topics().items()
            if name in found and found[name].topic_id != copy.topic_id
        }
        disputed: dict[str, str] = {}
        for node in metadata.brokers if copied else ():
            with suppress(ClusterError):
                known = self._brokers.topic_ids(node, copied, seconds=IDS_SECONDS)
                for name in (name for name, topic_id in copied.items() if known.get(name) == topic_id):
                    disputed[name] = (
                        f"{name}: the cluster reports another topic of that name, but broker {node} has the one that "
                        "was copied; the copy stays as it is until all brokers agree"
                    )
        return disputed

    def _follow_topic(self, source: TopicMetadata, settings: Mapping[str, str] | None) -> None:
        name = source.name
        copy = self._engine.topics().get(name)
        if copy is not None and copy.topic_id != source.topic_id:
            self._report(f"{name}: deleted and created again in the cluster, and its copy as well")
            self._engine.delete_topic(name)
            copy = None
        numbers = range(len(copy.partitions()) if copy else 0, max(source.leaders) + 1)
        if numbers:
            unplaced = self.journal.unplaced | {f"{name}-{number}" for number in numbers}
            self._write(
                replace(
                    self.journal, topics={**self.journal.topics, name: source.topic_id}, unplaced=unplaced
                )
            )
        if copy is None:
            self._engine.create_topic(
                name, partitions=numbers.stop, overrides=settings or {}, topic_id=source.topic_id
            )
            return
        if numbers:
            self._engine.add_partitions(name, total=numbers.stop)
        if settings is not None and settings != copy.overrides:
            gone = dict.fromkeys(copy.overrides.keys() - settings.keys())
            self._engine.alter_config(name, {**gone, **settings})

    def _copies_of(self, source: TopicMetadata) -> dict[TopicPartition, MirroredPartition]:
        copies = {}
        for number, log in self._engine.topic(source.name).partitions().items():
            partition = TopicPartition(source.name, number)
            known = self.copies.get(partition)
            if known is not None and known.log is log:
                copies[partition] = known
            elif isinstance(log, Log):
                unplaced = (
                    str(partition) in self.journal.unplaced and log.log_end_offset == log.log_start_offset
                )
                copies[partition] = MirroredPartition(
                    log,
                    source.topic_id,
                    placed=not unplaced,
                    verified=self._verified or unplaced,
                    report=self._report,
                )
            else:
                self.say_once(str(partition), f"{partition}: {log.status().state}")
        return copies

    def _settings(self, topics: Mapping[str, TopicMetadata]) -> dict[str, dict[str, str]]:
        """Return the settings of new topics; every SETTINGS_POLL_SECONDS return the settings of all topics."""
        due = time.monotonic() >= self._settings_at
        asked = [
            name
            for name, topic in topics.items()
            if due or (copy := self._engine.topics().get(name)) is None or copy.topic_id != topic.topic_id
        ]
        if due:
            self._settings_at = time.monotonic() + SETTINGS_POLL_SECONDS
        settings = {}
        for name, found in topic_settings(self._brokers, asked).items():
            if isinstance(found, dict):
                settings[name] = self._known(name, found)
            else:
                self.say_once(f"settings of {name}", f"{found}: its copy has Kafka's default settings")
        return settings

    def _known(self, name: str, settings: Mapping[str, str]) -> dict[str, str]:
        """Return the settings that topicfs knows and that differ from Kafka's defaults."""
        default, known = TopicConfig(), {}
        for setting, value in settings.items():
            if setting not in SETTINGS:
                continue
            try:
                config = TopicConfig.from_overrides({setting: value})
            except InvalidConfigError as error:
                self.say_once(f"{setting} of {name}", f"{name}: {error}: left out")
                continue
            if config != default:
                known[setting] = value
        return known

    def _write(self, journal: MirrorJournal) -> None:
        journal.write(self._directory, self._files)
        self.journal = journal
