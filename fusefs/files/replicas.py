"""`replicas` of a topic: where the replicas of each partition are, who leads, who is in sync. Only where there are any.

A line that is written changes them: a number is how many each partition is to have, `elect` gives the leadership back to
the preferred leaders, and `elect PARTITION DIR` has a replica lead that was not in sync, with what only others have lost.
"""

from __future__ import annotations

from fusefs.allowance import leave_event_loop
from fusefs.appending.flags import Access
from fusefs.appending.handle import AppendHandle
from fusefs.appending.targets import LineTarget
from fusefs.files.text_file import TextFile
from fusefs.files.topic_files import TopicFiles
from fusefs.nodes.nodes import Directory
from storage.engine import Replication
from storage.errors import InvalidConfigError
from storage.messages import printable
from storage.model import PartitionStatus, ReplicaStatus, TopicPartition

LINE_BYTES = 4096
ELECT = "elect"


class ReplicasTarget:
    """The target of the lines that change a topic's replicas."""

    max_record_bytes = LINE_BYTES

    def __init__(self, name: str, topic: str, replication: Replication) -> None:
        self.name = name
        self._topic = topic
        self._replication = replication

    def check(self, lines: bytes) -> None:
        for line in lines.decode("utf-8", "replace").split("\n")[:-1]:
            words = line.split(maxsplit=2)
            number = len(words) == 1 and words[0].isdecimal()
            election = words[:1] == [ELECT] and (
                len(words) == 1 or (len(words) == 3 and words[1].isdecimal())
            )
            if not number and not election:
                raise InvalidConfigError(
                    f"{line}: write a number of replicas, `{ELECT}`, or `{ELECT} PARTITION DIR`"
                )

    def append(self, lines: bytes, *, durable: bool = False) -> None:
        """Do what the lines say (blocking). Raises what the engine does."""
        del durable
        self.check(lines)
        for line in lines.decode("utf-8", "replace").split("\n")[:-1]:
            words = line.split(maxsplit=2)
            if words[0] != ELECT:
                self._replication.set_replicas(self._topic, int(words[0]))
            elif len(words) == 1:
                self._replication.elect_preferred(self._topic)
            else:
                self._replication.elect_unclean(TopicPartition(self._topic, int(words[1])), words[2].strip())

    def sync(self) -> None:
        pass


class ReplicasFile(TextFile):
    """`replicas` of a topic."""

    __slots__ = ("_files", "_replication")

    def __init__(self, parent: Directory, name: str, files: TopicFiles, replication: Replication) -> None:
        super().__init__(files.context, parent, name)
        self._files = files
        self._replication = replication

    def render(self) -> str:
        self._files.check_exists()
        leave_event_loop()
        partitions = self._files.topic.partitions()
        return "".join(
            f"partition {number} {line}\n"
            for number, partition in partitions.items()
            for line in replica_lines(partition.status())
        )

    def target(self) -> LineTarget | None:
        return ReplicasTarget(self.path, self._files.topic.name, self._replication)

    def _writer(self, access: Access, pid: int) -> AppendHandle | None:
        # It may take its time: as what is durable, it happens in a thread.
        return super()._writer(access._replace(durable=True), pid)


def replica_lines(status: PartitionStatus) -> list[str]:
    """Return a line for each replica: its directory, its role, and how far behind its leader it is."""
    leader = next((one for one in status.replicas if one.leads), None)
    return [f"replica {printable(one.place)} {_role(one)}{_lag(one, leader)}" for one in status.replicas]


def _role(replica: ReplicaStatus) -> str:
    if replica.leads:
        return "leader"
    return "in_sync" if replica.in_sync else "out_of_sync"


def _lag(replica: ReplicaStatus, leader: ReplicaStatus | None) -> str:
    if replica.end_offset is None or replica.log_bytes is None:
        return " away"
    end = f" log_end_offset {replica.end_offset}"
    if leader is None or leader.end_offset is None or leader.log_bytes is None or replica.leads:
        return end
    records, size = leader.end_offset - replica.end_offset, leader.log_bytes - replica.log_bytes
    return f"{end} lag {max(records, 0)} lag_bytes {max(size, 0)}"
