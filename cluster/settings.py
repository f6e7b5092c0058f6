"""The settings that hold for topics in a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from cluster.brokers import Brokers
from cluster.connection import ANSWER_SECONDS
from cluster.errors import MalformedAnswerError, error_of
from cluster.messages import DESCRIBE_CONFIGS
from storage.config.topic import SETTINGS, TopicConfig
from storage.coordinators.wire import Values
from storage.errors import InvalidConfigError, StorageError

TOPICS_A_REQUEST = 100

_TOPIC = 2
_OVERRIDE = 1
"""The source of a value that the topic itself sets."""
_DEFAULT = 5
"""The source of a value that neither the topic nor a broker sets."""


class TopicSettings(NamedTuple):
    """A topic's settings, as far as they have a meaning here."""

    config: TopicConfig
    overrides: Mapping[str, str]
    """Those that the topic itself sets, by Kafka's names."""


def topic_settings(brokers: Brokers, topics: Sequence[str]) -> dict[str, dict[str, str] | StorageError]:
    """Return each topic's settings as far as the topic or its brokers set them, or why they are not known (blocking).

    Raises what `Brokers.ask_any` does.
    """
    return {
        name: found
        if isinstance(found, StorageError)
        else {each["name"]: each["value"] for each in found if each["configSource"] != _DEFAULT}
        for name, found in _described(brokers, topics)
    }


def describe_topic(brokers: Brokers, topic: str, *, seconds: float) -> TopicSettings:
    """Return a topic's settings (blocking). Raises StorageError, NotAuthorizedError, and what `Brokers.ask_any` does."""
    found = dict(_described(brokers, [topic], seconds=seconds)).get(topic)
    if found is None:
        raise MalformedAnswerError(f"{topic}: the answer says nothing of its settings")
    if isinstance(found, StorageError):
        raise found
    values: dict[str, Any] = {}
    overrides: dict[str, str] = {}
    for each in found:
        row = SETTINGS.get(each["name"])
        if row is None:
            continue
        # What a newer Kafka allows, and tiered storage, keep no topic from being read.
        with suppress(InvalidConfigError):
            TopicConfig.from_overrides({row.name: each["value"]})
            values[row.field] = row.parse(each["value"])
            if each["configSource"] == _OVERRIDE:
                overrides[row.name] = each["value"]
    return TopicSettings(replace(TopicConfig(), **values), overrides)


def _described(
    brokers: Brokers, topics: Sequence[str], *, seconds: float = ANSWER_SECONDS
) -> Iterator[tuple[str, Sequence[Values] | StorageError]]:
    """Yield each topic's settings that have a value, or the error that stands for them."""
    for first in range(0, len(topics), TOPICS_A_REQUEST):
        asked = topics[first : first + TOPICS_A_REQUEST]
        resources = [
            {"resourceType": _TOPIC, "resourceName": name, "configurationKeys": None} for name in asked
        ]
        for one in brokers.ask_any(DESCRIBE_CONFIGS, {"resources": resources}, seconds=seconds)["results"]:
            name = one["resourceName"]
            if one["errorCode"]:
                yield name, error_of(one["errorCode"], name, one["errorMessage"])
            else:
                yield name, [each for each in one["configs"] if each["value"] is not None]
