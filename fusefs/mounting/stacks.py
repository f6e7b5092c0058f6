"""The stacks of all threads and tasks, for a mount that seems to hang."""

from __future__ import annotations

import sys
import threading
import traceback
from types import FrameType
from typing import Any

import trio


def describe_stacks() -> str:
    """Return all stacks as one text. Call it in the event loop's thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads = [
        _titled(f"thread {names.get(ident, ident)}", traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 - the documented way to all frames
    ]
    root = trio.lowlevel.current_root_task()
    tasks = [] if root is None else [_titled(f"task {task.name}", _task_stack(task)) for task in _below(root)]
    return "\n".join([*threads, *tasks])


def _titled(title: str, stack: list[str]) -> str:
    return f"{title}:\n{''.join(stack)}"


def _below(task: trio.lowlevel.Task) -> list[trio.lowlevel.Task]:
    found = [task]
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            found += _below(child)
    return found


def _task_stack(task: trio.lowlevel.Task) -> list[str]:
    """Return the chain of coroutines that the task waits in, outermost first."""
    lines = []
    coroutine: Any = task.coro
    while coroutine is not None:
        frame: FrameType | None = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            lines += traceback.format_stack(frame, limit=1)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return lines
