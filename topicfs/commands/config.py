"""`topicfs config`: shows every setting with its source, and sets a topic's settings; needs no mount."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click
from rich.table import Table

from topicfs.callers import completion
from topicfs.coordination.engine import Engine
from topicfs.data_directory import parse_settings, read_config
from topicfs.examples import ExampleCommand
from topicfs.groups.location import serving_mount
from topicfs.lines import say
from topicfs.mounted import explained
from topicfs.options import place_option, warn_of_ignored
from topicfs.places import Place
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.listing import (
    ConfigSource,
    ShownSetting,
    engine_settings,
    given_by_file,
    matching,
    topic_settings,
)
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.errors import InvalidConfigError
from topicfs.storage.messages import did_you_mean, printable
from topicfs.storage.topics.topic import merge_overrides
from topicfs.terminal import console, is_terminal, plain

SET_BY = "; a setting is changed by NAME=VALUE"
NOTHING_GIVEN: Mapping[str, str] = {}
STYLES = {
    ConfigSource.TOPIC: "good",
    ConfigSource.GROUP: "good",
    ConfigSource.FILE: "number",
    ConfigSource.BROKER: "number",
    ConfigSource.DEFAULT: "quiet",
}


@click.command(
    cls=ExampleCommand,
    examples="""
        topicfs config orders  # every setting of a topic: value, source, default, unit, meaning
        topicfs config orders --match 'retention.*'  # some of them
        topicfs config orders retention.ms  # one of them
        topicfs config orders --set  # those that are not the default
        topicfs config orders retention.ms=86400000 cleanup.policy=compact,delete  # set two
        topicfs config orders retention.ms=  # remove one: the file's value or the default applies again
        # from a broker's file: the topics' defaults and the engine's own settings
        topicfs config --config server.properties
        topicfs config orders --set --json | jq -c .[]  # for programs
    """,
)
@click.argument("topic", required=False, shell_complete=completion.topics)
@click.argument("changes", metavar="[NAME[=VALUE]]…", nargs=-1, shell_complete=completion.settings)
@click.option(
    "--match", "patterns", metavar="PATTERN", multiple=True, help="Show only these names: retention.*, *.ms"
)
@click.option("--set", "only_set", is_flag=True, help="Show only what a topic, the file or the brokers set.")
@click.option("--json", "as_program", is_flag=True, help="One JSON array in place of a table.")
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The server.properties that the mount uses.",
)
@place_option
def config(
    topic: str | None,
    *,
    changes: tuple[str, ...],
    patterns: tuple[str, ...],
    only_set: bool,
    as_program: bool,
    file: Path | None,
    place: Place,
) -> None:
    """Show the settings of TOPIC; without TOPIC, the defaults of all topics and the engine's own settings.

    A value is set by the topic itself, otherwise by FILE (a broker's server.properties) or by a cluster's brokers,
    otherwise it is Kafka's default. NAME selects single settings. NAME=VALUE changes the topic's own settings: either
    all given settings change, or none. An empty VALUE removes a setting. While a daemon of yours, or of root, owns
    the directory, changes go through its mount.
    """
    if topic is not None and any("=" in one for one in changes):
        # An empty value removes the setting.
        given_changes = {name: value or None for name, value in parse_settings(changes).items()}
        _change(topic, given_changes, place)
        return
    if topic is not None and "=" in topic:
        raise click.UsageError(
            f"put the topic first: topicfs config TOPIC {topic}; --config FILE shows a broker's settings"
        )
    engine_config, given = EngineConfig(), NOTHING_GIVEN
    if file is not None:
        found_there = read_config(file)
        engine_config, given = found_there.config, found_there.given
        warn_of_ignored(file, found_there.ignored)
    if topic is None:
        settings = [
            *topic_settings(engine_config.topic_defaults, overrides={}, given=given),
            *engine_settings(engine_config, given=given),
        ]
    else:
        with place.opened(config=engine_config) as engine:
            settings = given_by_file(engine.topic(topic).settings(), given)
    names = [one.name for one in settings]
    for name in changes:
        if name not in names:
            raise InvalidConfigError(f"{name}: no such topic setting{did_you_mean(name, names) or SET_BY}")
    _print(matching(settings, (*patterns, *changes), only_set=only_set), as_program=as_program)


def _change(topic: str, changes: Mapping[str, str | None], place: Place) -> None:
    lines = [f"{name}={value or ''}\n" for name, value in changes.items()]
    mountpoint = serving_mount(place)
    if mountpoint is not None:
        with place.opened() as engine:
            TopicConfig.from_overrides(merge_overrides(engine.topic(topic).overrides, changes))
        with explained(mountpoint, f"{topic}/config"):
            (mountpoint / topic / "config").write_text("".join(lines), encoding="utf-8")
        with place.opened() as engine:
            _show_changed(engine, topic, changes)
        return
    text = "".join(lines).replace("\n", "\\n")
    with place.opened_for_writing(through_mount=f"printf '{text}' >> MOUNTPOINT/{topic}/config") as engine:
        engine.alter_config(topic, changes)
        _show_changed(engine, topic, changes)


def _show_changed(engine: Engine, topic: str, changes: Mapping[str, str | None]) -> None:
    values = {one.name: one.value for one in engine.topic(topic).settings()}
    for name, value in changes.items():
        shown = values.get(name, value or "")
        say(f"{topic}: {name}={shown}{'' if value is not None else ' (the default)'}")


def _print(settings: list[ShownSetting], *, as_program: bool) -> None:
    if as_program:
        plain = [{**one._asdict(), "source": one.source.value} for one in settings]
        click.echo(json.dumps(plain, indent=1))
    elif is_terminal():
        console().print(_table(settings))
    else:
        for one in settings:
            fields = (f"{one.name}={one.value}", _source_text(one), one.default, one.unit, one.meaning)
            click.echo("\t".join(map(printable, fields)))


def _table(settings: list[ShownSetting]) -> Table:
    table = Table("setting", "value", "source", "default", "unit", "meaning", box=None, pad_edge=False)
    table.header_style = "quiet"
    for one in settings:
        style = STYLES[one.source]
        table.add_row(
            plain(one.name, "name"),
            plain(one.value, style),
            plain(_source_text(one)),
            plain(one.default),
            plain(one.unit),
            plain(one.meaning, "quiet"),
        )
    return table


def _source_text(setting: ShownSetting) -> str:
    name = setting.file_name
    return setting.source.value if name in (None, setting.name) else f"{setting.source.value} ({name})"
