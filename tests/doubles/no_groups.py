"""The groups of an engine that has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from topicfs.storage.errors import GroupsUnsupportedError
from topicfs.storage.model import Offset, TopicPartition


class NoGroups:
    """The groups of an engine that has none: each call raises GroupsUnsupportedError with the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise GroupsUnsupportedError(self._reason)

    def summary(self) -> None:
        """Nobody uses groups here."""

    def known_positions(self) -> Mapping[str, Mapping[TopicPartition, Offset]]:
        """There are none."""
        return {}

    listed = describe = positions = positions_in = set_positions = delete_positions = create = delete = (
        _refuse
    )
    config = settings = alter_config = join = listen = _refuse
