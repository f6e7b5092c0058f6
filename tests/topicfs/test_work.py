"""`topicfs work` runs a command for each record of a queue."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.doubles.forks import COMMAND, FORKS
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from tests.topicfs.conftest import Topicfs
from topicfs.replication import open_engine


def test_each_record_is_a_run(orders: Topicfs, tmp_path: Path):
    """The command runs once for each record.

    The record's value is the standard input. Its topic, partition, offset and key are in environment variables.
    """
    out = tmp_path / "out"
    script = f'echo "$(cat) $TOPICFS_TOPIC $TOPICFS_PARTITION $TOPICFS_OFFSET ${{TOPICFS_KEY-none}}" >> {out}'
    ran = orders("work", "g", "orders", "--drain", "--", "sh", "-c", script)

    assert (0, b"") == (ran.status, ran.errors)
    assert [
        "one orders 0 0 none",
        "two orders 0 1 none",
        "three orders 0 2 none",
    ] == out.read_text().splitlines()
    assert 0 == orders("work", "g", "orders", "--drain", "--", "sh", "-c", script).status
    assert 3 == len(out.read_text().splitlines()), "an accepted record's command runs once"


def test_exit_statuses(orders: Topicfs, tmp_path: Path):
    """Exit status 65 rejects a record. Any other failure releases the record, until it has had five runs."""
    out = tmp_path / "out"
    script = f"job=$(cat); echo $job >> {out}; case $job in one) exit 65;; two) exit 1;; esac"
    ran = orders("work", "g", "orders", "--drain", "--", "sh", "-c", script)
    runs = out.read_text().split()

    assert {"one": 1, "two": 5, "three": 1} == {job: runs.count(job) for job in set(runs)}
    assert 3 == ran.status, "records were rejected"
    said = ran.errors.decode().splitlines()
    assert ["topicfs: orders-0-0: exit status 65: rejected"] == [line for line in said if "-0-0:" in line]
    given_back = "topicfs: orders-0-1: exit status 1: given back"
    assert [given_back] * 4 + ["topicfs: orders-0-1: exit status 1: rejected"] == [
        line for line in said if "-0-1:" in line
    ]


def test_several_at_a_time(orders: Topicfs, tmp_path: Path):
    """With several jobs at a time, the command runs once for each record."""
    out = tmp_path / "out"
    orders("append", "orders/0", stdin=b"".join(b"%d\n" % n for n in range(20)))
    ran = orders(
        "work",
        "g",
        "orders",
        "--drain",
        "--jobs",
        "4",
        "--",
        "sh",
        "-c",
        f"cat | tee -a {out}.$$; echo >> {out}.$$",
    )
    done = sorted(path.read_text().strip() for path in tmp_path.glob("out.*"))

    assert 0 == ran.status
    assert sorted(["one", "two", "three", *map(str, range(20))]) == done


def test_a_process_with_very_many_files(orders: Topicfs):
    """A worker can use descriptors above 1,023, which select(2) does not support."""
    with ExitStack() as stack:
        for _ in range(1_100):
            stack.callback(os.close, os.dup(0))
        assert 0 == orders("work", "g", "orders", "--drain", "--", "true").status


def test_a_command_that_is_not_there(orders: Topicfs):
    """If the command does not exist, the worker ends and the record is not lost."""
    assert 1 == orders("work", "g", "orders", "--drain", "--", "/no/such/command").status

    assert 0 == orders("work", "g", "orders", "--drain", "--", "true").status


def test_a_command_that_runs_longer_than_the_lease(orders: Topicfs, directory: Path, tmp_path: Path):
    """While a command runs for longer than the lease, no other worker gets its record."""
    with closing(open_engine([directory])) as engine:
        engine.share_groups.create("g").alter({"share.record.lock.duration.ms": "1000"})
    out = tmp_path / "out"
    script = f"echo $TOPICFS_OFFSET >> {out}; sleep 2.2"
    ran = orders("work", "g", "orders", "--drain", "--jobs", "4", "--", "sh", "-c", script)

    assert (0, b"") == (ran.status, ran.errors)
    assert ["0", "1", "2"] == sorted(out.read_text().split())


def test_a_key_that_no_environment_can_hold(topicfs: Topicfs, tmp_path: Path):
    """A key that is too long for the environment is left out with a message, and the command still runs."""
    out = tmp_path / "out"
    topicfs("topics", "create", "orders")
    topicfs("append", "orders/0/log.kv", stdin=b"k" * 200_000 + b"\tlarge\nk\tsmall\n")
    script = f'echo "$(cat) ${{TOPICFS_KEY-none}}" >> {out}'
    ran = topicfs("work", "g", "orders", "--drain", "--", "sh", "-c", script)

    assert (0, "large none\nsmall k\n") == (ran.status, out.read_text())
    assert (
        b"topicfs: orders-0-0: TOPICFS_KEY is left out because of its size: 200000 characters\n" == ran.errors
    )


def waiting_signals(pid: int) -> set[int]:
    """Return the signals that were sent to a process and are pending (proc(5): ShdPnd)."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(status.split("ShdPnd:")[1].split()[0], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_waits_for_the_command(orders: Topicfs, tmp_path: Path, number: signal.Signals):
    """After a signal the running command ends normally and its record is accepted. No other command is started."""
    out, go = tmp_path / "out", tmp_path / "go"
    script = f"echo begun >> {out}; until [ -e {go} ]; do sleep 0.02; done; echo done >> {out}"
    words = ("work", "g", "orders", "--", "sh", "-c", script)
    with (tmp_path / "said").open("wb") as said:
        worker = FORKS.start(COMMAND, *words, files=(None, None, said.fileno()))
    with worker:
        wait_until(out.exists, "the command runs")
        worker.send_signal(number)
        wait_until(lambda: number not in waiting_signals(worker.pid), "the signal has arrived")
        go.touch()
        assert {signal.SIGTERM: 0, signal.SIGINT: 130}[number] == worker.wait(TIMEOUT_SECONDS)
    assert ["begun", "done"] == out.read_text().split()
    assert "" == (tmp_path / "said").read_text()
    assert 0 == orders("work", "g", "orders", "--drain", "--", "sh", "-c", script).status
    assert ["begun", "done"] * 3 == out.read_text().split()


def test_a_signal_that_another_thread_gets(orders: Topicfs, tmp_path: Path):
    """The worker notices a signal immediately, even if another of its threads receives the signal."""
    out, go = tmp_path / "out", tmp_path / "go"
    script = f"echo begun >> {out}; until [ -e {go} ]; do sleep 0.02; done"
    with FORKS.start(COMMAND, "work", "g", "orders", "--", "sh", "-c", script) as worker:
        wait_until(out.exists, "the command runs")
        threads = [int(one) for one in os.listdir(f"/proc/{worker.pid}/task")]
        assert 0 == ctypes.CDLL(None).tgkill(worker.pid, max(threads), signal.SIGTERM)
        go.touch()
        assert 0 == worker.wait(TIMEOUT_SECONDS)
    assert "begun\n" == out.read_text()


def test_a_signal_during_the_last_record(topicfs: Topicfs, tmp_path: Path):
    """After a signal during the last record, the worker ends and does not wait for another record."""
    topicfs("topics", "create", "one")
    assert 0 == topicfs("append", "one", stdin=b"a\n").status
    begun, go = tmp_path / "begun", tmp_path / "go"
    script = f"touch {begun}; until [ -e {go} ]; do sleep 0.02; done"
    with FORKS.start(COMMAND, "work", "g", "one", "--", "sh", "-c", script) as worker:
        try:
            wait_until(begun.exists, "the command runs")
            worker.terminate()
            go.touch()
            assert 0 == worker.wait(TIMEOUT_SECONDS)
        finally:
            worker.kill()


def test_signals_while_the_worker_ends(orders: Topicfs, tmp_path: Path):
    """Further signals while the worker ends do not change its exit status."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    script = f"trap '' TERM; touch {begun}; until [ -e {go} ]; do sleep 0.02; done"
    with FORKS.start(COMMAND, "work", "g", "orders", "--", "sh", "-c", script) as worker:
        wait_until(begun.exists, "the command runs")
        worker.terminate()
        go.touch()
        while worker.poll() is None:
            worker.terminate()
        assert 0 == worker.wait(TIMEOUT_SECONDS)


def test_a_second_signal_ends_the_command(orders: Topicfs, tmp_path: Path):
    """A second signal is passed to the running command; when the command has ended, its record is released."""
    out = tmp_path / "out"
    script = f"trap 'echo ended >> {out}; exit 7' TERM; echo begun >> {out}; while :; do sleep 0.02; done"
    words = ("work", "g", "orders", "--", "sh", "-c", script)
    with (tmp_path / "said").open("wb") as said:
        worker = FORKS.start(COMMAND, *words, files=(None, None, said.fileno()))
    with worker:
        wait_until(out.exists, "the command runs")
        worker.terminate()
        while "ended" not in out.read_text():
            worker.terminate()
        assert 0 == worker.wait(TIMEOUT_SECONDS)
    lines = out.read_text().split()
    assert ["begun", "ended"] == list(dict.fromkeys(lines)), (
        "the shell's trap may run once more for a later signal"
    )
    assert "topicfs: orders-0-0: exit status 7: given back\n" == (tmp_path / "said").read_text()
