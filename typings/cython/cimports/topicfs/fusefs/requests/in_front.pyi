"""`fusefs/requests/in_front.pxd`."""

from collections.abc import Callable
from typing import Any

def take_place(reads: Callable[[int], int] | None, memory: Any, room: int) -> None: ...
def is_seen_first() -> int: ...
