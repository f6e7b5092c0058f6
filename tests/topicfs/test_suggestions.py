"""Tests of suggestions for unknown names, and of the wrapping of messages on a terminal."""

from __future__ import annotations

import io
import os
import pty
import re

import pytest
from rich.console import Console

from topicfs.lines import fitted
from topicfs.terminal import THEME


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("topics describe order", "; did you mean orders?"),
        ("explain ordesr/0/1", "; did you mean orders?"),
        ("append ordrs/0", "; did you mean orders?"),
        ("cat order/0", "; did you mean orders?"),
        ("cat orders/0/log.jsn", "; did you mean log.json?"),
        ("config orders retention.m=3", "; did you mean retention.ms?"),
        ("topics create t --config cleanup.polici=compact", "; did you mean cleanup.policy?"),
        ("cat orders/0 --isolatoin x", "Did you mean '--isolation'?"),
    ],
)
def test_a_similar_name_is_suggested(orders, words, hint):
    """If a topic, file, setting or option is misspelled, the error suggests the similar name."""
    ran = orders(*words.split())
    assert 0 != ran.status
    assert hint in ran.errors.decode()
    assert 1 == len(ran.errors.splitlines())


@pytest.mark.parametrize("words", ["topics describe zzz", "cat zzz/0", "config orders zzz=1"])
def test_an_unfamiliar_name_gets_no_suggestion(orders, words):
    """For a name that is similar to no known name, nothing is suggested."""
    assert b"did you mean" not in orders(*words.split()).errors


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
