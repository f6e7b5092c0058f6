"""A topic of a cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from topicfs.cluster.brokers.brokers import Backoff, TopicMetadata
from topicfs.cluster.brokers.leaders import ATTEMPT_SECONDS, Leaders
from topicfs.cluster.brokers.settings import TopicSettings, describe_topic
from topicfs.cluster.errors import UnreachableError
from topicfs.cluster.topics.partition import ClusterPartition
from topicfs.storage.config.listing import ShownSetting
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.errors import PartitionOfflineError

SETTINGS_CACHE_SECONDS = 2.0
"""How long settings from the cluster are used before the cluster is asked again."""
STALE_SETTINGS_SECONDS = 60.0
"""How long appends use old settings while new ones are requested: settings rarely change, and appends do not wait."""


class ClusterTopic:
    """Implements `storage.engine.Topic`. If a topic is deleted and recreated, the new topic is a new object."""

    def __init__(self, metadata: TopicMetadata, leaders: Leaders, threads: ThreadPoolExecutor) -> None:
        """Make the topic; `threads` run requests in the background."""
        self.name = metadata.name
        self.topic_id = metadata.topic_id
        self.internal = metadata.internal
        self.known: Mapping[int, ClusterPartition] = {}
        """The known partitions by number, ascending. The mapping is replaced as a whole."""
        self._leaders = leaders
        self._settings: TopicSettings | None = None
        self._settings_until = 0.0
        self._threads = threads
        self._refreshing: Future[TopicSettings] | None = None

    @property
    def config(self) -> TopicConfig:
        known = self._settings_in_use()
        if known is None:
            self._leaders.before_waiting()
        return (known or self._last_settings()).config

    def ask_settings(self) -> TopicSettings:
        """Return the settings for a partition's `config` (blocking)."""
        return self._settings_in_use() or self._last_settings()

    @property
    def overrides(self) -> Mapping[str, str]:
        return self._shown_settings().overrides

    def settings(self) -> Sequence[ShownSetting]:
        return self._shown_settings().shown

    def partitions(self) -> Mapping[int, ClusterPartition]:
        return self.known

    def opened(self) -> Iterable[ClusterPartition]:
        return self.known.values()

    def wait_for_settings(self, changes: Mapping[str, str | None]) -> None:
        """Wait until brokers report changed settings (blocking).

        The wait has a time limit, because brokers may report a value in another spelling.
        """
        deadline, backoff = time.monotonic() + SETTINGS_CACHE_SECONDS, Backoff()
        while time.monotonic() < deadline:
            self._settings_until = 0.0
            overrides = self._ask_settings().overrides
            if all(overrides.get(name) == value for name, value in changes.items()):
                return
            self._leaders.pause(backoff.next(), self.name)

    def _shown_settings(self) -> TopicSettings:
        """Return the settings for display. Raises NotAuthorizedError."""
        known = self._settings if time.monotonic() < self._settings_until else None
        if known is None:
            self._leaders.before_waiting()
        settings = known or self._ask_settings()
        if settings.refused is not None:
            raise settings.refused
        return settings

    def _settings_in_use(self) -> TopicSettings | None:
        now = time.monotonic()
        if now >= self._settings_until + STALE_SETTINGS_SECONDS:
            return None
        if now >= self._settings_until and (self._refreshing is None or self._refreshing.done()):
            with suppress(RuntimeError):  # The engine is closing.
                self._refreshing = self._threads.submit(self._ask_settings)
        return self._settings

    def _last_settings(self) -> TopicSettings:
        """Return the present settings; if no broker answers, return the last known settings.

        Otherwise an append would fail although the leader of its partition answers.
        """
        try:
            return self._ask_settings()
        except PartitionOfflineError:
            if self._settings is None:
                raise
            return self._settings

    def _ask_settings(self) -> TopicSettings:
        """Ask once if settings are known. Otherwise ask until there is an answer or the time limit is reached."""
        deadline, backoff = time.monotonic() + self._leaders.timeout_seconds, Backoff()
        while True:
            try:
                found = describe_topic(self._leaders.brokers, self.name, seconds=ATTEMPT_SECONDS)
                break
            except UnreachableError as error:
                pause = backoff.next()
                if self._settings is not None or time.monotonic() + pause > deadline:
                    raise PartitionOfflineError(f"{self.name}: {error}") from None
            self._leaders.pause(pause, self.name)
        self._settings = found
        self._settings_until = time.monotonic() + SETTINGS_CACHE_SECONDS
        return found
