"""Tests of records, groups and producers whose names contain terminal escape sequences."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

import pytest

from tests.topicfs.conftest import on_a_terminal
from topicfs.replication import open_engine

pytestmark = pytest.mark.slow

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"
RECORD = {"key": f"{EVIL}key", "payload": f"{EVIL}\rvalue", "headers": [f"{EVIL}name", f"{EVIL}text"]}
GROUP, PRODUCER = f"{EVIL}group", f"{EVIL}producer"
OBEYED = {"\x1b", "\x07", "\x9b", "\u202e"}
OUR_OWN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""Escape sequences that topicfs itself prints: colors and the progress bar."""
LOG = f"data/orders-0/{0:020d}.log"


@pytest.fixture
def evil(topicfs, directory: Path):
    """A topic with a record that contains escape sequences, and a group whose name contains them."""
    topicfs("topics", "create", "orders")
    lines = directory.parent / "lines"
    lines.write_text(json.dumps(RECORD) + "\n")
    assert 0 == topicfs("append", "--producer", PRODUCER, "orders/0/log.json", str(lines)).status
    with closing(open_engine(directory)) as engine:
        engine.groups.create(GROUP)
    return topicfs


COMMANDS = [
    ("topics", "list"),
    ("topics", "describe", "orders"),
    ("groups", "list"),
    ("groups", "describe", GROUP),
    ("groups", "reset", GROUP, "--topic", "orders", "--to-earliest"),
    ("groups", "delete", GROUP),
    ("explain", "orders/0/0"),
    ("config", "orders"),
    ("cat", "orders/status"),
    ("cat", "orders/0/status"),
    ("maintain", "data"),
    ("check", "data"),
    ("scrub", "data"),
    ("dump", LOG),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words).replace(EVIL, "…"))
def test_commands_print_no_escape_sequences(evil, words):
    """Apart from `cat` of records, no command prints escape sequences from names and records."""
    ran = evil(*words)
    text = (ran.output + ran.errors).decode()
    assert not OBEYED & set(text)


def test_a_terminal_shows_which_groups_are_queues(directory):
    """In a pipe `groups list` prints only names. On a terminal it also says whether each is a group or a queue."""
    with closing(open_engine(directory)) as engine:
        engine.create_topic("orders")
        engine.groups.create("billing")
        engine.share_groups.create("jobs")
    rows = on_a_terminal("groups", "list", "--data", str(directory)).split()
    assert ["NAME", "KIND", "billing", "group", "jobs", "queue"] == rows


def test_a_dump_of_records_is_escaped_for_a_terminal(evil, directory):
    """`dump` escapes records on a terminal; in a pipe it prints them as Kafka's tool does."""
    text = OUR_OWN.sub("", on_a_terminal("dump", "--print-data-log", str(directory.parent / LOG)))
    assert "owned" in text
    assert not OBEYED & set(text)
