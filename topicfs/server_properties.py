"""A broker's server.properties, as `--config FILE` gives it."""

from __future__ import annotations

from pathlib import Path

from storage.config.broker import EngineConfig, FromProperties
from storage.config.properties import PropertiesError, parse_properties
from storage.errors import InvalidConfigError
from topicfs.lines import say


def read_config(path: Path) -> FromProperties:
    """Read the file. Raises InvalidConfigError, OSError."""
    try:
        properties = parse_properties(path.read_bytes())
    except PropertiesError as error:
        raise InvalidConfigError(f"{path}: {error}") from None
    return EngineConfig.from_properties(properties)


def tell_ignored(path: Path, ignored: list[str]) -> None:
    """Say once, on standard error, which names of the file have no meaning here."""
    if ignored:
        say(f"topicfs: {path}: without meaning here: {', '.join(ignored)}", error=True)
