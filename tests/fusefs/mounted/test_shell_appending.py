"""Appending from shells: partial lines, many writers, refused editors, and crashes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest

from testing.processes import started
from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount, shell

pytestmark = pytest.mark.fuse

SNIPPETS = {
    "a group that runs another program": '{ printf "a "; date | tr -d "\\n" >/dev/null; echo b; } >> log',
    "a group whose child writes": '{ printf "a "; printf "x " | cat; echo b; } >> log',
    "a subshell": '( printf "a "; /bin/true; echo b ) >> log',
    "a descriptor that is kept": 'exec 3>>log; printf "a " >&3; /bin/true; ls >/dev/null; echo b >&3; exec 3>&-',
    "a child with the descriptor": 'exec 3>>log; printf "a " >&3; (echo b >&3); exec 3>&-',
    "a background child": 'exec 3>>log; printf "a " >&3; (sleep 0.05; echo b >&3) & wait; exec 3>&-',
}
"""Scripts that write one line in several writes, and close duplicates of the descriptor between the writes."""


@pytest.mark.parametrize("interpreter", ["bash", "dash"])
@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_line_written_in_pieces_is_one_record(topic: Path, interpreter: str, snippet: str):
    """Closing a duplicate of a descriptor, even when a child ends, does not end the line."""
    result = shell(interpreter, SNIPPETS[snippet], topic / "0")

    assert "" == result.stderr
    lines = (topic / "0" / "log").read_text().splitlines()
    assert 1 == len(lines), lines
    assert lines[0].startswith("a ")
    assert lines[0].endswith("b")


@pytest.mark.parametrize("interpreter", ["bash", "dash"])
def test_a_line_without_newline_is_a_record_once_closed(topic: Path, interpreter: str):
    """`printf x >> log`, run twice, makes two records, because each open file is a separate stream."""
    shell(
        interpreter,
        "printf x >> log; printf y >> log; cat log > seen 2>/dev/null; echo z >> log",
        topic / "0",
    )

    assert "x\ny\nz\n" == (topic / "0" / "log").read_text()


def test_the_next_command_sees_the_record(topic: Path):
    """The next command of a shell sees the record that the previous command has appended."""
    result = shell(
        "bash",
        'for i in $(seq 200); do printf $i >> log; [ "$(tail -n 1 log)" = $i ] || echo lost $i; done',
        topic / "0",
    )

    assert "" == result.stdout


def test_four_shells_append_at_once(topic: Path):
    """If four shells append ten thousand lines at the same time, each line is stored once, in its shell's order."""
    script = 'for ((i = 0; i < 2500; i++)); do echo "$WHO $i $PAD" >> log; done'
    writers = [
        subprocess.Popen(
            ["bash", "-c", script],
            cwd=topic / "0",
            env={**os.environ, "WHO": str(who), "PAD": "x" * who * 20},
        )
        for who in range(4)
    ]
    assert [0] * 4 == [writer.wait(240) for writer in writers]

    lines = (topic / "0" / "log").read_text().splitlines()
    assert 10_000 == len(lines)
    for who in range(4):
        own = [line for line in lines if line.startswith(f"{who} ")]
        assert own == [f"{who} {i} {'x' * who * 20}" for i in range(2_500)]


def test_writers_that_hold_their_file_never_interleave_inside_a_record(topic: Path):
    """If writers cut their lines anywhere, their data is never mixed within a record."""
    script = "import sys\nf = open('log', 'ab', buffering=97)\nfor n in range(3000): f.write(b'%s %d %s\\n' % (sys.argv[1].encode(), n, b'y' * (n % 150)))"
    writers = [subprocess.Popen(["python3", "-c", script, who], cwd=topic / "0") for who in "abc"]
    assert [0] * 3 == [writer.wait(120) for writer in writers]

    lines = (topic / "0" / "log").read_text().splitlines()
    expected = [f"{who} {n} {'y' * (n % 150)}" for who in "abc" for n in range(3000)]
    assert sorted(lines) == sorted(expected)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("vim -es -u NONE -c '%s/a/X/' -c wq log", id="vim"),
        pytest.param("vim -es -u NONE -c '%s/a/X/' -c wq! log", id="vim!"),
        pytest.param("sort -r -o log log", id="sort -o"),
        pytest.param("sed -i s/a/X/ log", id="sed -i"),
        pytest.param("perl -pi -e s/a/X/ log", id="perl -pi"),
        pytest.param("mv /etc/hostname log", id="mv over"),
        pytest.param("mv log.kv log", id="mv of its own"),
        pytest.param("rm -rf ../0", id="rm -rf"),
        pytest.param("ln -sf /etc/hostname log", id="ln -sf"),
        pytest.param("python3 -c 'import os; os.truncate(\"log\", 0)'", id="truncate(2)"),
        pytest.param('python3 -c \'open("log", "a").truncate(0)\'', id="ftruncate(2)"),
        pytest.param("echo X > new", id="new file"),
        pytest.param("echo X > 0", id="a record"),
        pytest.param("echo 1 >> start", id="start"),
        pytest.param("echo X >> segments/00000000000000000000.log", id="segment"),
        pytest.param("rm segments/*.log", id="rm segment"),
        pytest.param("setfattr -n user.kafka.key -v x 0", id="setfattr"),
    ],
)
def test_editors_rewriters_and_renames_are_refused(topic: Path, command: str):
    """Editors, programs that rewrite files, and renames are refused, and nothing changes."""
    log = topic / "0" / "log"
    log.write_text("a\nb\na\n")
    names = sorted(path.name for path in log.parent.iterdir())

    result = shell("bash", command, topic / "0")

    assert result.returncode != 0 or "not permitted" in result.stderr, result
    assert "a\nb\na\n" == log.read_text()
    assert names == sorted(path.name for path in log.parent.iterdir())


@pytest.mark.parametrize("command", ["touch log", "touch -d 2001-01-01 log", ": > log", ": >> log"])
def test_setting_times_and_truncating_at_open_have_no_effect(topic: Path, command: str):
    """Setting times and truncating at open(2) succeed but have no effect."""
    log = topic / "0" / "log"
    log.write_text("a\n")

    result = shell("bash", command, topic / "0")

    assert (0, "") == (result.returncode, result.stderr)
    assert "a\n" == log.read_text()


def test_ftruncate_to_nothing_is_taken_of_a_file_that_was_just_overwritten(topic: Path):
    """After an open with `>`, ftruncate(2) to 0 succeeds until the program has written data."""
    log = topic / "0" / "log"
    log.write_text("a\n")
    with log.open("wb", buffering=0) as file:
        file.truncate(0)
        file.write(b"b\n")
        with pytest.raises(PermissionError):
            file.truncate(0)

    assert "a\nb\n" == log.read_text()


def test_a_synchronous_descriptor_is_on_disk_when_write_returns(topic: Path):
    """With O_DSYNC (`dd oflag=dsync`), records are on disk when write(2) returns."""
    shell("bash", "seq 100 | dd of=log oflag=append,dsync conv=notrunc bs=64k status=none", topic / "0")

    assert "unflushed_records 0\n" in (topic / "0" / "status").read_text()


def test_fsync_puts_records_on_disk(topic: Path):
    """fsync(2) puts all records on disk, including a line without a newline."""
    with (topic / "0" / "log").open("a") as file:
        file.write("a\nb\nc")
        file.flush()
        os.fsync(file.fileno())
        assert "unflushed_records 0\n" in (topic / "0" / "status").read_text()

    assert "a\nb\nc\n" == (topic / "0" / "log").read_text()


@pytest.mark.parametrize("name", ["0/log", "0/log.kv", "log"])
def test_sync_of_a_file_puts_records_on_disk(topic: Path, name: str):
    """sync(1), which opens the file for reading, flushes records that other programs appended."""
    result = shell("bash", 'echo a >> 0/log; sync "$NAME"; grep unflushed 0/status', topic, NAME=name)
    assert ("unflushed_records 0\n", "") == (result.stdout, result.stderr)


def test_kill_9_during_a_bulk_append_loses_nothing_that_was_written(unmounted: Mount):
    """After kill -9 of the daemon, each line whose write(2) returned is stored, and the log ends with a whole batch."""
    mount = unmounted.start()
    (mount.path / "bulk").mkdir()
    script = (
        "import sys\nn = 0\nf = open('bulk/0/log', 'ab', buffering=0)\nwhile True:\n"
        "    f.write(b''.join(b'%09d %s\\n' % (k, b'z' * (k % 97)) for k in range(n, n + 500)))\n"
        "    n += 500\n    print(n, flush=True)"
    )
    command = ["python3", "-c", script]
    with started(
        command, cwd=mount.path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as writer:
        while int(writer.stdout.readline()) < 20_000:
            pass
        mount.kill()
        returned = [int(line) for line in writer.stdout.read().split()]

    again = mount.start()
    lines = (again.path / "bulk" / "0" / "log").read_text().splitlines()
    expected = [f"{k:09d} {'z' * (k % 97)}" for k in range(len(lines))]
    assert lines == expected
    assert 0 == len(lines) % 500
    assert len(lines) >= max([20_000, *returned])


def test_a_dead_mountpoint_is_replaced_and_reported(unmounted: Mount):
    """After kill -9, the next mount replaces the dead mountpoint, and reports this."""
    mount = unmounted.start()
    mount.kill()
    with pytest.raises(OSError) as caught:
        mount.path.stat()
    assert caught.value.errno == errno.ENOTCONN

    mount.start()

    assert "taken over" in mount.said.read_text()
    assert mount.path.joinpath("@status").exists()


def test_sigterm_commits_a_begun_line(mount: Mount):
    """When the mount ends, an unfinished line becomes a record; later calls on its file give ENOTCONN."""
    mount.bash("mkdir a")
    descriptor = os.open(mount.path / "a/0/log", os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, b"begun")

    mount.stop()
    mount.start()

    assert "begun\n" == (mount.path / "a/0/log").read_text()
    for call in (lambda: os.write(descriptor, b"too late\n"), lambda: os.close(descriptor)):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.ENOTCONN


def test_sigusr1_dumps_stacks(mount: Mount):
    """SIGUSR1 writes the stacks of all tasks and threads to the log, and the daemon continues."""
    os.kill(mount.pid, signal.SIGUSR1)

    wait_until(lambda: "stacks of all threads" in mount.log, "the daemon writes the stacks")
    assert mount.status  # The event loop answers this after it has written all stacks.
    for word in ("task", "thread", "_watch_signals"):
        assert word in mount.log
    mount.log_file.write_text("")  # Stacks look like tracebacks, which would fail the test.
