"""Queues from shells: records are held one by one, released when their holder dies, and finally rejected."""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.forks import COMMAND, FORKS, Forked
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from tests.fusefs.mounted.conftest import Mount, status

pytestmark = pytest.mark.fuse


def queue_status(mount: Mount) -> dict[str, str]:
    return status(mount.path / "@queues/q")


TAKERS = """
mkfifo $fifo; mkdir orders
for queue in 1 2 3 4 5 6; do
    mkdir @queues/$queue; seq 30 >> orders/0/log
    for taker in $(seq 30); do
        { : < $fifo; exec 3<> @queues/$queue/orders/take && read -r job <&3 && echo accept >&3 && echo $queue >> $done; } &
    done
    exec 4> $fifo; wait; exec 4>&-
done
"""


def test_takers_that_start_together_each_get_a_record(mount: Mount):
    """Thirty shells that open a new queue at the same time get one record each."""
    done = mount.base / "done"
    ran = mount.bash(TAKERS, fifo=mount.base / "fifo", done=done)

    assert "" == ran.stderr
    assert dict.fromkeys("123456", 30) == collections.Counter(done.read_text().split())


def work_words(mount: Mount, script: str, *options: str) -> tuple[str, ...]:
    """Return a command line of `topicfs work` that runs a shell script for each record of `orders`."""
    return ("work", "q", "orders", "--data", str(mount.data), *options, "--", "sh", "-c", script)


def test_workers_that_start_together_make_one_queue(mount: Mount):
    """Workers that start at the same time share one queue, and the command runs once for each record."""
    done = mount.base / "done"
    mount.bash("mkdir orders; seq 20 > orders/0/log")
    script = f"echo $(cat) >> {done}"
    words = work_words(mount, script, "--jobs", "2", "--drain")
    files = [(mount.base / f"errors{number}").open("w+b") for number in range(5)]
    workers = [FORKS.start(COMMAND, *words, files=(None, None, file.fileno())) for file in files]

    assert [0] * 5 == [worker.wait(TIMEOUT_SECONDS) for worker in workers]
    assert [b""] * 5 == [Path(file.name).read_bytes() for file in files]
    assert sorted(map(str, range(1, 21))) == sorted(done.read_text().split())
    for file in files:
        file.close()


def test_a_holder_that_dies_gives_back_at_once(mount: Mount):
    """If the process that holds a record dies, the record is released before its lease ends.

    `rm` of the record's file accepts the record, and `mv` of the file releases the record.
    """
    mount.bash("mkdir orders @queues/q; seq 3 > orders/0/log")
    holder = subprocess.Popen(
        [
            "bash",
            "-c",
            "exec 3<> @queues/q/orders/take; for n in 1 2 3; do IFS= read -r job <&3; done; sleep 100 3>&-",
        ],
        cwd=mount.path,
        start_new_session=True,
    )
    try:
        wait_until(lambda: queue_status(mount).get("in_flight") == "3", "the shell holds three records")
        ran = mount.bash(
            "cd @queues/q/orders/in-flight && ls && cat orders-0-1 && rm orders-0-0 && mv orders-0-1 .. && ls"
        )
        assert ["orders-0-0", "orders-0-1", "orders-0-2", "2orders-0-2"] == ran.stdout.split(), ran.stderr
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait(TIMEOUT_SECONDS)
    wait_until(lambda: queue_status(mount)["in_flight"] == "0", "the records are released")
    again = mount.bash("exec 3<> @queues/q/orders/take; head -c 2 <&3; head -c 2 <&3")

    assert {"2", "3"} == set(again.stdout.split())


def groups(mount: Mount, *words: str) -> str:
    """Return the output of `topicfs groups`, run while the daemon owns the directory."""
    ended = FORKS.run(COMMAND, "groups", *words, "--data", str(mount.data))
    assert b"" == ended.errors
    return ended.output.decode()


def refusal(mount: Mount, *words: str) -> str:
    """Return the error of a command that must fail, run while the daemon owns the directory."""
    ended = FORKS.run(COMMAND, *words, "--data", str(mount.data))
    assert 1 == ended.status
    return ended.errors.decode()


def test_the_commands_for_groups_know_queues_beside_a_daemon(unmounted: Mount):
    """While a daemon runs, `topicfs groups` lists and describes queues, and deletes a queue without members."""
    mount = unmounted.start(allow_delete=True)
    mount.bash(
        "mkdir orders @groups/g @queues/q @queues/fresh; seq 5 > orders/0/log; cat @groups/g/orders/drain"
    )
    with (mount.path / "@queues/q/orders/take").open("rb+", buffering=0) as take:
        for word in (b"accept\n", b"accept\n"):
            take.read(100)
            take.write(word)
        take.read(100)
        listed = json.loads(groups(mount, "list", "--json"))
        (found,) = json.loads(groups(mount, "describe", "q", "--json"))
        rows = groups(mount, "describe", "q", "--members").splitlines()
        assert "q: has members" in refusal(mount, "groups", "delete", "q")

    assert [("g", "consumer"), ("fresh", "share"), ("q", "share")] == [
        (one["group"], one["type"]) for one in listed
    ]
    assert ("share", "Stable", 3, [["orders"]]) == (
        found["type"],
        found["state"],
        found["lag"],
        [one["topics"] for one in found["members"]],
    )
    assert [
        {"topic": "orders", "partition": 0, "position": 2, "end_offset": 5, "lag": 3, "committed_by": ""}
    ] == (found["positions"])
    assert [str(os.getpid()), "0", "orders"] == rows[1].split()[-3:]
    assert "q: deleted\n" == groups(mount, "delete", "q")
    assert ["fresh"] == os.listdir(mount.path / "@queues")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            "groups reset q --all-topics --to-earliest",
            "a queue can only be reset while no daemon owns the directory",
        ),
        ("groups delete q --topic orders", "a queue is deleted as a whole"),
        ("groups delete q", "without --allow-delete"),
        ("cat orders/log --group q", "q: is a queue; `topicfs work` takes its records"),
        ("work g orders true", "g: is a consumer group; choose another name for the queue"),
    ],
)
def test_a_command_for_the_wrong_kind_is_refused_while_a_daemon_runs(mount: Mount, words: str, reason: str):
    """Commands for consumer groups refuse a queue, and `work` refuses a group, with the reason. Nothing changes."""
    mount.bash("mkdir orders @groups/g; seq 3 > orders/0/log; cat @groups/g/orders/drain")
    mount.bash("mkdir @queues/q; exec 3<> @queues/q/orders/take; read -r job <&3; echo accept >&3")
    before = groups(mount, "describe", "g", "q", "--json")

    assert reason in refusal(mount, *words.split())
    assert before == groups(mount, "describe", "g", "q", "--json")


@pytest.mark.slow
def test_workers_that_are_killed_lose_nothing(mount: Mount):
    """When workers are killed, no job is lost, and a job that always fails is finally rejected."""
    chosen = random.Random(15)
    done, jobs = mount.base / "done", 500
    done.touch()
    lines = [f"job{n}" for n in range(jobs)]
    lines.insert(250, "poison")
    mount.bash("mkdir orders @queues/q")
    (mount.path / "orders/0/log").write_text("".join(f"{line}\n" for line in lines))
    script = f'job=$(cat); [ "$job" = poison ] && exit 1; echo "$job" >> {done}'

    errors = (mount.base / "errors").open("wb")

    def start() -> Forked:
        words = work_words(mount, script, "--drain")
        return FORKS.start(COMMAND, *words, files=(None, None, errors.fileno()), new_session=True)

    workers = [start() for _ in range(8)]
    try:
        for _ in range(10):
            before = len(done.read_text().split())
            wait_until(
                lambda before=before: len(done.read_text().split()) > before + 20,
                "the workers have done 20 more jobs",
            )
            victim = chosen.randrange(8)
            os.killpg(workers[victim].pid, signal.SIGKILL)
            workers[victim].wait()
            workers[victim] = start()
        wait_until(lambda: queue_status(mount)["lag"] == "0", "all records are done", timeout_seconds=200)
    finally:
        for worker in workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait(TIMEOUT_SECONDS)
        errors.close()
    counts = collections.Counter(done.read_text().split())

    assert set(lines) - {"poison"} == set(counts)
    assert sum(counts.values()) <= jobs + 10, "only jobs of killed workers may be done twice"
    assert ["orders-0-250"] == os.listdir(mount.path / "@queues/q/orders/rejected")


@pytest.mark.parametrize("end", [Mount.stop, Mount.kill])
def test_workers_go_on_with_the_next_daemon(mount: Mount, end: Callable[[Mount], object]):
    """Workers continue with the next daemon, whether the last daemon ended cleanly or was killed."""
    done = mount.base / "done"
    done.touch()
    mount.bash("mkdir orders @queues/q; seq 3 > orders/0/log")
    words = work_words(mount, f"echo $(cat) >> {done}", "--jobs", "2")
    worker = FORKS.start(COMMAND, *words)
    try:
        wait_until(lambda: len(done.read_text().split()) == 3, "three records are done")
        wait_until(lambda: queue_status(mount)["lag"] == "0", "the three records are accepted")
        end(mount)
        mount.start()
        mount.bash("seq 4 6 >> orders/0/log")
        wait_until(lambda: len(done.read_text().split()) == 6, "the other three records are done")
        worker.terminate()
        assert 0 == worker.wait(TIMEOUT_SECONDS)
    finally:
        worker.kill()
        worker.wait(TIMEOUT_SECONDS)
    assert list("123456") == sorted(done.read_text().split())


def test_a_worker_that_ends_waits_for_no_daemon(mount: Mount):
    """After a signal a worker ends even if there is no daemon any more."""
    begun, go = mount.base / "begun", mount.base / "go"
    mount.bash("mkdir orders @queues/q; exec 3<> @queues/q/orders/take; seq 1 > orders/0/log")
    script = f"touch {begun}; until [ -e {go} ]; do sleep 0.02; done"
    worker = FORKS.start(COMMAND, *work_words(mount, script))
    try:
        wait_until(begun.exists, "the command runs")
        mount.stop()
        worker.terminate()
        go.touch()
        assert worker.wait(TIMEOUT_SECONDS) in (0, 1)
    finally:
        worker.kill()
        worker.wait(TIMEOUT_SECONDS)


def test_a_worker_keeps_its_record_through_a_mount(mount: Mount):
    """A worker holds its record for several leases while its command runs."""
    done = mount.base / "done"
    mount.bash("mkdir orders @queues/q")
    mount.bash("echo share.record.lock.duration.ms=1000 > @queues/q/config; seq 2 > orders/0/log")
    script = f"echo $(cat) >> {done}; sleep 2.2"
    words = work_words(mount, script, "--jobs", "3", "--drain")
    ended = FORKS.run(COMMAND, *words)

    assert (0, b"") == (ended.status, ended.errors)
    assert ["1", "2"] == sorted(done.read_text().split())


def test_reading_all_there_is_ends(mount: Mount, tmp_path: Path):
    """Tools that read all files end, and take no records from the queue."""
    mount.bash(
        "mkdir orders @queues/q; seq 3 > orders/0/log; exec 3<> @queues/q/orders/take; IFS= read -r job <&3; echo reject >&3"
    )
    ran = mount.bash(
        "cp -a @queues $copy && grep -rc . @queues && grep ^lag @queues/q/status", copy=tmp_path / "copy"
    )

    assert (0, ["lag 2"]) == (ran.returncode, ran.stdout.splitlines()[-1:]), ran.stderr
    assert "1" == (tmp_path / "copy/q/orders/rejected/orders-0-0").read_text()
