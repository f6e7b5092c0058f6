"""The journal of a mirror: a text file in its directory, which brokers ignore.

    topicfs.mirror:  {"version": 1, "cluster": "Some-KafkaClusterId000", "topics": {"orders": "1EvPSKI_SvihSIy3lMKMvg"},
                      "unplaced": ["orders-3"], "ends": {"orders-0": 1200}}

`topics` maps names to topic ids; a topic is added before it is created. `unplaced` lists partitions whose first
offset is not known yet. `ends` has the log ends at the last clean exit of the mirror: if the logs now end elsewhere,
another program has written to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.errors import CorruptionError

VERSION = 1


@dataclass(frozen=True, slots=True)
class MirrorJournal:
    """The content of the journal."""

    cluster_id: str
    topics: Mapping[str, str] = field(default_factory=dict)
    """Topic ids by name."""
    unplaced: frozenset[str] = frozenset()
    ends: Mapping[str, int] | None = None

    @classmethod
    def read(cls, directory: Path, files: FileSystem) -> MirrorJournal | None:
        """Return the content; None if the file does not exist. Raises CorruptionError, OSError."""
        path = directory / names.MIRROR
        if not files.exists(path):
            return None
        try:
            content = json.loads(files.read_bytes(path))
            if content["version"] != VERSION:
                raise CorruptionError(path, 0, f"version {content['version']}, expected {VERSION}")
            return cls(
                cluster_id=str(content["cluster"]),
                topics={str(name): str(one) for name, one in content["topics"].items()},
                unplaced=frozenset(map(str, content["unplaced"])),
                ends={str(name): int(end) for name, end in content["ends"].items()}
                if "ends" in content
                else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptionError(path, 0, f"not in the format that a mirror writes: {error!r}") from None

    def write(self, directory: Path, files: FileSystem) -> None:
        """Replace the file atomically; the new file is on disk when this returns. Raises OSError."""
        content = {
            "version": VERSION,
            "cluster": self.cluster_id,
            "topics": dict(sorted(self.topics.items())),
            "unplaced": sorted(self.unplaced),
        }
        if self.ends is not None:
            content["ends"] = dict(self.ends)
        write_atomically(files, directory / names.MIRROR, (json.dumps(content, indent=1) + "\n").encode())
