"""Work of known sizes packed into tasks: neither so small that starting them costs more, nor so large that one is waited for."""

from __future__ import annotations

from collections.abc import Sequence

TASK_BYTES = 128 << 20
"""Bytes of log a task: a task costs 64 ms of a core before it does anything, in which a core checks as much as this."""
MAX_TASKS = 4096
"""Beyond them tasks get larger: what they found is put together in one place."""
FILE_BYTES = 64 << 10
"""What opening one more segment costs, in bytes that could have been read instead."""


def pack(sizes: Sequence[int], *, task_bytes: int = TASK_BYTES) -> list[range]:
    """Put neighbours together, by their numbers; the largest tasks first, for these are to be begun first.

    A piece larger than `task_bytes` is a task of its own. The same sizes make the same tasks, wherever they run.
    """
    costs = [size + FILE_BYTES for size in sizes]
    # Two neighbouring tasks are together larger than one may be.
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
