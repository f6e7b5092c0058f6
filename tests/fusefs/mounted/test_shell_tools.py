"""Ordinary programs on a real mount: cat, tail, dd, cp, grep, and programs that seek or map."""

from __future__ import annotations

import mmap
import os
import subprocess
from pathlib import Path

import pytest

from testing.processes import started
from tests.doubles.forks import COMMAND, FORKS
from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount, shell

pytestmark = pytest.mark.fuse

LINES = 20_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text file of some MB, with empty lines and lines of various lengths."""
    path = tmp_path_factory.mktemp("source") / "text"
    path.write_text(
        "".join(f"line {n} {'x' * (n % 17 * (n % 23))}\n" if n % 11 else "\n" for n in range(LINES))
    )
    return path


@pytest.fixture(scope="module")
def text(shared_mount: Mount, source: Path) -> Path:
    """A topic that has the lines of `source`.

    The log was read once, because over a cluster the size of an unread log is unknown.
    """
    topic = shared_mount.path / "text"
    topic.mkdir()
    assert 0 == shared_mount.bash('cat "$SOURCE" >> text/0/log', SOURCE=source).returncode
    assert (topic / "0" / "log").read_bytes() == source.read_bytes()
    return topic / "0"


def run(script: str, cwd: Path, **names: object) -> str:
    """Return the output of a script, which must succeed and print no errors."""
    result = shell("bash", f"set -o pipefail; {script}", cwd, **names)
    assert (0, "") == (result.returncode, result.stderr), result
    return result.stdout


def test_a_log_has_the_bytes_of_the_appended_file(text: Path, source: Path):
    """A log has the same bytes and the same size as the file that was appended."""
    assert run('cmp log "$SOURCE"; stat -c %s log', text, SOURCE=source) == f"{source.stat().st_size}\n"


@pytest.mark.parametrize(
    "command",
    [
        "wc -l < FILE",
        "wc -c FILE | cut -d' ' -f1",
        "tail -n 5 FILE",
        "tail -c 1234 FILE",
        "tail -n +19990 FILE",
        "head -c 5000 FILE | md5sum",
        "head -n 7 FILE",
        "grep -c 'line 1' FILE",
        "grep -n 'line 4321 ' FILE",
        "dd if=FILE bs=1000 skip=123 count=2 status=none | md5sum",
        "dd if=FILE bs=7 skip=10001 count=3 status=none",
        "dd if=FILE iflag=direct bs=4096 skip=3 count=2 status=none | md5sum",
        "sed -n '4000,4003p' FILE",
        "sort FILE | md5sum",
        "tac FILE | md5sum",
        "split -n l/3/5 FILE | md5sum",
        "awk 'END {print NR}' FILE",
        'python3 -c \'import sys; f = open("FILE", "rb"); f.seek(-100, 2); sys.stdout.buffer.write(f.read())\'',
        "python3 -c 'f = open(\"FILE\"); print(sum(1 for line in f))'",
        'python3 -c \'import mmap; f = open("FILE"); print(mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ).find(b"line 99 "))\'',
        "less FILE | md5sum",
        "md5sum < FILE",
    ],
)
def test_tools_say_the_same_of_the_log_as_of_the_file(text: Path, source: Path, command: str):
    """Each tool prints the same for the log as for the file, whether it reads from the front or the end, or seeks."""
    assert run(command.replace("FILE", "log"), text) == run(
        command.replace("FILE", source.name), source.parent
    )


def test_cp_copies_a_log_out_and_into_another_topic(text: Path, source: Path, topic: Path, tmp_path: Path):
    """`cp` copies a log to a file, and into another topic."""
    run('cp log "$TO/plain"; cp log "$TOPIC/0/log"', text, TO=tmp_path, TOPIC=topic)

    assert (tmp_path / "plain").read_bytes() == source.read_bytes()
    assert (topic / "0" / "log").read_bytes() == source.read_bytes()


def test_copying_a_topic_into_another_brings_each_record_once(mount: Mount):
    """`cp -r` of a topic stores each record once, because `log` accepts O_TRUNC but `log.kv` and `log.json` do not."""
    mount.bash("mkdir a b; seq 100 >> a/0/log; cp -r a/. b")

    assert (mount.path / "b" / "0" / "log").read_text() == "".join(f"{n}\n" for n in range(1, 101))


def test_tail_f_follows_a_whole_topic(mount: Mount):
    """`tail -f` of a topic's log shows each line once, whatever partition the line is in."""
    mount.bash("mkdir a a/2; echo before >> a/0/log")

    with started(
        ["tail", "-s", "0.05", "-n", "+1", "-f", "a/log"], cwd=mount.path, stdout=subprocess.PIPE
    ) as tail:
        for number, line in enumerate((b"before\n", b"one\n", b"two\n", b"three\n")):
            assert line == tail.stdout.readline()
            mount.bash(f"echo {['one', 'two', 'three', 'last'][number]} >> a/{number % 3}/log")


@pytest.mark.parametrize(
    ("option", "pattern"),
    [
        ("--print-data-log", "*.log"),
        ("--verify-index-only", "*.index"),
    ],
)
def test_segments_are_dumped_through_the_mount(mount: Mount, option: str, pattern: str):
    """`topicfs dump`, which maps files, prints the same for a segment in the mount as in the data directory."""
    mount.bash("mkdir a; seq 100000 >> a/0/log")
    through, real = mount.path / "a" / "0" / "segments", mount.data / "a-0"
    dumped = FORKS.run(COMMAND, "dump", option, *map(str, sorted(through.glob(pattern))))
    expected = FORKS.run(COMMAND, "dump", option, *map(str, sorted(real.glob(pattern))))
    assert (0, b"") == (dumped.status, dumped.errors)
    assert expected.output == dumped.output.replace(bytes(through), bytes(real))
    assert dumped.output


def test_a_python_program_appends_and_seeks(topic: Path):
    """Python's modes a, w, a+ and unbuffered writes work on a log."""
    log = topic / "0" / "log"
    with log.open("a") as file:
        file.write("a\nb\n")
    with log.open("w") as file:
        file.write("c\n")
    with log.open("a+") as file:
        file.write("d\n")
        file.seek(2)
        assert "b\nc\nd\n" == file.read()
    with log.open("ab", buffering=0) as file:
        file.write(b"e")
        file.write(b"f\n")

    assert "a\nb\nc\nd\nef\n" == log.read_text()


def test_a_closed_range_can_be_mapped_shared(text: Path, source: Path):
    """A closed range can be mapped with MAP_SHARED, because it never changes."""
    path = text / f"0-{LINES - 1}"
    assert path.read_bytes() == source.read_bytes()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == source.read_bytes()


@pytest.mark.parametrize("writer", ["echo x > log", "ls -l . > /dev/null; echo x >> log"])
def test_readers_never_see_the_end_too_early(topic: Path, writer: str):
    """Readers read to the end while another program opens the file with O_TRUNC (`>`) or lists the directory."""
    log = topic / "0" / "log"
    log.write_bytes(b"".join(b"%d\n" % n for n in range(100_000)))
    size = len(log.read_bytes())
    with started(["bash", "-c", f"while :; do {writer}; done"], cwd=log.parent):
        wait_until(lambda: len(log.read_bytes()) > size, "the writer appends")
        seen = [len(log.read_bytes()) for _ in range(200)]

    assert seen[0] > size
    assert seen == sorted(seen)


def test_two_mounted_views_of_one_file_see_each_append(topic: Path):
    """A reader that has a file open sees each append immediately, despite the kernel's cache."""
    log = topic / "0" / "log"
    with log.open("rb") as reader:
        seen = b""
        for number in range(300):
            with log.open("ab", buffering=0) as writer:
                writer.write(b"%d\n" % number)
            assert os.fstat(reader.fileno()).st_size == len(seen) + len(b"%d\n" % number)
            seen += reader.read()

    assert seen == b"".join(b"%d\n" % number for number in range(300))
