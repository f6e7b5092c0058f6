"""A mount's daemon in a separate process: `python serve.py '{"directories": "a,b", …}'`, with options as JSON.

Options for tests: `dies` (`rename 12`) kills the daemon before its twelfth rename (`tests.soak.kills.AIMS`);
`cluster` mounts a Kafka cluster, and `noted` names a file to which the names of requests are written;
`answer_seconds` is the time limit of a schema registry; `remote` names a file and serves a remote engine with one
topic, which answers only while the file does not exist. The environment variable TOPICFS_TEST_FAULTS names the
control file of disk faults.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import topicfs.fusefs.daemon
import topicfs.schemas.sources.registry
from tests.doubles.relay import Relay
from tests.doubles.servers import servers
from tests.doubles.stalling_engine import StallingEngine
from tests.fusefs.mounted.faults import FaultyFileSystem
from tests.soak.kills import die_at
from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.brokers.leaders import Leaders
from topicfs.cluster.engine import ClusterEngine
from topicfs.cluster.engine import open_engine as open_engine_of_cluster
from topicfs.cluster.place import cluster_address
from topicfs.coordination.engine import Engine
from topicfs.fusefs.appending.handle import Acks
from topicfs.fusefs.daemon import MountOptions, run
from topicfs.fusefs.metrics.address import parse_metrics_address
from topicfs.listener.address import parse_endpoint
from topicfs.listener.listener import ListenerOptions
from topicfs.replication import open_engine
from topicfs.replication.replicas.startup import open_replicas
from topicfs.schemas.places import SchemaPlaces
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.manager import Machine
from topicfs.storage.model import Isolation

READ: dict[str, Any] = {
    "left_out": lambda paths: tuple(map(Path, paths)),
    "directories": lambda paths: tuple(map(Path, paths.split(","))),
    "mountpoint": Path,
    "log_file": Path,
    "acks": Acks.parse,
    "isolation": Isolation,
    "schemas": lambda fields: SchemaPlaces(**fields),
    "engine": lambda fields: EngineConfig(**fields),
    "metrics": parse_metrics_address,
    "listener": lambda address: ListenerOptions(endpoint=parse_endpoint(address)),
}


def remote_engine(control: str) -> StallingEngine:
    """Return a remote engine with the topic `orders` of three records."""
    engine = StallingEngine(Path(control))
    engine.make("orders").all[0].arrive(b"a", b"b", b"c")
    return engine


def noting_engine(cluster: str, file: Path) -> ClusterEngine:
    """Return a cluster's engine that appends the name of each request to `file` as a line."""
    start = ExitStack().enter_context(servers())
    notes = file.open("a", buffering=1)
    relay = Relay(start, lambda name: print(name, file=notes))
    return ClusterEngine(Leaders(Brokers(cluster_address(cluster), relay.connect)), read_only=False)


def options(text: str) -> MountOptions:
    """Return the options of a mount from JSON."""
    given = json.loads(text)
    control, cluster, noted, dies = (given.pop(name, None) for name in ("remote", "cluster", "noted", "dies"))
    topicfs.schemas.sources.registry.REGISTRY_TIMEOUT_SECONDS = given.pop(
        "answer_seconds", topicfs.schemas.sources.registry.REGISTRY_TIMEOUT_SECONDS
    )
    if dies is not None:
        kind, number = dies.split()
        die_at(kind, int(number))
    read = {name: READ.get(name, lambda value: value)(value) for name, value in given.items()}
    if control is not None:
        read |= {"directories": (), "opens": partial(remote_engine, control), "place": "kafka://double"}
    if cluster is not None:
        read_only = bool(read.get("read_only"))
        opens = partial(open_engine_of_cluster, cluster_address(cluster), read_only=read_only)
        if noted is not None:
            opens = partial(noting_engine, cluster, Path(noted))
        read = {"acks": Acks.ALL, **read, "directories": (), "opens": opens, "place": cluster}
    return MountOptions(**read)


def main(text: str) -> int:
    """Mount with options from JSON, serve, and return the exit status."""
    if faults := os.environ.get("TOPICFS_TEST_FAULTS"):
        disk = FaultyFileSystem(Path(faults))

        def open_on_faulty_disk(
            directories: tuple[Path, ...],
            *,
            read_only: bool,
            config: EngineConfig | None,
            replicated: bool,
            left_out: tuple[Path, ...],
        ) -> Engine:
            files = None if read_only else disk
            if replicated:
                return open_replicas(
                    directories,
                    read_only=read_only,
                    config=config,
                    left_out=left_out,
                    machine=Machine(files=files),
                )
            return open_engine(directories, read_only=read_only, config=config, machine=Machine(files=files))

        topicfs.fusefs.daemon.open_directories = open_on_faulty_disk
    return run(options(text))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
