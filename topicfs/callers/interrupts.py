"""Ctrl-C, also where Python would drop it.

KeyboardInterrupt is raised wherever the main thread just is. In a finalizer, or in a callback of compiled code, there is
nobody whom it could reach: Python prints it as an exception that was ignored, and the program goes on.
"""

from __future__ import annotations

import signal
import sys

PAUSE_SECONDS = 0.01
"""Time after which it comes again: by then the finalizer has ended."""


def keep_interrupts() -> None:
    """Have a KeyboardInterrupt that nobody could be told come again, from now on; SIGALRM is taken for that."""
    signal.signal(signal.SIGALRM, _interrupt)
    sys.unraisablehook = _told


def _told(unraisable: sys.UnraisableHookArgs) -> None:
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        # Not now: it would be raised in this very function.
        signal.setitimer(signal.ITIMER_REAL, PAUSE_SECONDS)
    else:
        sys.__unraisablehook__(unraisable)


def _interrupt(_number: int, _frame: object) -> None:
    """Interrupt by whoever handles SIGINT by then, which may be an event loop."""
    signal.raise_signal(signal.SIGINT)
