"""Following from shells: how soon a record is shown, how waiting programs end, and how many may wait."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from tests.fusefs.mounted.conftest import Mount, running, status

pytestmark = pytest.mark.fuse


piped = partial(running, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def followed(process: subprocess.Popen[bytes]) -> int:
    """Return the number of descriptors of a `follow` that the processes of a script have open."""
    found = 0
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if (one / "stat").read_text().rpartition(") ")[2].split()[3] == str(process.pid):
                found += sum("/follow" in os.readlink(link) for link in (one / "fd").iterdir())
    return found


def wait_for(mount: Mount, *processes: subprocess.Popen[bytes], count: int = 1) -> None:
    """Wait until `count` reads of each script wait for a record.

    Over a cluster, open(2) also waits for a while before the read begins to wait.
    """
    wait_until(
        lambda: (
            int(mount.shown("waiting_reads")) == count * len(processes)
            and all(followed(one) >= count for one in processes)
        ),
        "the reads of all scripts wait",
    )


def append(partition: Path, text: str) -> None:
    with (partition / "log").open("a") as log:
        log.write(text)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("follow", b"v\n"), ("follow.kv", b"k\tv\n"), ("follow.json", b'"key":"k","payload":"v"}\n')],
)
@pytest.mark.parametrize("place", [".", ".."], ids=["partition", "topic"])
def test_follow_in_three_forms(topic: Path, shared_mount: Mount, place: str, name: str, expected: bytes):
    """`follow` of a partition or topic works in three forms."""
    with piped(f"cat {place}/{name}", topic / "0") as cat:
        wait_for(shared_mount, cat)
        with (topic / "0" / "log.kv").open("a") as log:
            log.write("k\tv\n")
        assert cat.stdout.readline().endswith(expected)


def test_a_topics_follow_takes_new_partitions_in(topic: Path, shared_mount: Mount):
    """`follow` of a topic shows the records of a new partition, beginning with the first one."""
    with piped("cat follow", topic) as cat:
        wait_for(shared_mount, cat)
        (topic / "2").mkdir()
        append(topic / "2", "from 2\n")
        append(topic / "1", "from 1\n")
        append(topic / "0", "from 0\n")
        assert [b"from 0\n", b"from 1\n", b"from 2\n"] == sorted(cat.stdout.readline() for _ in range(3))


READERS = {
    "cat": "exec cat follow",
    "cat | grep": "cat follow | grep x",
    "cat | jq": "cat follow.json | jq .",
    "grep": "exec grep --line-buffered x follow",
    "jq": "exec jq . follow.json",
    "awk": "exec awk '{print}' follow",
    "head": "exec head -n 3 follow",
    "sed -u": "exec sed -u s/a/b/ follow",
    "tail -f": "exec tail -f follow",
    "python": "exec python3 -c 'import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); open(\"follow\").read()'",
    "bash read": "while read -r line; do echo $line; done < follow",
    "inherited": "exec 3< follow; cat <&3",
    "inherited twice": "exec 3< follow; (cat <&3; true)",
}


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["Ctrl-C", "TERM", "KILL"]
)
@pytest.mark.parametrize("reader", READERS)
def test_a_signal_ends_a_waiting_program(
    topic: Path, shared_mount: Mount, reader: str, number: signal.Signals
):
    """A signal ends a waiting program immediately, and the program prints no error message."""
    with piped(READERS[reader], topic / "0") as process:
        wait_for(shared_mount, process)
        os.killpg(process.pid, number)
        process.wait(TIMEOUT_SECONDS)
        os.set_blocking(process.stderr.fileno(), False)
        assert b"nterrupted" not in (process.stderr.read() or b"")
    wait_until(lambda: shared_mount.shown("waiting_reads") == "0", "no read waits")


@pytest.mark.parametrize("reader", ["sed -u", "bash read"])
def test_readers_that_ask_for_one_byte_at_a_time_lose_nothing(topic: Path, shared_mount: Mount, reader: str):
    """Readers that ask for one byte at a time lose no data."""
    with piped(READERS[reader], topic / "0") as process:
        wait_for(shared_mount, process)
        append(topic / "0", "one\ntwo\nthree\n")
        assert [b"one\n", b"two\n", b"three\n"] == [process.stdout.readline() for _ in range(3)]


@pytest.mark.parametrize(
    "script", ["head -n 1; cat", "read -r line; echo $line; cat", "grep -m 1 o; cat", "sed -u q; cat"]
)
def test_a_program_leaves_the_rest_to_the_next_one(topic: Path, shared_mount: Mount, script: str):
    """If a program reads too much and seeks back, as `head` and bash's `read` do, the next program gets that data."""
    with piped(f"{{ {script}; }} < follow", topic / "0") as process:
        wait_for(shared_mount, process)
        append(topic / "0", "one\ntwo\nthree\n")
        assert [b"one\n", b"two\n", b"three\n"] == [process.stdout.readline() for _ in range(3)]
        os.killpg(process.pid, signal.SIGINT)
        process.wait(TIMEOUT_SECONDS)
        assert b"" == process.stderr.read()


def test_two_hundred_waiting_readers_and_a_working_ls(topic: Path, shared_mount: Mount):
    """While two hundred readers wait, other requests are answered, and one append reaches all readers."""
    script = "for i in $(seq 200); do head -n 1 follow > /dev/null & done; wait"
    with piped(script, topic / "0") as readers:
        wait_for(shared_mount, readers, count=200)
        assert "" == shared_mount.bash("ls -l > /dev/null; ls */0; stat . > /dev/null").stderr
        append(topic / "0", "now\n")
        readers.wait(TIMEOUT_SECONDS)
    wait_until(lambda: shared_mount.shown("waiting_reads") == "0", "no read waits")


def test_more_waiting_readers_than_the_bound_are_refused(unmounted: Mount):
    """A read beyond the limit of waiting reads fails with EMFILE, and `@status` has the reason."""
    mount = unmounted.start(max_waiting=2)
    mount.bash("mkdir a")
    with piped("cat follow & cat follow & wait", mount.path / "a/0") as both:
        wait_for(mount, both, count=2)
        descriptor = os.open(mount.path / "a/0/follow", os.O_RDONLY)
        with pytest.raises(OSError) as caught:
            os.read(descriptor, 10)
        os.close(descriptor)

    assert caught.value.errno == errno.EMFILE
    assert "maximum of 2 waiting reads" in mount.status


def test_deleting_the_topic_ends_its_followers(topic: Path, shared_mount: Mount):
    """When the topic is deleted, programs that read its `follow` get ESTALE."""
    with (
        piped("exec cat follow", topic / "0") as of_partition,
        piped("exec cat follow", topic) as of_topic,
    ):
        wait_for(shared_mount, of_partition, of_topic)
        topic.rmdir()
        for process in (of_partition, of_topic):
            assert 1 == process.wait(TIMEOUT_SECONDS)
            assert b"Stale file handle" in process.stderr.read()


def test_unmounting_ends_followers(mount: Mount):
    """SIGTERM ends a mount without waiting for programs that read `follow`."""
    mount.bash("mkdir a")
    with piped("exec cat a/0/follow", mount.path) as cat:
        wait_for(mount, cat)
        assert 0 == mount.stop()
        assert 1 == cat.wait(TIMEOUT_SECONDS)


def numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


@pytest.mark.parametrize("option", ["-f", "-F"])
@pytest.mark.parametrize("removal", [False, True], ids=["roll", "retention"])
def test_tail_neither_repeats_nor_loses_a_line(unmounted: Mount, tmp_path: Path, option: str, removal: bool):
    """`tail -f` shows each line once, even if segments roll and retention deletes lines that tail has read."""
    config = {
        "log_start_offset_interval_ms": 50,
        "retention_check_interval_ms": 50,
        "initial_task_delay_ms": 0,
    }
    mount = unmounted.start(engine=config)
    mount.bash(
        "mkdir a; echo internal.segment.bytes=20000 >> a/config; echo file.delete.delay.ms=0 >> a/config"
    )
    if removal:
        mount.bash("echo retention.bytes=60000 >> a/config")
    log = mount.path / "a/0/log"
    log.write_text("0\n")
    seen = tmp_path / "seen"
    with seen.open("wb") as output:
        tail = subprocess.Popen(["tail", "-n", "+1", "-s", "0.02", option, str(log)], stdout=output)
        try:
            total = 30_000
            for start in range(1, total, 500):
                with log.open("a") as writer:
                    writer.write("".join(f"{n}\n" for n in range(start, start + 500)))
                wait_until(
                    lambda start=start: seen.read_bytes().endswith(b"\n%d\n" % (start + 499)),
                    "tail has shown the last line",
                )
        finally:
            tail.terminate()
            tail.wait(TIMEOUT_SECONDS)

    assert numbers(seen) == list(range(total + 1))
    assert int(status(log.parent)["segments"]) > 1
    if removal:
        wait_until(lambda: int(status(log.parent)["log_start_offset"]) > 0, "retention has deleted segments")
    else:
        assert "0" == status(log.parent)["log_start_offset"]
