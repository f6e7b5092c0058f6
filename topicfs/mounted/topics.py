"""Topics made and deleted through a mount."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from topicfs.mounted.appends import numbers_of, status_of
from topicfs.mounted.reasons import explained
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.names import check_partitions
from topicfs.storage.errors import PartitionOfflineError, StorageError, TopicNotEmptyError, UnknownTopicError
from topicfs.storage.model import ONLINE


def create(
    mountpoint: Path, name: str, *, partitions: int | None, replicas: int | None, overrides: Mapping[str, str]
) -> None:
    """Create a topic with a name that the caller has checked. If it cannot be as asked, remove it again."""
    TopicConfig.from_overrides(overrides)
    if partitions is not None:
        check_partitions(partitions)
    topic = mountpoint / name
    with explained(mountpoint, name):
        topic.mkdir()
    if not (topic / "config").exists():
        topic.rmdir()
        raise StorageError(f"{mountpoint}: its mount has ended; run the command again")
    with ExitStack() as undo:
        undo.callback(_remove, mountpoint, name)
        if partitions is not None:
            with explained(mountpoint, f"{name}/{partitions - 1}"):
                (topic / str(partitions - 1)).mkdir(exist_ok=True)
        settings = "".join(f"{key}={value}\n" for key, value in overrides.items())
        for file, text in (("config", settings), ("replicas", f"{replicas}\n" if replicas else "")):
            if text:
                with explained(mountpoint, f"{name}/{file}"):
                    (topic / file).write_text(text, encoding="utf-8")
        count = len(numbers_of(topic))
        if partitions not in (None, count):
            raise StorageError(f"{name}: the daemon makes at least {count} partitions (num.partitions)")
        undo.pop_all()


def _remove(mountpoint: Path, name: str) -> None:
    """Remove a topic again if nobody has appended to it."""
    with suppress(StorageError, OSError):
        delete(mountpoint, name, with_records=False)


def delete(mountpoint: Path, name: str, *, with_records: bool) -> None:
    """Delete a topic. Raises TopicNotEmptyError for records that may not be deleted, StorageError, OSError."""
    topic = mountpoint / name
    if not (topic / "config").exists():
        raise UnknownTopicError.of(name)
    if not with_records:
        _check_empty(topic)
    with explained(mountpoint, name):
        topic.rmdir()


def _check_empty(topic: Path) -> None:
    """Raise TopicNotEmptyError if a topic has records, PartitionOfflineError if a partition may have some."""
    records = 0
    for number in numbers_of(topic):
        status = status_of(topic / str(number))
        if status["state"] != ONLINE:
            raise PartitionOfflineError(f"{topic.name}/{number}: {status['state']}")
        records += int(status["log_end_offset"]) - int(status["log_start_offset"])
    if records:
        raise TopicNotEmptyError(topic.name, records)
