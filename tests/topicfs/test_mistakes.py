"""Common mistakes at a shell: each mistake prints a clear message and an exit code, and changes nothing.

`mistakes/*.txt` are transcripts: the intention (`#`), the line (`$`), the output, and the exit code. `python -m
tests.topicfs.test_mistakes` writes the present output into the transcripts. Read this output before you commit it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.doubles.forks import COMMAND, FORKS
from tests.fusefs.mounted.conftest import Mount, is_mounted

TRANSCRIPTS = Path(__file__).with_name("mistakes")
FILES = {
    "lines.txt": "one\ntwo\n",
    "notes/a.log": "this is the log of another program\n",
    "notes/todo.txt": "buy milk\n",
    "bad.properties": "log.segment.bytes=1\n",
    "typo.properties": "log.retention.mss=1\n",
}
TOPICS = {
    "orders": ("one", "two", "three"),
    "payments": ("four",),
    "empty-topic": (),
}


class Mistake(NamedTuple):
    """A user's intention, the line that the user typed, and the output."""

    meant: str
    line: str
    shown: str
    """The output and the exit code."""


def mistakes(name: str) -> list[Mistake]:
    """Read one transcript."""
    blocks = (TRANSCRIPTS / f"{name}.txt").read_text().removesuffix("\n").split("\n\n# ")
    return [
        Mistake(meant.removeprefix("# "), line.removeprefix("$ "), "\n".join(shown))
        for meant, line, *shown in (block.splitlines() for block in blocks)
    ]


@contextmanager
def prepared() -> Iterator[Path]:
    """Create a folder with two data directories, and with files of other programs."""
    with tempfile.TemporaryDirectory(prefix="m") as base:
        folder = Path(base)
        for name, text in FILES.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        (folder / "empty").mkdir()
        with chdir(folder):
            for topic, lines in TOPICS.items():
                FORKS.run(COMMAND, "topics", "create", topic, "--partitions", "2")
                FORKS.run(
                    COMMAND, "append", f"{topic}/0", given="".join(f"{line}\n" for line in lines).encode()
                )
            FORKS.run(COMMAND, "topics", "create", "other", "--data", "data2")
        try:
            yield folder
        finally:
            for path in folder.iterdir():
                if is_mounted(path):
                    subprocess.run(["umount", "-l", path], check=False)


def command(folder: Path, line: str) -> str:
    """Run a line of `topicfs` and return its output with the exit code."""
    given, _, words = line.rpartition(" | ")
    source = subprocess.run(["bash", "-c", given or ":"], capture_output=True, check=True).stdout
    with chdir(folder):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOPICFS_")}
        ran = FORKS.run(COMMAND, *shlex.split(words)[1:], given=source, environment=environment)
    return _shown(folder, (ran.output + ran.errors).decode(errors="backslashreplace"), ran.status)


def in_a_mount(folder: Path, line: str) -> str:
    """Run a line in a shell and return its output with the exit code."""
    ran = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="backslashreplace",
        check=False,
    )
    return _shown(folder, ran.stdout.replace("bash: line 1: ", "bash: "), ran.returncode)


def _shown(folder: Path, said: str, status: int) -> str:
    said = re.sub("sed[A-Za-z0-9]{6}", "sedXXXXXX", said.replace(str(folder), "/folder"))
    return f"{said.rstrip()}\n[{status}]".lstrip("\n")


def kept(folder: Path) -> dict[str, int | None]:
    """Return all files and folders, with the sizes of segments and of files of other programs.

    A `.tmp` file is left out, because a daemon is writing a checkpoint with it.
    """
    return {
        str(path.relative_to(folder)): path.stat().st_size if path.suffix in {".log", ".txt"} else None
        for path in folder.rglob("*")
        if not path.is_relative_to(folder / "mnt")
        and not path.name.startswith((".", "daemon"))
        and path.suffix != ".tmp"
    }


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with prepared() as folder:
        yield folder


@pytest.fixture(scope="module")
def mounted() -> Iterator[Path]:
    """A prepared folder with its data directory mounted at `mnt`."""
    with prepared() as folder, _mounted(folder):
        yield folder


@contextmanager
def _mounted(folder: Path) -> Iterator[None]:
    mount = Mount(folder)
    try:
        mount.start()
        (mount.path / "@groups" / "g").mkdir()
        yield
    finally:
        mount.clean_up()


@pytest.mark.parametrize("mistake", mistakes("command"), ids=lambda mistake: mistake.meant)
def test_the_command_says_what_is_wrong(folder: Path, mistake: Mistake) -> None:
    """The command prints what the transcript shows, and changes no topic, record or file."""
    before = kept(folder)
    assert mistake.shown == command(folder, mistake.line)
    assert before == kept(folder)


@pytest.mark.fuse
@pytest.mark.parametrize("mistake", mistakes("mount"), ids=lambda mistake: mistake.meant)
def test_a_mount_refuses_with_the_right_error(mounted: Path, mistake: Mistake) -> None:
    """The shell prints what the transcript shows, and no topic, record or file changes."""
    before = kept(mounted)
    assert mistake.shown == in_a_mount(mounted, mistake.line)
    assert before == kept(mounted)


def write_again() -> None:
    """Write the present output into the transcripts."""
    for name, run in (("command", command), ("mount", in_a_mount)):
        with prepared() as folder:
            if name == "mount":
                with _mounted(folder):
                    _write(name, run, folder)
            else:
                _write(name, run, folder)


def _write(name: str, run: Callable[[Path, str], str], folder: Path) -> None:
    blocks = [f"# {one.meant}\n$ {one.line}\n{run(folder, one.line)}\n" for one in mistakes(name)]
    (TRANSCRIPTS / f"{name}.txt").write_text("\n".join(blocks))


if __name__ == "__main__":
    write_again()
