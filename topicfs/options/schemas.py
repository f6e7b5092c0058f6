"""The options that say where schemas of payloads are: those of `mount`, `cat` and `append`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from topicfs.schemas.places import SchemaPlaces
from topicfs.storage.errors import InvalidConfigError

CREDENTIALS = "TOPICFS_SCHEMA_REGISTRY_AUTH"
"""The variable with USER:PASSWORD."""


def schema_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--schema-dir`, `--schema-registry` and `--schema-registry-auth` to a command: `schemas`."""

    @functools.wraps(command)
    def with_schemas(
        *arguments: Any,
        schema_dir: Path | None,
        schema_registry: str | None,
        schema_registry_auth: Path | None,
        **options: Any,
    ) -> None:
        credentials = _credentials(schema_registry_auth)
        if schema_registry is None and schema_registry_auth is not None:
            raise click.UsageError("--schema-registry-auth belongs to a registry: --schema-registry URL")
        places = SchemaPlaces(
            directory=None if schema_dir is None else schema_dir.absolute(),
            registry=None if schema_registry is None else _checked(schema_registry),
            credentials=None if schema_registry is None else credentials,
        )
        command(*arguments, schemas=places, **options)

    directory = click.option(
        "--schema-dir",
        metavar="DIR",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="Schemas of payloads as files: 12.avsc, 12.proto.  [default: those of the topic _schemas]",
    )
    registry = click.option(
        "--schema-registry", metavar="URL", help="A schema registry to ask for what neither has."
    )
    credentials = click.option(
        "--schema-registry-auth",
        metavar="FILE",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help=f"A file with the line USER:PASSWORD for it; or ${CREDENTIALS} has it.",
    )
    return directory(registry(credentials(with_schemas)))


def _checked(url: str) -> str:
    """Return the URL of a registry; a usage error where it is none."""
    from topicfs.schemas.sources.registry import checked_url

    try:
        return checked_url(url)
    except InvalidConfigError as error:
        raise click.BadParameter(str(error), param_hint="'--schema-registry'") from None


def _credentials(file: Path | None) -> str | None:
    """Read USER:PASSWORD. Raises InvalidConfigError where it is none."""
    text = os.environ.get(CREDENTIALS) if file is None else file.read_text(encoding="utf-8").strip("\n")
    if text is not None and (":" not in text or "\n" in text):
        raise InvalidConfigError(f"{CREDENTIALS if file is None else file}: no line USER:PASSWORD")
    return text
