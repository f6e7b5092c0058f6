"""The choice of data directories for the replicas of a new partition: a pure function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from topicfs.replication.replicas.rules.state import ReplicaId, ReplicaState


def place(
    serving: Sequence[ReplicaId], taken: Iterable[ReplicaState], replicas: int
) -> tuple[ReplicaId, ...]:
    """Return the directories of a partition's replicas, the preferred leader first.

    Those with the fewest replicas; the one of them that is the preferred leader of the fewest leads.
    """
    states = list(taken)
    held = Counter(one for state in states for one in state.assigned)
    led = Counter(state.assigned[0] for state in states)
    chosen = sorted(serving, key=lambda one: (held[one], one))[:replicas]
    return tuple(sorted(chosen, key=lambda one: (led[one], one)))
