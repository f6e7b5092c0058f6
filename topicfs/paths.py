"""Paths as a mount has them, relative to the mount point."""

from __future__ import annotations

import re
from typing import NamedTuple

from topicfs.storage.errors import InvalidNameError
from topicfs.storage.model import TopicPartition

_PARTITION = re.compile(r"0|[1-9][0-9]{0,3}")


class TopicPath(NamedTuple):
    """The parts of `orders/0/42-99.json`; `partition` is None for the topic's own log files (`orders/log`)."""

    topic: str
    partition: int | None
    name: str
    """The file's name with its suffix; `log` where none was given."""

    def __str__(self) -> str:
        return f"{self.topic}/{'' if self.partition is None else f'{self.partition}/'}{self.name}"

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition meant. Raises InvalidNameError where only a topic was named."""
        if self.partition is None:
            raise InvalidNameError(f"{self.topic}: name a partition too, as in {self.topic}/0/{self.name}")
        return TopicPartition(self.topic, self.partition)


def check_group_name(group: str) -> None:
    """Raise InvalidNameError for the name of a group that no directory of a mount can have."""
    if "/" in group or group in {"", ".", ".."}:
        raise InvalidNameError(f"{group!r}: a group's name must be a valid directory name, without '/'")


def parse_path(text: str) -> TopicPath:
    """Parse a path such as `orders/0/log`, `orders/0` or `orders/log.kv`, which need not exist.

    Raises InvalidNameError where it has no such form.
    """
    parts = text.strip("/").split("/")
    match parts:
        case [topic] if topic:
            return TopicPath(topic, None, "log")
        case [topic, second] if _PARTITION.fullmatch(second):
            return TopicPath(topic, int(second), "log")
        case [topic, second]:
            return TopicPath(topic, None, second)
        case [topic, second, name] if _PARTITION.fullmatch(second):
            return TopicPath(topic, int(second), name)
    raise InvalidNameError(
        f"{text or repr(text)}: not of the form TOPIC/PARTITION/NAME, as in orders/0/log or orders/0/42.json"
    )
