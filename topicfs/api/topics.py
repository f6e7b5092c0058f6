"""Topics as users see them: opens a data directory, a mount or a cluster."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from topicfs import mounted, places
from topicfs.api.files import READ_ONLY, FileTopics
from topicfs.api.topic import Topic
from topicfs.coordination.engine import Engine
from topicfs.data_directory import NO_REPLICAS, require_directories, setting_text
from topicfs.groups.engine import EngineGroups
from topicfs.groups.location import opened_groups, serving_mount
from topicfs.groups.view import CONSUMER
from topicfs.places import Place, parse_place
from topicfs.replication import holds_replicas
from topicfs.storage import engine, errors
from topicfs.storage.directories.contents import behind_mount
from topicfs.storage.disk.names import check_new_topic, is_internal
from topicfs.storage.disk.native import system_clock
from topicfs.storage.messages import which_topic

if TYPE_CHECKING:
    from topicfs.api.group import Group
    from topicfs.groups.view import GroupAdmin

THROUGH_MOUNT = "topicfs.open(MOUNTPOINT)"
THROUGH_LISTENER = 'topicfs.open("kafka://HOST:PORT"), or look only: topicfs.open(…, read_only=True)'


def open_topics(
    where: str | os.PathLike[str],
    *,
    read_only: bool = False,
    client_config: str | os.PathLike[str] | None = None,
) -> Topics:
    """Open the topics of a data directory, of a mount, or of a cluster: `kafka://host:9092`.

    A missing directory is created together with its first topic. Several directories are written `dir1,dir2`. If a
    daemon has mounted the directory, its files are read, and changes go through its mount. Otherwise this process
    owns the directory until `close`. `client_config` is a file with connection settings for a cluster, by the names
    of Kafka's Java clients. A cluster's client starts threads, and so does a directory with replicas.

    Raises StorageError, OSError.
    """
    text = os.fspath(where)
    behind = behind_mount(Path(text).absolute())
    place = parse_place(behind or text)
    if client_config is not None:
        place = place._replace(client_config=Path(client_config))
    if behind is not None and place.cluster is None and serving_mount(place) is None:
        read_only = True  # The mount is read-only.
    return Topics(place, read_only=read_only)


class Topics:
    """The topics of a place, by name. Thread-safe."""

    def __init__(
        self, place: Place, *, read_only: bool = False, make: bool = True, through_mount: str = THROUGH_MOUNT
    ) -> None:
        """Open the place (see `open_topics`). If another process owns the place, the error suggests `through_mount`."""
        self._place = place
        self._opened = ExitStack()
        weakref.finalize(self, self._opened.close)  # A program may end without closing its topics.
        self._mountpoint = None if read_only else serving_mount(place)
        self._through_mount = through_mount
        self._for_python = through_mount == THROUGH_MOUNT
        """False for the command: its errors mention options of the command."""
        self._engine: Engine | FileTopics | None = None
        """None: the directory is missing or empty; the first topic creates it."""
        if place.cluster is not None and read_only:
            self._engine = self._opened.enter_context(place.opened())
        elif read_only or self._mountpoint is not None:
            require_directories(place.directories)
            self._engine = FileTopics(place.directories, self._mountpoint)
            self._opened.callback(self._engine.close)
        elif not make or place.cluster is not None or any(map(_holds_something, place.directories)):
            self._engine = self._own(make=make)
        self._polls = isinstance(self._engine, FileTopics)

    def _own(self, *, make: bool) -> Engine:
        through_listener = THROUGH_LISTENER if self._for_python else places.THROUGH_LISTENER
        opened = self._place.opened_for_writing(
            through_mount=self._through_mount, through_listener=through_listener, make=make
        )
        try:
            return self._opened.enter_context(opened)
        except errors.StorageError as error:
            locked = error.__context__
            if isinstance(locked, errors.DirectoryLockedError) and locked.holder_pid == os.getpid():
                reason = (
                    "already open in this process; use that Topics object, or close it first; if topicfs.serve has it "
                    'open: topicfs.open("kafka://" + server.bootstrap_servers), or look only: read_only=True'
                )
                raise errors.StorageError(f"{locked.directory}: {reason}") from None
            raise

    def _present(self) -> Mapping[str, engine.Topic]:
        return {} if self._engine is None else self._engine.topics()

    def __repr__(self) -> str:
        place = ",".join(map(str, self._place.directories)) or self._place.cluster
        return f"<Topics {place}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Flush appended records to disk, and release the directory. May be called more than once."""
        self._opened.close()

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._present()))

    def __len__(self) -> int:
        return len(self._present())

    def __contains__(self, name: object) -> bool:
        return name in self._present()

    def __getitem__(self, name: str) -> Topic:
        """Return a topic. Raises UnknownTopicError."""
        return Topic(self._served(name), self._topic_now, polls=self._polls)

    def _topic_now(self, name: str) -> engine.Topic:
        assert self._engine is not None
        return self._engine.topic(name)

    def _served(self, name: str) -> engine.Topic:
        _check_name(name)
        present = self._present()
        if name not in present:
            raise errors.UnknownTopicError(f"{errors.UnknownTopicError.of(name)}{which_topic(name, present)}")
        return present[name]

    def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        config: Mapping[str, str | int] | None = None,
        replicas: int | None = None,
    ) -> Topic:
        """Create a topic; the default for `partitions` is `num.partitions`.

        Raises InvalidNameError, TopicExistsError, InvalidConfigError, ReadOnlyError, StorageError, OSError.
        """
        self.check_new(name, replicas=replicas)
        overrides = {key: setting_text(key, value) for key, value in (config or {}).items()}
        if self._mountpoint is not None:
            mounted.create_topic(
                self._mountpoint, name, partitions=partitions, replicas=replicas, overrides=overrides
            )
            return self[name]
        # Without replication, `check_new` has already refused `replicas`. So only a replicated engine gets
        # `replicas`.
        more = {} if replicas is None else {"replicas": replicas}
        self._owned(name).create_topic(name, partitions=partitions, overrides=overrides, **more)  # type: ignore[arg-type]
        return self[name]

    def check_new(self, name: str, *, replicas: int | None = None) -> None:
        """Raise the errors that `create` would raise for a topic of this name."""
        _check_name(name)
        if is_internal(name):
            raise errors.PolicyViolationError(f"{name}: one of Kafka's own topics, created when needed")
        if self._for_python and name in self:
            raise errors.TopicExistsError(f"{name}: the topic already exists; use topics[{name!r}]")
        check_new_topic(name, self)
        if replicas is not None and not holds_replicas(self._place.directories):
            raise errors.StorageError(f"{'' if self._for_python else '--'}replicas: {NO_REPLICAS}")

    def delete(self, name: str, *, with_records: bool = False) -> None:
        """Delete a topic. A topic with records is deleted only if `with_records`.

        Raises UnknownTopicError, TopicNotEmptyError, ReadOnlyError, StorageError, OSError.
        """
        self._served(name)
        if self._mountpoint is not None:
            mounted.delete_topic(self._mountpoint, name, with_records=with_records)
        else:
            try:
                self._owned(name).delete_topic(name, with_records=with_records)
            except errors.TopicNotEmptyError as error:
                if self._for_python:
                    error.args = (f"{error}; add with_records=True to delete them too",)
                raise

    def maintain(self) -> None:
        """Run due duties of a directory that this process owns: retention, compaction, checkpoints.

        A mount's daemon and a cluster's brokers run their duties themselves. A program that keeps a directory open
        for long should call this about once a minute.
        """
        if self._engine is not None and not isinstance(self._engine, FileTopics):
            self._engine.maintenance(system_clock())

    def group(self, name: str) -> Group:
        """Return a group of readers; it need not exist yet."""
        from topicfs.api.group import Group

        _check_name(name)
        if self._engine is None:
            raise errors.UnknownTopicError(f"{name}: a group needs at least one topic to read")
        return Group(name, self._engine, self._groups)

    def groups(self) -> list[str]:
        """Return the names of the groups of readers."""
        if self._engine is None:
            return []
        with self._groups() as found:
            return [one.name for one in found.listed() if one.type == CONSUMER]

    @contextmanager
    def _groups(self) -> Iterator[GroupAdmin]:
        if isinstance(self._engine, FileTopics):
            with opened_groups(self._place) as found:
                yield found
        else:
            yield EngineGroups(self._owned("groups"))

    def _owned(self, what: str) -> Engine:
        if isinstance(self._engine, FileTopics):
            raise errors.ReadOnlyError(f"{what}: {READ_ONLY}")
        if self._engine is None:
            self._engine = self._own(make=True)
        return self._engine


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{name!r}: a name must be text, as in topics['orders']")


def _holds_something(directory: Path) -> bool:
    """Return whether a directory exists and contains files. Raises OSError."""
    try:
        return any(directory.iterdir())
    except FileNotFoundError:
        return False
