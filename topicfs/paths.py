"""Paths in a mount, relative to the mountpoint."""

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
    """The file's name with its suffix; by default `log`."""

    def __str__(self) -> str:
        return f"{self.topic}/{'' if self.partition is None else f'{self.partition}/'}{self.name}"

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the path. Raises InvalidNameError if the path names only a topic."""
        if self.partition is None:
            raise InvalidNameError(f"{self.topic}: add a partition, as in {self.topic}/0/{self.name}")
        return TopicPartition(self.topic, self.partition)


def check_group_name(group: str) -> None:
    """Raise InvalidNameError if the group's name cannot be the name of a directory."""
    if "/" in group or group in {"", ".", ".."}:
        raise InvalidNameError(f"{group!r}: a group's name must be a valid directory name, without '/'")


def parse_path(text: str) -> TopicPath:
    """Parse a path such as `orders/0/log`, `orders/0` or `orders/log.kv`, existing or not. Raises InvalidNameError."""
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
