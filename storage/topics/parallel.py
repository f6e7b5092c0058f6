"""The same for many partitions: where they are many, several at once, for each of them waits for the disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
T = TypeVar("T")

FEW = 16
"""So many are done one after the other."""
THREADS = 8
"""File systems put on disk together what several ask for at a time."""


def for_each(items: Sequence[Item], act: Callable[[Item], T]) -> list[T]:
    """What `act` gives for each item, in their order (blocking). Raises the first error; what waits then is left out."""
    if len(items) <= FEW:
        return [act(item) for item in items]
    with ThreadPoolExecutor(THREADS, thread_name_prefix="many") as threads:
        try:
            return list(threads.map(act, items))
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
