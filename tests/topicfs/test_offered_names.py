"""Tests that completion and the help texts have the same file names as the tree."""

from __future__ import annotations

import re

import click

from topicfs.callers import completion
from topicfs.commands.append import append
from topicfs.commands.cat import cat
from topicfs.fusefs.forms import LINE_SUFFIXES, SUFFIXES
from topicfs.fusefs.tree import partitions, root, topics


def words(command: click.Command) -> set[str]:
    """Return the lowercase words of a command's help, each with its leading `@` or dot if it has one."""
    assert command.help is not None
    return set(re.findall(r"[@.]?[a-z]+(?:\.[a-z]+)*", command.help))


def test_every_file_of_a_partition_is_offered() -> None:
    """Completion offers all files of a partition except those whose content has no end.

    Of the files for a single record, completion offers only those without a suffix.
    """
    links = {f"{stem}{suffix}" for stem in partitions.ONLY_WITH_RECORDS for suffix in SUFFIXES}
    endless = {f"follow{suffix}" for suffix in LINE_SUFFIXES}
    assert set(completion.NAMES) == partitions.NAMES.keys() - links - endless - {"segments"}
    assert len(set(completion.NAMES)) == len(completion.NAMES)


def test_the_help_of_cat_names_every_file() -> None:
    """The help of `cat` has every fixed name of the tree, and every suffix."""
    tables = (partitions.NAMES, topics.NAMES, root.NAMES, root.UNLISTED)
    stems = {name.partition(".")[0] for table in tables for name in table}
    assert set() == (stems | set(SUFFIXES)) - words(cat)


def test_the_help_of_append_names_every_form() -> None:
    """The help of `append` names the log in every form."""
    logs = {name for name in partitions.NAMES if name.partition(".")[0] == "log"}
    assert set() == logs - words(append)
