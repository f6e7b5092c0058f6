"""Requests about settings: DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeAlias

from topicfs.listener.broker import Broker, Request
from topicfs.listener.errors import RefusedError, answer_or_error
from topicfs.protocol.error_codes import ErrorCode
from topicfs.storage.config import kinds
from topicfs.storage.config.broker import EngineConfig, broker_settings
from topicfs.storage.config.kinds import split_list
from topicfs.storage.config.listing import ConfigSource, ShownSetting, engine_settings
from topicfs.storage.config.setting import Setting
from topicfs.storage.config.topic import SETTINGS, TopicConfig
from topicfs.storage.engine import Topic
from topicfs.storage.errors import InvalidConfigError
from topicfs.storage.wire import Values

TOPIC, BROKER = 2, 4
"""The types of resources that have settings."""
SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs."""
_TOPIC_SOURCE, _FILE_SOURCE, _DEFAULT_SOURCE = 1, 4, 5
_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = 1, 2, 3, 5, 6, 7
"""Kafka's numbers for the sources of settings (first line), and for the types of their values (second line)."""
Changes: TypeAlias = Mapping[str, str | None]
"""New overrides of a topic by name; None removes an override."""
_TYPES: Mapping[type, int] = {
    kinds.Boolean: _BOOLEAN,
    kinds.Ratio: _DOUBLE,
    kinds.WordList: _LIST,
    kinds.ThrottledReplicas: _LIST,
}
"""The type number of each kind of value. Numbers and text are not in this table."""


def describe_configs(broker: Broker, request: Request) -> Values:
    """Answer DescribeConfigs."""
    results = [
        answer_or_error({**_resource(one), "configs": []}, partial(_describe, broker, one, request.values))
        for one in request.values["resources"]
    ]
    return {"results": results}


def _resource(one: Values) -> Values:
    return {"resourceType": one["resourceType"], "resourceName": one["resourceName"]}


def _describe(broker: Broker, one: Values, values: Values) -> Values:
    keys = one["configurationKeys"]
    of_topic = one["resourceType"] == TOPIC
    wanted = (each for each in _settings(broker, one) if keys is None or each.name in keys)
    return {"configs": [_described(broker.config, each, values, of_topic=of_topic) for each in wanted]}


def _settings(broker: Broker, one: Values) -> Iterable[ShownSetting]:
    if one["resourceType"] == TOPIC:
        return broker.engine.topic(one["resourceName"]).settings()
    _check_broker(broker, one)
    if not one["resourceName"]:
        return ()  # An empty name means the defaults of all brokers, which clients cannot set here.
    return engine_settings(broker.config, given={})


def _check_broker(broker: Broker, one: Values) -> None:
    """Raise RefusedError unless the resource is this broker."""
    if one["resourceType"] != BROKER:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, f"resources of type {one['resourceType']} have no settings here"
        )
    if one["resourceName"] not in ("", str(broker.node_id)):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"broker {one['resourceName']} does not exist; the only broker is {broker.node_id}",
        )


def _described(config: EngineConfig, setting: ShownSetting, values: Values, *, of_topic: bool) -> Values:
    found = _values(config, setting, of_topic=of_topic)
    return {
        "name": setting.name,
        "value": setting.value,
        "readOnly": not of_topic,
        "configSource": found[0]["source"] if found else _DEFAULT_SOURCE,
        "isSensitive": False,
        "synonyms": found if values["includeSynonyms"] else [],
        "configType": _type_of(setting.name),
        "documentation": setting.meaning if values.get("includeDocumentation") else None,
    }


def _values(config: EngineConfig, setting: ShownSetting, *, of_topic: bool) -> list[Values]:
    """Return the values of a setting: the topic's value, then the value in the settings file, then the default.

    The last two values have the name of the broker's setting. Some settings of topics have several broker's settings,
    each in another unit. Like a broker, leave out the default of such a setting.
    """
    found: list[Values] = []
    if setting.source is ConfigSource.TOPIC:
        found.append({"name": setting.name, "value": setting.value, "source": _TOPIC_SOURCE})
    one = _setting_of(setting.name)
    if one is None or not one.row.synonyms:
        return found
    name = one.row.synonyms[0].name if of_topic else setting.name
    value = one.text_in(config.topic_defaults if of_topic else config)
    if value != one.default_text:
        found.append({"name": name, "value": value, "source": _FILE_SOURCE})
    if not of_topic or len(one.row.synonyms) == 1:
        found.append({"name": name, "value": one.default_text, "source": _DEFAULT_SOURCE})
    return found


def _setting_of(name: str) -> Setting | None:
    return SETTINGS.get(name) or broker_settings().get(name)


def _type_of(name: str) -> int:
    one = _setting_of(name)
    kind = None if one is None else one.row.kind
    if isinstance(kind, kinds.WholeNumberOr | kinds.OptionalWholeNumber):
        kind = kind.number
    if isinstance(kind, kinds.WholeNumber):
        return _INT if kind.maximum <= kinds.INT_MAX else _LONG
    return _TYPES.get(type(kind), _STRING)


def created_settings(config: EngineConfig, topic: Topic) -> list[Values]:
    """Return a new topic's settings, for the answer to CreateTopics."""
    return [
        _described(config, setting, {"includeSynonyms": False}, of_topic=True) for setting in topic.settings()
    ]


def alter_configs(broker: Broker, request: Request) -> Values:
    """Answer AlterConfigs, which replaces all settings of each topic."""
    return _altered(broker, request, _replacements)


def incremental_alter_configs(broker: Broker, request: Request) -> Values:
    """Answer IncrementalAlterConfigs."""
    return _altered(broker, request, _changes)


def _altered(broker: Broker, request: Request, read: Callable[[Topic, Iterable[Values]], Changes]) -> Values:
    """Change settings of topics with the changes that `read` returns for each topic.

    The broker's settings are in its file; clients cannot change them.
    """
    resources, only_check = request.values["resources"], request.values["validateOnly"]
    named = [_resource(one) for one in resources]

    def alter(one: Values) -> None:
        if named.count(_resource(one)) > 1:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "the request names the resource more than once")
        if one["resourceType"] != TOPIC:
            _check_broker(broker, one)
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "settings of the broker are changed in its server.properties"
            )
        topic = broker.engine.topic(one["resourceName"])
        changes = read(topic, one["configs"])
        wanted = {key: value for key, value in {**topic.overrides, **changes}.items() if value is not None}
        TopicConfig.from_overrides(wanted, broker.config.topic_defaults)
        if not only_check:
            with broker.rest():
                broker.engine.alter_config(topic.name, changes)

    responses = [answer_or_error(_resource(one), partial(alter, one)) for one in resources]
    return {"responses": responses}


def _replacements(topic: Topic, configs: Iterable[Values]) -> Changes:
    """Return the changes after which the topic has only the overrides in `configs`. Raises RefusedError."""
    set_values = ({**one, "configOperation": SET} for one in configs)
    return {**dict.fromkeys(topic.overrides), **_changes(topic, set_values)}


def _changes(topic: Topic, configs: Iterable[Values]) -> Changes:
    """Return the changes that `configs` asks for. Raises RefusedError, InvalidConfigError."""
    changes: dict[str, str | None] = {}
    for one in configs:
        name, operation, value = one["name"], one["configOperation"], one["value"]
        if name in changes:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{name}: the request changes it more than once")
        if operation == DELETE:
            changes[name] = None
            continue
        if value is None:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{name}: a value is missing")
        if operation == SET:
            changes[name] = value
            continue
        if operation not in (APPEND, SUBTRACT) or _type_of(name) != _LIST:
            raise InvalidConfigError(f"{name}: only a list can be appended to or subtracted from")
        present = {each.name: each.value for each in topic.settings()}[name]
        items, further = [each for each in split_list(present) if each], split_list(value)
        if operation == APPEND:
            items += [each for each in further if each not in items]
        else:
            items = [each for each in items if each not in further]
        changes[name] = ",".join(items)
    return changes
