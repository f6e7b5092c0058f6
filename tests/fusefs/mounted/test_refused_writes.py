"""If a line fails inside a large write, the program gets an error, and no part of the line is stored.

The kernel sends a large write(2) in requests of 1 MiB, and drops the errors of all requests but the first; the
program then repeats the remaining data.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount, shell

pytestmark = pytest.mark.fuse

LIMIT = 1_048_588
"""The default of max.message.bytes."""

LENGTHS = [1_100_000, LIMIT, 1_048_576, 2_500_000, 5_000_000]
"""Lengths of lines that are too long: some end shortly after a request, others span several requests."""

FORMS = {
    "log": ("before", "after", "{}"),
    "log.kv": ("k\tbefore", "k\tafter", "{}\t"),
    "log.json": ('{{"payload":"before"}}', '{{"payload":"after"}}', '{{"payload":"{}"}}'),
}
"""For each file: a good line, another good line, and the format of a line with a long value."""

WRITERS = {
    "cat": "cat $BIG >> $LOG",
    "cat through a pipe": "set -o pipefail; cat $BIG | cat >> $LOG",
    "dd bs=4M": "dd if=$BIG of=$LOG bs=4M oflag=append conv=notrunc status=none",
    "dd bs=1M": "dd if=$BIG of=$LOG bs=1M oflag=append conv=notrunc status=none",
    "dd bs=512K": "dd if=$BIG of=$LOG bs=512K oflag=append conv=notrunc status=none",
    "dd bs=64K": "dd if=$BIG of=$LOG bs=64K oflag=append conv=notrunc status=none",
    "dd oflag=direct": "dd if=$BIG of=$LOG bs=4M oflag=append,direct conv=notrunc status=none",
    "dd oflag=dsync": "dd if=$BIG of=$LOG bs=4M oflag=append,dsync conv=notrunc status=none",
    "tee -a": "tee -a $LOG < $BIG > /dev/null",
    "python": 'python3 -c \'with open("\'$LOG\'", "ab") as f: f.write(open("\'$BIG\'", "rb").read())\'',
    "python text": 'python3 -c \'print(open("\'$BIG\'").read(), end="", file=open("\'$LOG\'", "a"), flush=True)\'',
    "python unbuffered": 'python3 -c \'f = open("\'$LOG\'", "ab", buffering=0); f.write(open("\'$BIG\'", "rb").read()); f.close()\'',
    "python unbuffered, goes on": 'python3 -c \'f = open("\'$LOG\'", "ab", buffering=0); f.write(open("\'$BIG\'", "rb").read()); f.write(b"next\\n")\'',
    "python line by line": 'python3 -c \'with open("\'$LOG\'", "ab") as f:\n for line in open("\'$BIG\'", "rb"): f.write(line)\'',
    "python writev": "python3 -c 'import os; os.writev(f := os.open(\"'$LOG'\", os.O_WRONLY | os.O_APPEND), open(\"'$BIG'\", \"rb\").readlines()); os.close(f)'",
    "bash printf": 'printf "%s\\n" "$(< $BIG)" >> $LOG',
    "bash echo": 'echo "$(< $BIG)" >> $LOG',
    "dash printf": 'dash -c \'printf "%s\\n" "$(cat $BIG)" >> $LOG\'',
    "dash echo": "dash -c 'echo \"$(cat $BIG)\" >> $LOG'",
    "awk": "awk 1 $BIG >> $LOG",
    "sed": "sed -n p $BIG >> $LOG",
    "perl": "perl -e 'print <> or die $!; close(STDOUT) or die $!' $BIG >> $LOG",
}
"""Programs that append to a file. They differ in how they check the results of write(2) and close(2)."""

OVERWRITERS = {
    "cp": "cp $BIG log",
    "cp --sparse=never": "cp --sparse=never --reflink=never $BIG log",
    "sendfile": "python3 -c 'import shutil; shutil.copyfile(\"'$BIG'\", \"log\")'",
    "install": "python3 -c 'import os; i = os.open(\"'$BIG'\", 0); o = os.open(\"log\", os.O_WRONLY | os.O_TRUNC)\nwhile os.sendfile(o, i, None, 1 << 24): pass'",
    "dd": "dd if=$BIG of=log bs=4M status=none",
}
"""Programs that open the file with O_TRUNC, which only `log` accepts."""


ELSEWHERE = {
    "cp of a sparse file": "cp $SPARSE log",
    "dd conv=sparse": "dd if=$SPARSE of=log bs=4k conv=sparse status=none",
    "python rewrites its header": 'python3 -c \'f = open("log", "w"); f.write("head\\n"); f.seek(0); f.write("HEAD\\n"); f.close()\'',
    "python w+ reads, then writes": 'python3 -c \'f = open("log", "wb+", 0); f.write(b"head\\n"); f.seek(0); f.read(2); f.write(b"HEAD\\n")\'',
    "pwrite": 'python3 -c \'import os; f = os.open("log", os.O_WRONLY | os.O_TRUNC); os.pwrite(f, b"a\\n", 0); os.pwrite(f, b"b\\n", 7)\'',
    "truncate": 'python3 -c \'f = open("log", "w"); f.write("head\\n"); f.truncate(9)\'',
}
"""Programs that open the file with O_TRUNC and do not write sequentially."""

AT_THE_END = {
    "cp of a sparse file with its holes": ("cp --sparse=never $SPARSE log", "head"),
    "make, which sets O_APPEND": (
        "echo old > log; printf 'all:\\n\\t@echo head\\n\\t@echo more\\n' | make -f - > log",
        "head",
    ),
    "a group of programs": ("{ echo head; bash -c 'echo more'; echo last; } > log", "head"),
    "truncate to what was written": (
        'python3 -c \'f = open("log", "w"); f.write("head\\n"); f.truncate()\'',
        "head",
    ),
}
"""Scripts that open the file with O_TRUNC and write sequentially, each with a line that the script writes."""


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """A file that consists of a line, a hole and another line."""
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.write(b"head\n")
        file.seek(100_000)
        file.write(b"\ntail\n")
    return path


@pytest.mark.parametrize("file", ["0/log", "log"])
@pytest.mark.parametrize("writer", ELSEWHERE)
def test_what_is_not_written_at_the_end_fails_the_program(topic: Path, sparse: Path, writer: str, file: str):
    """If a program does not write at the end, its write fails with EPERM, and no part of a line is stored."""
    script = ELSEWHERE[writer]

    result = shell("bash", script, (topic / file).parent, SPARSE=sparse)

    assert result.returncode != 0
    assert "not permitted" in result.stderr
    assert set(values(topic)) <= {"head", "a"}


@pytest.mark.parametrize("file", ["0/log", "log"])
@pytest.mark.parametrize("writer", AT_THE_END)
def test_what_is_written_at_the_end_is_taken(topic: Path, sparse: Path, writer: str, file: str):
    """If a program writes at the end, its write succeeds, whatever position the kernel passes."""
    script, expected = AT_THE_END[writer]

    result = shell("bash", script, (topic / file).parent, SPARSE=sparse)

    assert (0, "") == (result.returncode, result.stderr)
    assert expected in values(topic)


def lines_around(path: Path, length: int, name: str) -> list[str]:
    """Write a good line, a line that is too long, and a good line to a file; return the two good lines."""
    before, after, long_line = (part.replace("{{", "{").replace("}}", "}") for part in FORMS[name])
    path.write_text(f"{before}\n{long_line.replace('{}', 'x' * length)}\n{after}\n")
    return [before, after]


def values(topic: Path) -> list[str]:
    """Return the values of all records; long values are shortened, so that a failure is readable."""
    return [line[:20] for line in (topic / "0" / "log").read_text().splitlines()]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_line_too_long_fails_the_program_and_leaves_no_part(
    topic: Path, tmp_path: Path, writer: str, name: str
):
    """A line that is too long fails the program, however it writes, and no part of the line is stored."""
    lines_around(big := tmp_path / "big", LENGTHS[0], name)

    result = shell("bash", WRITERS[writer], topic / "0", BIG=big, LOG=name)

    assert result.returncode != 0
    assert set(values(topic)) <= {"before", "after"}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("writer", ["cat", "dd bs=4M", "python", "python unbuffered"])
def test_it_does_not_matter_where_the_line_is_cut(topic: Path, tmp_path: Path, writer: str, length: int):
    """A line that is too long fails the program wherever the boundaries of requests are in the line."""
    lines_around(big := tmp_path / "big", length, "log")

    result = shell("bash", WRITERS[writer], topic / "0", BIG=big, LOG="log")

    assert result.returncode != 0
    assert set(values(topic)) <= {"before", "after"}


@pytest.mark.parametrize("writer", OVERWRITERS)
def test_a_line_too_long_fails_programs_that_overwrite(topic: Path, tmp_path: Path, writer: str):
    """A line that is too long also fails `cp` and programs that make the kernel copy (sendfile, splice)."""
    lines_around(big := tmp_path / "big", LENGTHS[0], "log")

    result = shell("bash", OVERWRITERS[writer], topic / "0", BIG=big)

    assert result.returncode != 0
    assert set(values(topic)) <= {"before", "after"}


@pytest.mark.parametrize("writer", ["cat", "dd bs=4M", "python", "bash printf"])
def test_the_lines_of_a_group_around_one_that_is_refused_are_kept(topic: Path, tmp_path: Path, writer: str):
    """In a group of commands, the lines of other commands before and after a refused line are stored."""
    lines_around(big := tmp_path / "big", LENGTHS[0], "log")
    command = WRITERS[writer].replace(">> $LOG", "").replace("$LOG", "/dev/stdout")
    command = command.replace("'/dev/stdout'", "/dev/stdout")
    script = f"{{ echo first; {command}; echo $? > $STATUS; echo; echo last; }} >> log"

    shell("bash", script, topic / "0", BIG=big, LOG="/dev/stdout", STATUS=tmp_path / "status")

    assert (tmp_path / "status").read_text() != "0\n"
    kept = [value for value in values(topic) if value]
    assert "first" == kept[0]
    assert "last" == kept[-1]
    assert set(kept) <= {"first", "before", "after", "last"}


def test_a_bad_line_after_the_first_mebibyte_fails_the_program(topic: Path, tmp_path: Path):
    """A bad line after the first MiB of a write fails the program, although earlier requests succeeded."""
    good = '{"payload":"%s"}\n' % ("x" * 1000)
    (big := tmp_path / "big").write_text(good * 1500 + "bad\n" + good * 1500)

    result = shell("bash", WRITERS["dd bs=4M"], topic / "0", BIG=big, LOG="log.json")

    assert result.returncode != 0
    assert {"x" * 1000} == set((topic / "0" / "log").read_text().splitlines())


@pytest.mark.parametrize("writer", ["cat", "dd bs=4M", "python", "tee -a"])
def test_a_bad_batch_after_the_first_mebibyte_fails_the_program(topic: Path, tmp_path: Path, writer: str):
    """A bad batch after the first MiB of a write fails the program. Only batches before the bad batch are stored."""
    shell("bash", "for i in 1 2 3 4; do head -c 500000 /dev/zero | tr '\\0' x; echo; done > $F; while read -r l; do echo $l >> log; done < $F", topic / "0", F=tmp_path / "lines")  # fmt: skip
    batches = bytearray((topic / "0" / "log.batch").read_bytes())
    batches[1_300_000] ^= 1
    (bad := tmp_path / "bad").write_bytes(batches)
    (copy := topic.with_name(f"{topic.name}-copy")).mkdir()

    result = shell("bash", WRITERS[writer], copy / "0", BIG=bad, LOG="log.batch")

    assert result.returncode != 0
    assert [len(line) for line in (copy / "0" / "log").read_text().splitlines()] in ([500_000] * 2, [])


def write_on(descriptor: int) -> None:
    """Write until a write fails, because with acks=0 a later write gets the error."""
    while True:
        os.write(descriptor, b"rest\n")


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("end", ["close", "umount"])
def test_a_line_that_found_no_room_in_the_middle_leaves_nothing(unmounted: Mount, acks: str, end: str):
    """If a write fails inside a line, the first part of the line is not stored when the file or the mount is closed."""
    mount = unmounted.start(acks=acks)
    mount.bash("mkdir a; echo before >> a/0/log")
    descriptor = os.open(mount.path / "a/0/log", os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, b"whole\nbegun ")
    wait_until(lambda: (mount.path / "a/0/log").read_text() == "before\nwhole\n", "the line is in the log")
    mount.faults.write_text("pwrite .log ENOSPC\n")
    with pytest.raises(OSError, match="No space left"):
        write_on(descriptor)
    mount.faults.unlink()
    if end == "close":
        os.close(descriptor)
    mount.stop()
    mount.start()

    assert "before\nwhole\n" == (mount.path / "a/0/log").read_text()


def test_a_writable_mapping_is_refused(topic: Path):
    """A writable mapping is refused, because writes through mmap(2) could not report errors."""
    shell("bash", "echo x >> log", topic / "0")
    script = "import mmap; f = open('log', 'a+b'); f.seek(0); f.read(); mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)"

    result = shell("bash", f'python3 -c "{script}"', topic / "0")

    assert result.returncode != 0
    assert "No such device" in result.stderr


def test_many_small_writes_through_a_pipe_are_whole_lines(topic: Path):
    """Short lines and lines longer than a pipe's buffer are stored whole, however the pipe cuts them."""
    script = "for i in $(seq 3000); do echo line-$i; done | cat >> log; for i in 1 2 3; do head -c 200000 /dev/zero | tr '\\0' $i; echo; done | cat >> log"

    result = shell("bash", script, topic / "0")

    assert (0, "") == (result.returncode, result.stderr)
    expected = [f"line-{i}" for i in range(1, 3001)] + [str(i) * 200_000 for i in (1, 2, 3)]
    assert (topic / "0" / "log").read_text().splitlines() == expected


def test_a_writer_that_is_killed_in_the_middle_of_a_line_leaves_the_begun_part_whole(topic: Path):
    """If a writer is killed inside a line, the part of the line that write(2) accepted is stored as a line."""
    script = "import os, signal; f = os.open('log', os.O_WRONLY | os.O_APPEND); os.write(f, b'begun'); os.kill(os.getpid(), signal.SIGKILL)"

    result = shell("bash", f'python3 -c "{script}"', topic / "0")

    assert result.returncode == -signal.SIGKILL
    wait_until(lambda: values(topic), "the kernel has closed the file")
    assert ["begun"] == values(topic)
