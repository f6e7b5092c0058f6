"""Tests of completion in bash, zsh and fish, with the scripts that the command prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.topicfs.conftest import mounted

pytestmark = pytest.mark.slow

BINARIES = Path(sys.executable).parent
BASH = """
eval "$(topicfs completion bash)"
read -ra COMP_WORDS <<< "$line"
[[ $line == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { printf '%s ' compopt "$@" >&2; }
_topicfs_completion topicfs
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = 'topicfs completion fish | source; complete -C "$line" | string split -f 1 \\t; true'
ZSH = """
compdef() { }
compadd() { print -l -- "${(@P)@[-1]}" }
_describe() { print -l -- "${(@)${(@P)3}%%:*}" }
source <(topicfs completion zsh)
words=(${=line})
[[ $line == *' ' ]] && words+=('')
CURRENT=$#words
_topicfs_completion
"""
"""Zsh's completion commands work only while a line is edited. These replacements print their arguments."""


@pytest.fixture
def data(topicfs, directory) -> Path:
    """A data directory that has two topics, one with many partitions, a group and a queue."""
    topicfs("topics", "create", "orders", "--partitions", "2")
    topicfs("topics", "create", "wide", "--partitions", "30")
    topicfs("append", "orders/0", stdin=b"one\n")
    topicfs("cat", "--group", "billing", "orders/log")
    topicfs("work", "--drain", "baking", "orders", "--", "true")
    return directory


def offered(shell: str, script: str, line: str, directory: Path) -> tuple[list[str], str]:
    """Return the completions that a shell offers for the last word of `line`, and the shell's standard error."""
    environment = {**os.environ, "line": line, "PATH": f"{BINARIES}:{os.environ['PATH']}"}
    done = subprocess.run(
        [shell, "-c", script],
        cwd=directory.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.stdout.split(), done.stderr


LINES = [
    ("topicfs expl", ["explain"]),
    ("topicfs cat ord", ["orders/0", "orders/1"]),
    ("topicfs cat wi", ["wide/"]),
    ("topicfs cat wide/2", ["wide/2", *(f"wide/{number}" for number in range(20, 30))]),
    (
        "topicfs cat orders/1/log.",
        [
            f"orders/1/log.{form}"
            for form in ("kv", "json", "batch", "avro.json", "proto.json", "jsonschema.json")
        ],
    ),
    ("topicfs append orders/1", ["orders/1"]),
    ("topicfs topics describe ", ["orders", "wide"]),
    ("topicfs groups describe b", ["baking", "billing"]),
    ("topicfs work b", ["baking"]),
    ("topicfs cat --iso", ["--isolation"]),
    ("topicfs cat --isolation ", ["read_committed", "read_uncommitted"]),
    ("topicfs cat --format ", ["csv", "arrow", "parquet"]),
    ("topicfs config orders retention.", ["retention.bytes=", "retention.ms="]),
    ("topicfs topics create t --config cleanup", ["cleanup.policy="]),
    ("topicfs cat --data nowhere ord", []),
]


def test_bash_offers_what_can_follow(data: Path) -> None:
    """bash offers commands, options, values of options, topics, partitions, files and groups."""
    for line, expected in LINES:
        assert sorted(expected) == sorted(offered("bash", BASH, line, data)[0]), line


@pytest.mark.parametrize(("shell", "script"), [("fish", FISH), ("zsh", ZSH)])
def test_other_shells_offer_the_same(data: Path, shell: str, script: str) -> None:
    """fish and zsh offer the same completions as bash; the test compares some lines."""
    for line, expected in LINES[:5:2]:
        assert sorted(expected) == sorted(offered(shell, script, line, data)[0]), line


def test_no_space_follows_a_name_that_goes_on(data: Path) -> None:
    """bash adds a space after a partition, but adds no space after a name that can continue."""
    assert "compopt -o nospace" in offered("bash", BASH, "topicfs cat wi", data)[1]
    assert "compopt -o nospace" in offered("bash", BASH, "topicfs config orders retention.m", data)[1]
    assert "nospace" not in offered("bash", BASH, "topicfs cat ord", data)[1]


def test_fish_shows_a_whole_help(data: Path) -> None:
    """fish shows a help text completely even if the text contains commas."""
    script = 'topicfs completion fish | source; complete -C "$line"'
    done, _ = offered("fish", script, "topicfs to", data)
    assert "Watch topics: rates, sizes, lag, readers and writers." in " ".join(done)


@pytest.mark.fuse
def test_mountpoints_are_offered_to_unmount(topicfs, data: Path, tmp_path: Path) -> None:
    """`umount` offers mountpoints as absolute and relative paths, but no other directories."""
    (tmp_path / "mine").mkdir()
    with mounted(data, tmp_path / "mnt"):
        for word, expected in ((f"{tmp_path}/m", f"{tmp_path}/mnt"), ("m", "mnt"), ("./m", "./mnt")):
            assert [expected] == offered("bash", BASH, f"topicfs umount {word}", data)[0]


def test_directories_are_offered_by_the_shell_itself(data: Path) -> None:
    """For --data, bash completes directory names without the help of topicfs."""
    assert "compopt -o dirnames" in offered("bash", BASH, "topicfs cat --data da", data)[1]


def test_an_error_offers_no_completions(topicfs, directory: Path) -> None:
    """If completion fails, it offers nothing, and prints no error into the edited line."""
    for line in ("topicfs cat ", "topicfs groups describe ", "topicfs cat --data kafka://127.0.0.1:1 "):
        assert ([], "") == offered("bash", BASH, line, directory)
    directory.write_text("no directory")
    assert ([], "") == offered("bash", BASH, "topicfs cat ", directory)
