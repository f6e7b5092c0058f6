"""Work of known sizes packed into tasks, neither too small for the cost of starting them nor too large for balance."""

from __future__ import annotations

from collections.abc import Sequence

TASK_BYTES = 128 << 20
"""Bytes of log a task: starting a task costs 64 ms of a core, in which a core checks as much as this."""
MAX_TASKS = 4096
"""Most tasks; beyond them tasks get larger, for their results are merged in one place."""
FILE_BYTES = 64 << 10
"""Cost of opening a segment, in bytes that could be read instead."""


def pack(sizes: Sequence[int], *, task_bytes: int = TASK_BYTES) -> list[range]:
    """Pack neighbors, by their numbers; the largest tasks come first, for they should start first.

    A piece larger than `task_bytes` is a task of its own. The same sizes make the same tasks, wherever they run.
    """
    costs = [size + FILE_BYTES for size in sizes]
    # Two neighboring tasks are together larger than one may be.
    most = max(task_bytes, 2 * sum(costs) // MAX_TASKS)
    tasks: list[range] = []
    first, filled = 0, 0
    for number, cost in enumerate(costs):
        if number > first and filled + cost > most:
            tasks.append(range(first, number))
            first, filled = number, 0
        filled += cost
    if first < len(costs):
        tasks.append(range(first, len(costs)))
    return sorted(tasks, key=lambda task: (-sum(costs[task.start : task.stop]), task.start))
