"""`config`: a topic's settings. A read lists overrides, then all others as comments; a written line sets one setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from topicfs.fusefs.files.text_file import TopicTextFile
from topicfs.storage.config.listing import ConfigSource
from topicfs.storage.engine import Topic
from topicfs.storage.errors import InvalidConfigError
from topicfs.storage.messages import printable

if TYPE_CHECKING:
    from topicfs.fusefs.appending.targets import CommandTarget, LineTarget

MAX_SETTING_LINE_BYTES = 65_536
"""Largest size of a line."""


def render_config(topic: Topic) -> str:
    """Return the overrides as they were set, then all other settings (of the brokers, and defaults) as comments."""
    # Names and values may be any text, because a file may be written by hand or set by a newer broker.
    overrides = [config_line(name, value) for name, value in topic.overrides.items()]
    brokers: list[str] = []
    defaults: list[str] = []
    for one in topic.settings():
        if one.name not in topic.overrides:
            kind = brokers if one.source is ConfigSource.BROKER else defaults
            kind.append(f"# {config_line(one.name, one.value)}")
    if brokers:
        brokers = ["# Set for all topics by the brokers:\n", *brokers, "# Defaults:\n"]
    return "".join([*overrides, *brokers, *defaults])


def config_line(name: str, value: str) -> str:
    return f"{printable(name)}={printable(value)}\n"


def parse_changes(lines: bytes) -> dict[str, str | None]:
    """Parse `name=value` lines and comments; `name=` (None) removes an override. Raises InvalidConfigError."""
    try:
        text = lines.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidConfigError("settings must be UTF-8, one name=value per line") from None
    changes: dict[str, str | None] = {}
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, separator, value = stripped.partition("=")
        if not separator:
            raise InvalidConfigError(f"{stripped}: must be name=value")
        changes[name.strip()] = value.strip() or None
    return changes


def config_target(name: str, alter: Callable[[Mapping[str, str | None]], None]) -> CommandTarget:
    """Return the target of written settings. `alter` (blocking) applies either all settings of a write, or none."""
    from topicfs.fusefs.appending.targets import CommandTarget

    def act(lines: bytes) -> None:
        if changes := parse_changes(lines):
            alter(changes)

    return CommandTarget(name, parse_changes, act, max_record_bytes=MAX_SETTING_LINE_BYTES)


class ConfigFile(TopicTextFile):
    """`config` of a topic."""

    __slots__ = ()

    def render(self) -> str:
        return render_config(self._files.topic)

    def target(self) -> LineTarget | None:
        if self._files.topic.internal:
            return None
        engine, topic = self.context.engine, self._files.topic.name

        def alter(changes: Mapping[str, str | None]) -> None:
            self.check_same()
            engine.alter_config(topic, changes)

        return config_target(self.path, alter)

    def check_writable(self) -> None:
        self._files.check_writable()
