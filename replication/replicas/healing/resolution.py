"""The end of a fork: the history of one directory is kept. Records that only other histories have are given up.

    1. the directories that are kept   get a new run, in which the other directories are out of sync everywhere
    2. the others' logs                are cut where they differ from the logs that are kept
    3. the others' small files         are copied from the kept directory; `topicfs.replicas` is the last of them

The histories remain forked until the last step. Until then a start is refused, and the resolution can be repeated.
"""

from __future__ import annotations

import filecmp
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from topicfs.replication.replicas.directories.engine import ReplicaLogManager
from topicfs.replication.replicas.directories.histories import (
    check_same_set,
    completed_runs,
    in_sync_somewhere,
)
from topicfs.replication.replicas.directories.replica_directory import Opening, ReplicaDirectory
from topicfs.replication.replicas.directories.state_file import ReplicaFile, write_replica_file
from topicfs.replication.replicas.healing.comparison import Loss, Parting
from topicfs.replication.replicas.rules.follower import log_end
from topicfs.replication.replicas.rules.history import ReplicaRun, extended, includes
from topicfs.replication.replicas.rules.state import LogEnd, ReplicaId, ReplicaState
from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.checkpoints.identifiers import new_id
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.live_settings import LiveSettings
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.lock import DirectoryLock, find_holder
from topicfs.storage.disk.native import NativeFileSystem, naming, system_clock
from topicfs.storage.errors import CorruptionError, DirectoryLockedError, NotALogDirectoryError, StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.manager.startup import Machine, open_logs
from topicfs.storage.messages import reason_of
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.topics.registry import read_copy

_SMALL_FILES = (names.QUEUES, names.COMMITTED_WRITES, names.PRODUCERS)


class ReplicaGivenUp(NamedTuple):
    directory: ReplicaDirectory
    partition: TopicPartition
    parting: Parting | None
    """The comparison of the logs; None if the log cannot be read."""
    problem: str = ""


class Resolution:
    """The directories of a fork, opened read-only. Close the object after use."""

    def __init__(self, directories: Sequence[Path], keep: Path) -> None:
        """Compare the directories (blocking). Raises StorageError, OSError."""
        files = NativeFileSystem(read_only=True)
        opening = Opening(settings=LiveSettings(EngineConfig()), files=files, clock=system_clock)
        self._replica_dirs = [
            ReplicaDirectory(ReplicaId(0), path.absolute(), opening, lambda _: None) for path in directories
        ]
        kept = next((one for one in self._replica_dirs if one.path == keep.absolute()), None)
        if kept is None:
            raise StorageError(f"{keep}: is not one of {', '.join(map(str, directories))}")
        self.left_alone: dict[str, str] = {}
        """Directories that cannot be compared, each with the reason. They stay unchanged."""
        try:
            self._compare(kept)
        except BaseException:
            self.close()
            raise

    def _compare(self, kept: ReplicaDirectory) -> None:
        for replica_dir in self._replica_dirs:
            if reason := _reason_against(replica_dir):
                self.left_alone[str(replica_dir)] = reason
        if str(kept) in self.left_alone:
            raise StorageError(f"{kept} cannot be kept: {self.left_alone[str(kept)]}; keep another directory")
        check_same_set(self._replica_dirs)
        copies = [one.copy for one in self._replica_dirs if one.copy is not None]
        known = {"", *(one.directory_id for copy in copies for one in copy.directories.values())}
        self._blank = [
            str(one)
            for one in self._replica_dirs
            # A start that was killed may have given a new disk an id that no other directory knows.
            if one.is_blank() or (not one.set_id and one.directory_id not in known)
        ]
        self._group(kept)
        for loser in self.losers:
            if str(loser) in self.left_alone:
                raise StorageError(
                    f"{loser}: {self.left_alone[str(loser)]}; its records cannot be compared until that is repaired: "
                    "repair it, or keep another directory"
                )
        for group in (self._replica_dirs, self._others_kept, self._same):
            group[:] = [one for one in group if str(one) not in self.left_alone]
        self.given_up = [one for loser in self.losers for one in self._compared(loser)]

    def _group(self, kept: ReplicaDirectory) -> None:
        """Divide the directories into kept and given-up ones."""
        histories = {
            replica_dir.path: completed_runs(replica_dir, self._replica_dirs)
            for replica_dir in self._replica_dirs
        }
        ours = histories[kept.path]
        self.kept = kept
        self.losers = [one for one in self._replica_dirs if not includes(ours, histories[one.path])]
        self._others_kept = [one for one in self._replica_dirs if one not in self.losers]
        same = [one for one in self._others_kept if includes(histories[one.path], ours)]
        self._same = [one for one in same if one.copy is not None]
        newest = max((one.copy for one in self._same if one.copy is not None), key=lambda copy: copy.revision)
        self.content: ReplicaFile = newest
        """The last agreed state of the kept directories."""
        by_id = {one.directory_id: number for number, one in newest.directories.items()}
        for replica_dir in self._replica_dirs:
            replica_dir.number = by_id.get(replica_dir.directory_id, ReplicaId(0))
        self._numbers = {one.number for one in self.losers}

    def close(self) -> None:
        for replica_dir in self._replica_dirs:
            with suppress(StorageError, OSError):
                replica_dir.close()

    # Losses.

    def _compared(self, loser: ReplicaDirectory) -> Iterator[ReplicaGivenUp]:
        ids = {entry.topic_id: name for name, entry in self.content.topics.items()}
        for name, topic in loser.engine.topics().items():
            entry = self.content.topics.get(name) if ids.get(topic.topic_id) == name else None
            if entry is None and topic.topic_id not in self._ids_of(loser):
                continue  # No directory has agreed on this topic: it is not served, and stays as it is.
            for number in topic.served:
                partition = TopicPartition(name, number)
                state = None if entry is None else entry.partitions.get(number)
                if state is not None and state.in_sync == (loser.number,):
                    continue  # There is no other replica.
                source = None if state is None else self._source(partition, state)
                if source is None and state is not None:
                    continue  # There is no other replica left.
                log = loser.log(partition)
                if log is None:
                    reason = topic.partitions()[number].status().offline
                    yield ReplicaGivenUp(loser, partition, None, f"cannot be read: {reason}")
                else:
                    yield ReplicaGivenUp(loser, partition, Parting(source, log))

    def _ids_of(self, replica_dir: ReplicaDirectory) -> set[str]:
        copy = replica_dir.copy
        return set() if copy is None else {entry.topic_id for entry in copy.topics.values()}

    def _source(self, partition: TopicPartition, state: ReplicaState) -> Log | None:
        """Return the log that will lead; None if the disks that had it were replaced.

        Raises StorageError if no replica remains.
        """
        in_sync, numbers = set(state.in_sync), {replica_dir.number for replica_dir in self._replica_dirs}
        paths = {number: one.path for number, one in self.content.directories.items() if number in in_sync}
        there = {None, *map(str, self._replica_dirs), *self._blank}
        replaced = not in_sync & numbers and there.issuperset(map(paths.get, in_sync))
        logs: list[tuple[bool, LogEnd, bool, Log]] = []
        for replica_dir in self._others_kept:
            log = replica_dir.log(partition) if replaced or replica_dir.number in in_sync else None
            if log is not None:
                logs.append(
                    (replica_dir.number in in_sync, log_end(log), replica_dir.number == state.leader, log)
                )
        if not logs and not replaced:
            places = ", ".join(
                f"{path} ({self.left_alone.get(path, 'damaged' if one in numbers else 'not named')})"
                for one, path in paths.items()
                if one not in self._numbers
            )
            where = f"bring back {places}, and name it, or keep" if places else "keep"
            raise StorageError(
                f"{partition}: no kept directory has an in-sync replica of it; {where} another directory"
            )
        return max(logs, key=lambda one: one[:3])[3] if logs else None

    def losses(self) -> Iterator[tuple[ReplicaGivenUp, Loss]]:
        """Yield what each partition would lose, if anything (blocking). Raises OSError."""
        for one in self.given_up:
            if one.parting is None:
                yield one, Loss(0, Offset(0), Offset(0), -1, -1, 0, one.problem)
            elif (loss := one.parting.loss()) is not None:
                yield one, loss

    @property
    def uncompared(self) -> str:
        """Why it is unknown whether a kept log has the records that would be given up; empty if it is known.

        The reason is always damage of the kept log.
        """
        return next((one.parting.unsure for one in self.given_up if one.parting and one.parting.unsure), "")

    def topics_given_up(self) -> dict[str, tuple[ReplicaDirectory, str]]:
        """Return the topics that exist only in given-up directories.

        Maps a topic's id to one of these directories and the topic's name.
        """
        known = {entry.topic_id for entry in self.content.topics.values()}
        return {
            entry.topic_id: (loser, name)
            for loser in self.losers
            for name, entry in (loser.copy.topics.items() if loser.copy else ())
            if entry.topic_id not in known and entry.topic_id not in self.content.deleted
        }

    def settings_given_up(self) -> Iterator[str]:
        """Yield a line for each setting that has a different value in a given-up directory."""
        for loser in self.losers:
            copy = loser.copy
            if copy is None:
                continue
            ours = {name: entry.overrides for name, entry in self.content.topics.items()}
            for name, entry in copy.topics.items():
                if name in ours and self.content.topics[name].topic_id == entry.topic_id:
                    yield from _differences(name, dict(ours[name]), dict(entry.overrides), loser)
            for name in {**self.content.groups, **copy.groups}:
                kept, theirs = self.content.groups.get(name, {}), copy.groups.get(name, {})
                yield from _differences(f"group {name}", dict(kept), dict(theirs), loser)

    def save(self, folder: Path) -> list[Path]:
        """Save lost records, one file per partition. Raises OSError; StorageError if a file already has others."""
        unreadable = next((one for one in self.given_up if one.problem), None)
        if unreadable is not None:
            remedy = "repair it, or give it up without --save, or keep another directory"
            raise StorageError(f"{unreadable.partition}: {unreadable.problem}; {remedy}")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        saved = []
        for one in self.given_up:
            batches = iter(()) if one.parting is None else one.parting.saved()
            first = next(batches, None)
            if first is None:
                continue
            place = self.losers.index(one.directory) + 1
            mark = "" if len(self.losers) == 1 else f".{place}"
            path = folder / f"{one.partition.topic}-{one.partition.partition}{mark}.batch"
            new = path.with_name(f"{path.name}.new")
            with naming(new), new.open("wb") as file:
                file.write(first)
                file.writelines(batches)
                file.flush()
                NativeFileSystem().sync_directory(folder)
            if path.exists() and not filecmp.cmp(path, new, shallow=False):
                new.unlink()
                raise StorageError(f"{path}: has other records already; name another folder")
            new.replace(path)
            saved.append(path)
        return saved

    # Changes.

    def apply(self, files: FileSystem | None = None) -> None:
        """Resolve the fork (blocking). Raises StorageError, OSError."""
        disk = files or NativeFileSystem()
        content = self._resolved()
        steps = [(one, self._cuts(one)) for one in self.losers]
        self.close()
        with ExitStack() as stack:
            locks = {}
            for replica_dir in self._replica_dirs:
                locks[replica_dir.path] = lock = DirectoryLock(replica_dir.path)
                stack.callback(lock.release)
            for replica_dir in self._same:
                write_replica_file(disk, replica_dir.path, content)
            for loser, cuts in steps:
                locks[
                    loser.path
                ].release()  # The engine that truncates the directory's logs takes this lock itself.
                _cut(loser, cuts, disk)
                for name in _SMALL_FILES:
                    _copy(disk, self.kept.path / name, loser.path / name)
                write_replica_file(disk, loser.path, content)

    def _cuts(self, loser: ReplicaDirectory) -> list[tuple[TopicPartition, Offset | None]]:
        """Return where to truncate the logs of a directory; None for a log to remove."""
        cuts: list[tuple[TopicPartition, Offset | None]] = []
        for directory, partition, parting, _ in self.given_up:
            if directory is loser and (parting is None or parting.kept is None):
                cuts.append((partition, None))
            elif directory is loser and parting is not None and parting.kept is not None and parting.cuts:
                emptied = parting.offset <= parting.lost.log_start_offset
                cuts.append((partition, parting.kept.log_start_offset if emptied else parting.offset))
        return cuts

    def _resolved(self) -> ReplicaFile:
        content = self.content
        topics = {}
        for name, entry in content.topics.items():
            states = {number: self._state(state) for number, state in entry.partitions.items()}
            topics[name] = replace(entry, partitions=MappingProxyType(states))
        resolved = replace(
            content,
            revision=content.revision + 1,
            topics=MappingProxyType(topics),
            deleted=(*content.deleted, *self.topics_given_up()),
        )
        needed = self._numbers & in_sync_somewhere(resolved)
        numbers = tuple(sorted({*(one.number for one in self._same), *needed}))
        return replace(resolved, runs=extended(content.runs, ReplicaRun(new_id(), system_clock(), numbers)))

    def _state(self, state: ReplicaState) -> ReplicaState:
        in_sync = tuple(one for one in state.in_sync if one not in self._numbers) or state.in_sync
        move = state.moving
        return replace(
            state,
            in_sync=in_sync,
            leader=state.leader if state.leader in in_sync else None,
            moving=None if move is not None and self._numbers & set(move) else move,
            version=state.version + 1,
        )


def _reason_against(replica_dir: ReplicaDirectory) -> str:
    """Return why a directory cannot be compared; empty if it can be. Raises DirectoryLockedError."""
    try:
        holder = find_holder(replica_dir.path)
        if holder is not None:
            raise DirectoryLockedError(replica_dir.path, holder.pid)
        replica_dir.look()
        # This call raises an error if the file is damaged. An engine would use defaults instead.
        read_copy(replica_dir.path, replica_dir.files)
        replica_dir.open("")
    except (CorruptionError, NotALogDirectoryError, OSError) as error:
        return reason_of(error)
    return "has no history of replicas" if replica_dir.copy is None else ""


def _cut(
    loser: ReplicaDirectory, cuts: Sequence[tuple[TopicPartition, Offset | None]], files: FileSystem
) -> None:
    if not cuts:
        return
    engine = open_logs(ReplicaLogManager, loser.path, machine=Machine(files=files))
    try:
        for partition, offset in cuts:
            log = engine.topics()[partition.topic].partitions()[partition.partition]
            if offset is None or not isinstance(log, Log):
                engine.drop_partitions(partition.topic, [partition.partition])
                continue
            log.roles.follow(min(offset, log.high_watermark))
            try:
                if offset > log.log_start_offset:
                    log.replacer.truncate_to(offset, "the history of another directory is kept")
                else:
                    log.replacer.truncate_fully_and_start_at(
                        offset, "the history of another directory is kept"
                    )
            except CorruptionError:  # The log is damaged at the place where it would be truncated.
                engine.drop_partitions(partition.topic, [partition.partition])
    finally:
        engine.close()


def _copy(files: FileSystem, source: Path, target: Path) -> None:
    if files.exists(source):
        write_atomically(files, target, files.read_bytes(source))
    elif files.exists(target):
        files.unlink(target)
        files.sync_directory(target.parent)


def _differences(
    what: str, ours: dict[str, str], theirs: dict[str, str], loser: ReplicaDirectory
) -> Iterator[str]:
    for name in sorted({*ours, *theirs}):
        if ours.get(name) != theirs.get(name):
            kept = ours.get(name, "the default")
            yield f"{what}: {name} is {theirs.get(name, 'the default')} in {loser}; kept is {kept}"
