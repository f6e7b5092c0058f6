"""Formats a node's log directory without Kafka's own tool, which takes a second of CPU time.

    meta.properties         the IDs of the cluster, of the node and of the directory
    bootstrap.checkpoint    the feature versions of a new cluster: the same for every cluster of a release of Kafka

The tool runs once per checkout, to make the second file.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from testing.broker.libraries import Java
from testing.java import ARCHIVES
from topicfs.storage.checkpoints.identifiers import new_id
from topicfs.storage.checkpoints.meta_properties import MetaProperties, encode_meta_properties
from topicfs.storage.config.properties import format_properties
from topicfs.storage.disk.native import system_clock

FEATURES = "bootstrap.checkpoint"


class FormatError(Exception):
    """Kafka's own tool failed; the message contains its output."""


def format_directory(
    log_dir: Path, java: Java, properties: Mapping[str, str], *, cluster_id: str, node: int
) -> None:
    """Create `log_dir` as the data directory of the only node of a new cluster."""
    kept = ARCHIVES / f"{_release(java)}.{FEATURES}"
    if not kept.exists():
        _keep_features(kept, java, properties)
    log_dir.mkdir(parents=True)
    (log_dir / FEATURES).write_bytes(kept.read_bytes())
    meta = MetaProperties(cluster_id, node, new_id())
    (log_dir / "meta.properties").write_bytes(encode_meta_properties(meta, written_at=system_clock()))


def _release(java: Java) -> str:
    return next(java.jars.glob("kafka_*.jar")).stem


def _keep_features(kept: Path, java: Java, properties: Mapping[str, str]) -> None:
    """Run the tool on a temporary directory and keep the file that it makes.

    Concurrent processes get the same result.
    """
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        log_dir, file = Path(folder) / "log", Path(folder) / "server.properties"
        log_dir.mkdir()
        file.write_bytes(format_properties({**properties, "log.dirs": str(log_dir)}))
        format_by_tool(java, file, cluster_id=new_id())
        (log_dir / FEATURES).replace(kept)


def format_by_tool(java: Java, properties: Path, *, cluster_id: str) -> None:
    """Run Kafka's tool on the directories in a properties file. Raises FormatError."""
    command = java.command("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FormatError(f"format: {done.stdout}{done.stderr}")
