"""The settings of topics in a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.errors import MalformedAnswerError, error_of
from topicfs.cluster.protocol.connection import ANSWER_TIMEOUT_SECONDS
from topicfs.protocol.messages import DESCRIBE_CONFIGS
from topicfs.storage.config.listing import ConfigSource, ShownSetting, shown, unknown_setting
from topicfs.storage.config.topic import SETTINGS, TopicConfig
from topicfs.storage.errors import InvalidConfigError, NotAuthorizedError, StorageError
from topicfs.storage.wire import Values

TOPICS_A_REQUEST = 100

TOPIC_RESOURCE = 2
"""Kafka's resource type for topics."""
_OVERRIDE = 1
"""Config source of a value set for the topic itself."""
_DEFAULT = 5
"""Config source of a value that neither the topic nor a broker sets."""
_SOURCES = {_OVERRIDE: ConfigSource.TOPIC, _DEFAULT: ConfigSource.DEFAULT}
"""The sources by Kafka's number. All other numbers mean a broker's settings or configuration file."""


class TopicSettings(NamedTuple):
    config: TopicConfig
    """The values of the settings that topicfs knows."""
    overrides: Mapping[str, str]
    """The settings that are set for the topic itself, by Kafka's names."""
    shown: Sequence[ShownSetting]
    """Every setting, as the cluster describes it."""
    refused: NotAuthorizedError | None = None
    """Why the settings could not be read. Kafka's defaults then apply: appending needs no permission to read them."""


def topic_settings(brokers: Brokers, topics: Sequence[str]) -> dict[str, dict[str, str] | StorageError]:
    """Return the settings that each topic or its brokers set, or the broker's error (blocking).

    Raises like `Brokers.ask_any`.
    """
    return {
        name: found
        if isinstance(found, StorageError)
        else {each["name"]: each["value"] for each in found if each["configSource"] != _DEFAULT}
        for name, found in _described(brokers, topics)
    }


def describe_topic(brokers: Brokers, topic: str, *, seconds: float) -> TopicSettings:
    """Return a topic's settings (blocking). Raises StorageError, and the errors of `Brokers.ask_any`."""
    found = dict(_described(brokers, [topic], seconds=seconds)).get(topic)
    if found is None:
        raise MalformedAnswerError(f"{topic}: the answer does not mention its settings")
    if isinstance(found, NotAuthorizedError):
        return TopicSettings(TopicConfig(), {}, (), refused=found)
    if isinstance(found, StorageError):
        raise found
    values: dict[str, Any] = {}
    for each in found:
        row = SETTINGS.get(each["name"])
        if row is None:
            continue
        # Ignore values that only a newer Kafka allows, and tiered storage: the topic must stay readable.
        with suppress(InvalidConfigError):
            TopicConfig.from_overrides({row.name: each["value"]})
            values[row.field] = row.parse(each["value"])
    overrides = {each["name"]: each["value"] for each in found if each["configSource"] == _OVERRIDE}
    return TopicSettings(TopicConfig()._replace(**values), overrides, [_shown(each) for each in found])


def _shown(said: Values) -> ShownSetting:
    """Return a setting in the form that `topicfs config` lists."""
    name, value = said["name"], said["value"]
    source = _SOURCES.get(said["configSource"], ConfigSource.BROKER)
    synonyms = {each["source"]: each for each in reversed(said["synonyms"])}
    default = (synonyms.get(_DEFAULT) or {}).get("value") or ""
    broker_name = synonyms[said["configSource"]]["name"] if said["configSource"] in synonyms else None
    file_name = broker_name if source is ConfigSource.BROKER else None
    row = SETTINGS.get(name)
    if row is None:
        return unknown_setting(name, value, source, file_name=file_name, default=default)
    return shown(row, value, source, file_name)


def _described(
    brokers: Brokers, topics: Sequence[str], *, seconds: float = ANSWER_TIMEOUT_SECONDS
) -> Iterator[tuple[str, Sequence[Values] | StorageError]]:
    for first in range(0, len(topics), TOPICS_A_REQUEST):
        asked = topics[first : first + TOPICS_A_REQUEST]
        resources = [
            {"resourceType": TOPIC_RESOURCE, "resourceName": name, "configurationKeys": None}
            for name in asked
        ]
        for one in brokers.ask_any(
            DESCRIBE_CONFIGS, {"resources": resources, "includeSynonyms": True}, seconds=seconds
        )["results"]:
            name = one["resourceName"]
            if one["errorCode"]:
                yield name, error_of(one["errorCode"], name, one["errorMessage"])
            else:
                yield name, [each for each in one["configs"] if each["value"] is not None]
