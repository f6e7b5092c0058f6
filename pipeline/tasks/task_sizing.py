"""Packs work of known sizes into tasks: not too small for their starting costs, and not too large for balance."""

from __future__ import annotations

from collections.abc import Sequence

TASK_BYTES = 128 << 20
"""Bytes of log per task: a core checks this many bytes in 64 ms, the cost of starting a task."""
MAX_TASKS = 4096
"""Maximum number of tasks. For more work, tasks are larger, because one process merges their results."""
FILE_BYTES = 64 << 10
"""Cost of opening a segment, as a number of bytes to read."""


def pack(sizes: Sequence[int], *, task_bytes: int = TASK_BYTES) -> list[range]:
    """Pack neighboring pieces into tasks, which are ranges of indices. The largest tasks come first and start first.

    A piece larger than `task_bytes` gets a task of its own. The same sizes give the same tasks on every machine.
    """
    costs = [size + FILE_BYTES for size in sizes]
    # Two neighboring tasks together exceed this size, so that there are at most MAX_TASKS.
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
