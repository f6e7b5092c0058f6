"""The file with the states of all replicas: JSON, the same in every directory that is online.

    topicfs.replicas:  {"version": 2, "set": "Kz1u…", "runs": [["h2Qa…", 1700000000000, [1, 2]], …],
                        "revision": 12, "cluster": "3Fb0…", "replicas": 2,
                        "directories": {"1": {"path": "/disk1/data", "id": "MMIw…", "mountpoint": "/disk1"}, "2": {…}},
                        "topics": {"orders": {"id": "1EvP…", "overrides": {"retention.ms": "-1"}, "replicas": 2,
                                   "partitions": {"0": {"assigned": [1, 2], "in_sync": [1, 2], "leader": 1,
                                                        "epoch": 4, "version": 7}}}},
                        "groups": {"billing": {"commit": "manual"}},
                        "deleted": ["9fKx…"]}

Brokers ignore the file. Each change is written to one directory after another, atomically in each, with the next
`revision`. `runs` is the history of the set, oldest first (`replication.replicas.rules.history`). It shows whether a
copy is just older or was written independently. Of copies with the same history, the copy with the highest revision
counts. A failed directory gets no more copies. `set` is the id of the set of directories. While a replica moves, its
partition has, for example, `"moving": [1, 3]`: from directory 1 to directory 3. `deleted` lists topics that were
deleted while a directory was away, so that the directory does not bring them back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from topicfs.replication.replicas.rules.history import MAX_TIME_MS, ReplicaRun, Runs
from topicfs.replication.replicas.rules.state import Move, ReplicaId, ReplicaState
from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Timestamp

VERSION = 2


@dataclass(frozen=True, slots=True)
class KnownDirectory:
    path: str
    directory_id: str
    """The id in the directory's meta.properties. Another id at the same path means a different, empty disk."""
    mountpoint: str = ""
    """Mount point of the directory's file system. While it is not mounted, an empty directory does not mean an empty
    disk.
    """


@dataclass(frozen=True, slots=True)
class ReplicatedTopicEntry:
    topic_id: str
    overrides: Mapping[str, str]
    replicas: int
    partitions: Mapping[int, ReplicaState]


@dataclass(frozen=True, slots=True)
class ReplicaFile:
    cluster_id: str
    revision: int = 0
    replicas: int = 1
    directories: Mapping[ReplicaId, KnownDirectory] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, ReplicatedTopicEntry] = field(default_factory=lambda: MappingProxyType({}))
    deleted: tuple[str, ...] = ()
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    set_id: str = ""
    """Id of the set of directories; empty before the first write."""
    runs: Runs = ()


def encode_replica_file(content: ReplicaFile) -> bytes:
    plain = {
        "version": VERSION,
        "set": content.set_id,
        "runs": [[run.id, run.began_ms, list(run.directories)] for run in content.runs],
        "revision": content.revision,
        "cluster": content.cluster_id,
        "replicas": content.replicas,
        "directories": {
            str(number): {"path": one.path, "id": one.directory_id, "mountpoint": one.mountpoint}
            for number, one in sorted(content.directories.items())
        },
        "topics": {name: _plain_topic(content.topics[name]) for name in sorted(content.topics)},
        "groups": {name: dict(content.groups[name]) for name in sorted(content.groups)},
        "deleted": list(content.deleted),
    }
    return (json.dumps(plain, separators=(",", ":")) + "\n").encode()


def decode_replica_file(data: bytes, *, file: Path) -> ReplicaFile:
    """Parse the file, ignoring unknown fields, which newer versions may write. Raises CorruptionError."""
    try:
        plain = json.loads(data)
        if plain["version"] != VERSION:
            raise CorruptionError(file, 0, f"version {plain['version']}, expected {VERSION}")
        directories = {
            ReplicaId(int(number)): KnownDirectory(
                str(one["path"]), str(one["id"]), str(one.get("mountpoint", ""))
            )
            for number, one in plain["directories"].items()
        }
        return ReplicaFile(
            cluster_id=str(plain["cluster"]),
            revision=int(plain["revision"]),
            replicas=int(plain.get("replicas", 1)),
            directories=MappingProxyType(directories),
            topics=MappingProxyType({name: _topic(one) for name, one in plain["topics"].items()}),
            deleted=tuple(map(str, plain["deleted"])),
            groups=MappingProxyType(
                {name: MappingProxyType(dict(one)) for name, one in plain.get("groups", {}).items()}
            ),
            set_id=str(plain["set"]),
            runs=tuple(map(_run, plain["runs"])),
        )
    except json.JSONDecodeError as error:
        raise CorruptionError(file, error.pos, f"not JSON: {error.msg}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptionError(
            file, 0, f"unexpected content: {type(error).__name__}: {str(error)[:80]}"
        ) from None


def read_replica_file(files: FileSystem, directory: Path) -> ReplicaFile | None:
    """Read a data directory's file; None if it does not exist. Raises CorruptionError, OSError."""
    path = directory / names.REPLICAS
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return None
    return decode_replica_file(data, file=path)


def write_replica_file(files: FileSystem, directory: Path, content: ReplicaFile) -> None:
    """Replace a data directory's file atomically (blocking). Raises OSError."""
    write_atomically(files, directory / names.REPLICAS, encode_replica_file(content))


def _run(plain: list[Any]) -> ReplicaRun:
    run_id, began_ms, directories = plain
    if not 0 <= int(began_ms) <= MAX_TIME_MS:
        raise ValueError(f"a run that began at {began_ms}")
    return ReplicaRun(
        str(run_id), Timestamp(int(began_ms)), tuple(ReplicaId(int(one)) for one in directories)
    )


def _plain_topic(entry: ReplicatedTopicEntry) -> dict[str, Any]:
    return {
        "id": entry.topic_id,
        "overrides": dict(entry.overrides),
        "replicas": entry.replicas,
        "partitions": {
            str(number): _plain_state(entry.partitions[number]) for number in sorted(entry.partitions)
        },
    }


def _plain_state(state: ReplicaState) -> dict[str, Any]:
    return {
        "assigned": list(state.assigned),
        "in_sync": list(state.in_sync),
        "leader": state.leader,
        "epoch": state.leader_epoch,
        "version": state.version,
        **({} if state.moving is None else {"moving": list(state.moving)}),
    }


def _topic(plain: dict[str, Any]) -> ReplicatedTopicEntry:
    overrides = plain["overrides"]
    if not all(isinstance(text, str) for item in overrides.items() for text in item):
        raise ValueError("overrides must be text")
    partitions = {int(number): _state(one) for number, one in plain["partitions"].items()}
    return ReplicatedTopicEntry(
        topic_id=str(plain["id"]),
        overrides=MappingProxyType(overrides),
        replicas=int(plain["replicas"]),
        partitions=MappingProxyType(dict(sorted(partitions.items()))),
    )


def _state(plain: dict[str, Any]) -> ReplicaState:
    leader, moving = plain["leader"], plain.get("moving")
    return ReplicaState(
        assigned=tuple(ReplicaId(int(one)) for one in plain["assigned"]),
        in_sync=tuple(ReplicaId(int(one)) for one in plain["in_sync"]),
        leader=None if leader is None else ReplicaId(int(leader)),
        leader_epoch=int(plain["epoch"]),
        version=int(plain["version"]),
        moving=None if moving is None else Move(*(ReplicaId(int(one)) for one in moving)),
    )
