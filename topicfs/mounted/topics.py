"""Topics made and deleted through a mount."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from topicfs.data_directory import NO_REPLICAS
from topicfs.mounted.appends import status_of
from topicfs.mounted.reasons import explained
from topicfs.places import Place
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.names import check_new_topic
from topicfs.storage.errors import StorageError, TopicNotEmptyError, UnknownTopicError


def create(
    mountpoint: Path,
    place: Place,
    names: Sequence[str],
    *,
    partitions: int | None,
    replicas: int | None,
    overrides: Mapping[str, str],
) -> dict[str, int]:
    """Create topics; remove one that differs from what was asked. Return the numbers of their partitions."""
    TopicConfig.from_overrides(overrides)
    with place.opened() as engine:
        for name in names:
            check_new_topic(name, engine.topics())
    return {
        name: _create(mountpoint, name, partitions=partitions, replicas=replicas, overrides=overrides)
        for name in names
    }


def _create(
    mountpoint: Path,
    name: str,
    *,
    partitions: int | None,
    replicas: int | None,
    overrides: Mapping[str, str],
) -> int:
    topic = mountpoint / name
    topic.mkdir()
    with ExitStack() as undo:
        undo.callback(topic.rmdir)
        if not (topic / "config").exists():
            raise StorageError(f"{mountpoint}: its mount has ended; run the command again")
        if partitions is not None:
            (topic / str(partitions - 1)).mkdir(exist_ok=True)
        if overrides:
            lines = "".join(f"{key}={value}\n" for key, value in overrides.items())
            (topic / "config").write_text(lines, encoding="utf-8")
        count = sum(one.name.isdecimal() for one in topic.iterdir())
        if partitions not in (None, count):
            raise StorageError(f"{name}: the daemon makes at least {count} partitions (num.partitions)")
        if replicas is not None:
            if not (topic / "replicas").exists():
                raise StorageError(f"--replicas: {NO_REPLICAS}")
            with explained(mountpoint, f"{name}/replicas"):
                (topic / "replicas").write_text(f"{replicas}\n")
        undo.pop_all()
    return count


def delete(mountpoint: Path, name: str, *, with_records: bool) -> None:
    """Delete a topic. Raises TopicNotEmptyError for records that may not be deleted, StorageError, OSError."""
    topic = mountpoint / name
    if not (topic / "config").exists():
        raise UnknownTopicError.of(name)
    states = [status_of(one) for one in topic.iterdir() if one.name.isdecimal()]
    records = sum(int(one["log_end_offset"]) - int(one["log_start_offset"]) for one in states)
    if records and not with_records:
        raise TopicNotEmptyError(name, records)
    try:
        topic.rmdir()
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        raise StorageError(
            f"{name}: holds records, and its mount {mountpoint} is without --allow-delete; unmount it first"
        ) from None
