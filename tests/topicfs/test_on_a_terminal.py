"""Tests of output that differs between a terminal and a pipe."""

from __future__ import annotations

import os
import pty
import re

import pytest

from tests.topicfs.conftest import on_a_terminal
from topicfs.lines import fitted

pytestmark = pytest.mark.slow

COLORS = r"\x1b\[[0-9;]*m"


def test_a_terminal_gets_a_newline_behind_a_record(orders):
    """On a terminal `cat` adds a newline after a record; in a pipe it adds none."""
    shown = on_a_terminal("cat", "orders/0/0", "orders/0/1", "orders/0")
    assert ["one", "two", "one", "two", "three"] == shown.splitlines()
    assert b"onetwo" == orders("cat", "orders/0/0", "orders/0/1").output


def test_an_explanation_breaks_no_word(orders):
    """On a terminal `explain` breaks lines only between words."""
    shown = re.sub(COLORS, "", on_a_terminal("explain", "orders/0/1", COLUMNS="50"))
    assert 50 >= max(map(len, shown.splitlines()))
    assert orders("explain", "orders/0/1").text.split() == shown.split()


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
