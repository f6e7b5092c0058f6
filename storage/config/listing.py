"""Lists settings: each with its value, the source of the value, and its default."""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from fnmatch import fnmatchcase
from typing import NamedTuple

from topicfs.storage.config.broker import EngineConfig, broker_settings
from topicfs.storage.config.setting import Setting
from topicfs.storage.config.topic import SETTINGS, TopicConfig


class ConfigSource(Enum):
    """The source of a value; sources listed earlier take precedence."""

    TOPIC = "topic"
    GROUP = "group"
    FILE = "file"
    BROKER = "broker"
    DEFAULT = "default"


class ShownSetting(NamedTuple):
    """A setting. All fields are text in Kafka's spelling."""

    name: str
    value: str
    source: ConfigSource
    file_name: str | None
    """The setting's name in the file, or at the brokers, if the value comes from there."""
    default: str
    unit: str
    valid: str
    meaning: str


def topic_settings(
    config: TopicConfig, *, overrides: Mapping[str, str], given: Mapping[str, str]
) -> Iterator[ShownSetting]:
    """List a topic's settings; unknown settings come last.

    `given` has the settings of the file. Settings for tests are listed only if the topic sets them.
    """
    for name, one in SETTINGS.items():
        if one.row.hidden and name not in overrides:
            continue
        if name in overrides:
            yield shown(one, one.text_in(config), ConfigSource.TOPIC)
        else:
            yield _from_file(one, config, given)
    for name in overrides.keys() - SETTINGS.keys():
        yield unknown_setting(name, overrides[name], ConfigSource.TOPIC)


def list_group(
    table: Mapping[str, Setting], values: object, overrides: Mapping[str, str]
) -> list[ShownSetting]:
    """List the settings of a group or a share group; `table` describes the fields of `values`."""
    return [
        shown(one, one.text_in(values), ConfigSource.GROUP if name in overrides else ConfigSource.DEFAULT)
        for name, one in table.items()
    ]


def unknown_setting(
    name: str, value: str, source: ConfigSource, *, file_name: str | None = None, default: str = ""
) -> ShownSetting:
    return ShownSetting(name, value, source, file_name, default, unit="", valid="", meaning="")


def given_by_file(settings: Iterable[ShownSetting], given: Mapping[str, str]) -> list[ShownSetting]:
    """Return `settings`, and name the file as the source of each default that the file sets.

    `given` is `FromProperties.given`.
    """
    return [
        one._replace(source=ConfigSource.FILE, file_name=given[one.name])
        if one.source is ConfigSource.DEFAULT and one.name in given
        else one
        for one in settings
    ]


def engine_settings(config: EngineConfig, *, given: Mapping[str, str]) -> Iterator[ShownSetting]:
    return (_from_file(one, config, given) for one in broker_settings().values())


def matching(
    settings: Iterable[ShownSetting], patterns: Iterable[str], *, only_set: bool
) -> list[ShownSetting]:
    """Return the settings whose names match one of `patterns`, such as `retention.*`; without patterns, all settings.

    With `only_set`, leave out settings whose value is the default.
    """
    wanted = tuple(patterns)
    return [
        one
        for one in settings
        if (not wanted or any(fnmatchcase(one.name, pattern) for pattern in wanted))
        and not (only_set and one.source is ConfigSource.DEFAULT)
    ]


def _from_file(one: Setting, values: object, given: Mapping[str, str]) -> ShownSetting:
    """Return a setting's value; its source is the file if the file sets it, otherwise the default."""
    file_name = given.get(one.name)
    source = ConfigSource.DEFAULT if file_name is None else ConfigSource.FILE
    return shown(one, one.text_in(values), source, file_name)


def shown(one: Setting, value: str, source: ConfigSource, file_name: str | None = None) -> ShownSetting:
    row = one.row
    return ShownSetting(
        one.name, value, source, file_name, one.default_text, row.unit, row.kind.valid, row.meaning
    )
