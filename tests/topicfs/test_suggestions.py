"""Tests of the wrapping of messages on a terminal."""

from __future__ import annotations

import io
import os
import pty
import re

from rich.console import Console

from topicfs.lines import fitted
from topicfs.terminal import THEME


def test_a_message_breaks_between_words_at_a_terminal(monkeypatch):
    """On a terminal a message is wrapped between words; in a pipe it is one line."""
    monkeypatch.setenv("COLUMNS", "40")
    text = "topicfs: orders/0/log: a message that is much longer than forty columns"
    ours, theirs = pty.openpty()
    with os.fdopen(ours), os.fdopen(theirs, "w") as screen, open(os.devnull, "w") as pipe:
        lines = fitted(text, screen).splitlines()
        assert text == fitted(text, pipe)
    assert text.split() == " ".join(lines).split()
    assert max(map(len, lines)) <= 40


def test_an_explanation_breaks_between_words_at_a_terminal(orders, monkeypatch):
    """On a terminal an explanation is wrapped between words."""
    screen = Console(
        width=40, file=io.StringIO(), force_terminal=True, no_color=True, theme=THEME, soft_wrap=True
    )
    whole = orders("explain", "orders/0/1").text
    monkeypatch.setattr("topicfs.commands.explain.console", lambda: screen)
    assert 0 == orders("explain", "orders/0/1").status
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.file.getvalue())
    assert whole.split() == shown.split()
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 40 < max(map(len, whole.splitlines()))
