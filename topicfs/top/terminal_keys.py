"""Reads single keys of a terminal, without echo, while a block runs."""

from __future__ import annotations

import os
import re
import select
import termios
import tty
from types import TracebackType
from typing import Self

ENTER, ESCAPE, BACKSPACE, UP, DOWN = "enter", "escape", "backspace", "up", "down"
PAGE_UP, PAGE_DOWN, HOME, END = "page up", "page down", "home", "end"
_NAMED = {
    "\r": ENTER,
    "\n": ENTER,
    "\x1b": ESCAPE,
    "\x7f": BACKSPACE,
    "\x08": BACKSPACE,
    "\x1b[A": UP,
    "\x1bOA": UP,
    "\x1b[B": DOWN,
    "\x1bOB": DOWN,
    "\x1b[5~": PAGE_UP,
    "\x1b[6~": PAGE_DOWN,
    **dict.fromkeys(("\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~"), HOME),
    **dict.fromkeys(("\x1b[F", "\x1bOF", "\x1b[4~", "\x1b[8~"), END),
}
_KEY = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
"""The input of one key: a character, or an escape sequence."""
_MAX_INPUT_BYTES = 4096


class TerminalKeys:
    """The keys of a terminal. However the block ends, the terminal is restored."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pressed = ""
        """Input that was read and not returned yet, because pasting sends several keys."""

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def next(self, seconds: float) -> str | None:
        """Return the next key, a character or a name; None after the timeout. Raises EOFError without a terminal."""
        if not self._pressed:
            keyboard = select.poll()  # select(2) cannot handle descriptors above 1,023.
            keyboard.register(self._descriptor, select.POLLIN)
            if not keyboard.poll(max(seconds, 0) * 1_000):
                return None
            self._pressed = os.read(self._descriptor, _MAX_INPUT_BYTES).decode("utf-8", "replace")
            if not self._pressed:
                raise EOFError
        found = _KEY.match(self._pressed)
        assert found is not None
        self._pressed = self._pressed[found.end() :]
        pressed = found[0]
        if len(pressed) > 1 and pressed not in _NAMED:  # The key has no meaning here.
            return None
        return _NAMED.get(pressed, pressed)
