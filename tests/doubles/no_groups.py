"""The groups of an engine that does not support groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from topicfs.storage.errors import GroupsUnsupportedError
from topicfs.storage.model import Offset, TopicPartition


class NoGroups:
    """The groups of an engine that does not support groups: calls raise GroupsUnsupportedError with `reason`."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise GroupsUnsupportedError(self._reason)

    def summary(self) -> None:
        """Return None, because no groups exist."""

    def known_positions(self) -> Mapping[str, Mapping[TopicPartition, Offset]]:
        """Return no positions, because no groups exist."""
        return {}

    listed = describe = positions = positions_in = set_positions = delete_positions = create = delete = (
        _refuse
    )
    config = settings = alter_config = join = listen = _refuse
