"""`replicas` of a topic: the directory and state of each partition's replicas. Exists only with replication.

A written line changes the replicas. A number sets how many replicas each partition has. `elect` makes the preferred
replicas leaders. `elect PARTITION DIR` makes a replica that is not in sync the leader; records that this replica does
not have are lost. `move PARTITION DIR [FROM]` moves a replica to another directory; FROM names the replica if there
are several (names are quoted as in a shell). `cancel PARTITION` cancels the move.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from topicfs.fusefs.allowance import leave_event_loop
from topicfs.fusefs.files.text_file import TopicTextFile
from topicfs.fusefs.files.topic_files import TopicFiles
from topicfs.fusefs.nodes.nodes import Directory
from topicfs.storage.errors import InvalidConfigError
from topicfs.storage.messages import printable
from topicfs.storage.model import PartitionStatus, ReplicaStatus, TopicPartition

if TYPE_CHECKING:
    from topicfs.coordination.engine import Replication
    from topicfs.fusefs.appending.targets import CommandTarget, LineTarget

MAX_REPLICA_LINE_BYTES = 4096
ELECT = "elect"
MOVE = "move"
CANCEL = "cancel"
FORMS = f"a number of replicas, `{ELECT}`, `{ELECT} PARTITION DIR`, `{MOVE} PARTITION DIR [FROM]` or `{CANCEL} PARTITION`"


def replicas_target(
    name: str, topic: str, replication: Replication, check_same: Callable[[], None] = lambda: None
) -> CommandTarget:
    """Return the target of lines that change a topic's replicas. `check_same` raises if the topic was replaced."""
    from topicfs.fusefs.appending.targets import CommandTarget

    def act(lines: bytes) -> None:
        check_same()
        for words in _commands(lines):
            _change(replication, topic, words)

    return CommandTarget(name, _commands, act, max_record_bytes=MAX_REPLICA_LINE_BYTES)


def _commands(lines: bytes) -> list[list[str]]:
    """Return the words of each line. Raises InvalidConfigError."""
    commands = []
    for line in lines.decode("utf-8", "replace").split("\n")[:-1]:
        commands.append(_words(line))
        if not _is_understood(commands[-1]):
            raise InvalidConfigError(f"{line}: write {FORMS}")
    return commands


def _change(replication: Replication, topic: str, words: list[str]) -> None:
    partition = TopicPartition(topic, int(words[1])) if len(words) > 1 else None
    if partition is None:
        if words[0] == ELECT:
            replication.elect_preferred(topic)
        else:
            replication.set_replicas(topic, int(words[0]))
    elif words[0] == ELECT:
        replication.elect_unclean(partition, words[2])
    elif words[0] == MOVE:
        replication.move_replica(partition, *words[2:])
    else:
        replication.cancel_move(partition)


def _words(line: str) -> list[str]:
    """Split a line into words. After `elect PARTITION`, the rest is a directory; words after `move` may be quoted."""
    if line.split(maxsplit=1)[:1] != [MOVE]:
        return [word.strip() for word in line.split(maxsplit=2)]
    import shlex

    try:
        return shlex.split(line)
    except ValueError:
        return []


def _is_understood(words: list[str]) -> bool:
    if len(words) == 1:
        return words[0].isdecimal() or words[0] == ELECT
    lengths = {ELECT: (3,), MOVE: (3, 4), CANCEL: (2,)}
    return bool(words) and len(words) in lengths.get(words[0], ()) and words[1].isdecimal()


class ReplicasFile(TopicTextFile):
    """`replicas` of a topic."""

    __slots__ = ("_replication",)

    def __init__(self, parent: Directory, name: str, files: TopicFiles, replication: Replication) -> None:
        super().__init__(parent, name, files)
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
        return replicas_target(self.path, self._files.topic.name, self._replication, self.check_same)


def replica_lines(status: PartitionStatus) -> list[str]:
    """Return a line for each replica: the replica's directory and role, and how far it lags behind the leader."""
    leader = next((one for one in status.replicas if one.leads), None)
    return [
        f"replica {printable(one.place)} {_role(one)}{_lag(one, leader)}"
        + (f" reason {printable(one.reason)}" if one.reason else "")
        for one in status.replicas
    ]


def _role(replica: ReplicaStatus) -> str:
    if replica.arriving:
        return "arriving"
    if replica.leads:
        return "leader"
    return "in_sync" if replica.in_sync else "out_of_sync"


def _lag(replica: ReplicaStatus, leader: ReplicaStatus | None) -> str:
    if replica.end_offset is None or replica.log_bytes is None:
        return "" if replica.arriving else " away"
    end = f" log_end_offset {replica.end_offset}"
    if leader is None or leader.end_offset is None or leader.log_bytes is None or replica.leads:
        return end
    records, size = leader.end_offset - replica.end_offset, leader.log_bytes - replica.log_bytes
    return f"{end} lag {max(records, 0)} lag_bytes {max(size, 0)}"
