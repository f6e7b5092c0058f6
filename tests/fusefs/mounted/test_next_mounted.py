"""Shells read the files `next-100` and `next-1s` of a group. These end on their own, and commit only at their end.

In these tests, a run is one program that reads such a file once.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from tests.fusefs.mounted.conftest import Mount, running, status
from tests.fusefs.mounted.test_groups_mounted import fill, groups, is_stable

pytestmark = pytest.mark.fuse


def positions(directory: Path) -> list[str]:
    """Return the position of the group in each partition."""
    return [(one / "position").read_text().strip() for one in sorted(directory.iterdir())]


def append(topic: Path, line: str) -> None:
    with (topic / "0" / "log").open("a") as log:
        log.write(f"{line}\n")


PROGRAMS = {
    "cat": "cat next-7",
    "cat to a pipe": "cat next-7 | cat",
    "cat to a file": "cat next-7 > $file && cat $file",
    "cp": "cp next-7 $file && cat $file",
    "json": "jq -r .payload next-7.json",
    "key and value": "cut -f 2 next-7.kv",
    "bash": 'while IFS= read -r job; do echo "$job"; done < next-7',
    "mapfile": 'mapfile -t jobs < next-7; printf "%s\\n" "${jobs[@]}"',
    "xargs": "xargs -r -n 1 echo < next-7",
    "xargs -a": "xargs -r -P 4 -n 2 -a next-7 printf '%s\\n'",
    "sort": "sort next-7",
    "awk": "awk '{print}' next-7",
    "sed": "sed -u '' next-7",
    "tail": "tail -n +1 next-7",
    "python": "python3 -c \"for line in open('next-7'): print(line, end='')\"",
    "a byte at a time": "dd if=next-7 bs=1 status=none",
    "several programs in turn": "exec 3< next-7; head -n 2 <&3; (head -n 2 <&3); cat <&3",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_run_continues_where_the_last_one_ended(topic: Path, shared_mount: Mount, program: str):
    """Each run gets the next records of all partitions, up to the limit; after the last record, a run gets none."""
    expected = fill(topic, 20, 3)
    directory = groups(shared_mount, topic)
    runs = []
    for _ in range(20):
        ran = shared_mount.bash(
            f"cd $dir; {PROGRAMS[program]}", dir=directory, file=shared_mount.base / topic.name
        )
        assert (0, "") == (ran.returncode, ran.stderr)
        runs.append(ran.stdout.split())
        if not runs[-1]:
            break

    assert [] == runs[-1]
    assert all(0 < len(run) <= 7 for run in runs[:-1])
    assert sorted(expected) == sorted(record for run in runs for record in run)
    assert ["7", "7", "6"] == positions(directory)
    assert "0" == status(directory.parent)["lag"]


EARLY = {
    "head": "head -n 3 next-9",
    "head of as many": "head -n 9 next-9",
    "grep -m": "grep -m 1 . next-9",
    "sed q": "sed -u 3q next-9",
    "dd": "dd if=next-9 bs=4 count=2 status=none",
    "a pipe that breaks": "cat next-100000 | head -n 1",
    "a job that fails": "(read -r job && false) < next-9",
    "a job that is killed": "while read -r job; do [ $job = 4 ] && kill -9 $$; done < next-9",
    "a job that takes too long": "timeout 1 bash -c 'read -r job; exec sleep 60' < next-9",
}


@pytest.mark.parametrize("program", EARLY)
def test_a_program_that_does_not_read_the_end_commits_nothing(topic: Path, shared_mount: Mount, program: str):
    """A program that ends before the end of the file commits nothing, so the next run gets the same records."""
    expected = fill(topic, 50_000)
    directory = groups(shared_mount, topic)
    shared_mount.bash(f"cd $dir; {EARLY[program]}", dir=directory)
    wait_until(lambda: is_stable(directory.parent, 0), "nobody reads")
    again = shared_mount.bash("cd $dir; cat 0/position next-9", dir=directory).stdout.split()

    assert ["-", *expected[:9]] == again
    assert ["9"] == positions(directory)


def test_readers_at_the_same_time_get_other_records(topic: Path, shared_mount: Mount):
    """Simultaneous runs get different records, while partitions move between the runs."""
    expected = fill(topic, 300, 5)
    directory = groups(shared_mount, topic)
    ran = shared_mount.bash(
        "cd $dir; for job in 1 2 3 4 5; do ( for run in $(seq 30); do cat next-11; done ) & done; wait; cat drain",
        dir=directory,
    )

    assert "" == ran.stderr
    assert sorted(expected) == sorted(ran.stdout.split())


def test_a_second_reader_waits_for_partitions_that_the_first_has_begun(topic: Path, shared_mount: Mount):
    """A second reader waits for a partition that the first reader has begun, until the first reader's file ends."""
    fill(topic, 20, 2)
    directory, outputs = groups(shared_mount, topic), [shared_mount.base / f"{topic.name}-{n}" for n in "12"]
    with running(
        f"exec 3< next-20; head -n 18 <&3 > {outputs[0]}; read; cat <&3 >> {outputs[0]}; exec sleep 1000",
        directory,
        stdin=subprocess.PIPE,
    ) as first:
        wait_until(
            lambda: outputs[0].exists() and outputs[0].read_text().count("\n") == 18,
            "the first reader has 18 records",
        )
        append(topic, "later")
        with running(f"exec cat next-20 > {outputs[1]}", directory) as second:
            wait_until(lambda: status(directory.parent)["members"] == "2", "the second reader has joined")
            assert "" == outputs[1].read_text()
            first.stdin.close()
            assert 0 == second.wait(TIMEOUT_SECONDS)
    firsts, seconds = (output.read_text().split() for output in outputs)

    assert sorted(map(str, range(20))) == sorted(firsts)
    assert ["later"] == seconds


def test_next_3s_reads_records_that_arrive_within_3_seconds(topic: Path, shared_mount: Mount):
    """`next-3s` reads records that exist or arrive within its time; later records are for the next run."""
    fill(topic, 3)
    directory, output = groups(shared_mount, topic), shared_mount.base / topic.name
    with running(f"exec cat next-3s > {output}", directory) as reader:
        wait_until(
            lambda: output.exists() and output.read_text().startswith("0\n1\n2\n"),
            "the reader has the present records",
        )
        append(topic, "3")
        assert 0 == reader.wait(TIMEOUT_SECONDS)
    first = output.read_text().split()
    assert [str(len(first))] == positions(directory)
    append(topic, "4")
    again = shared_mount.bash("cat $dir/next-1s; cat $dir/next-1s", dir=directory)

    assert 0 == again.returncode
    assert ["0", "1", "2", "3", "4"] == [*first, *again.stdout.split()]


NOT_THERE = (
    "next",
    "next-",
    "next-0",
    "next-0s",
    "next-007",
    "next--1",
    "next-1.5",
    "next-1m",
    "next-1.batch",
    "next-1.txt",
)
THERE = (
    "next-1",
    "next-99999999999999999999",
    "next-1s",
    "next-99999999999999999999s.json",
    "next-1.avro.json",
    "next-1s.batch",
)


def test_names(topic: Path, shared_mount: Mount):
    """The number in `next-N` has one spelling and no upper limit; the files behave like `drain`, and are not listed."""
    fill(topic, 3)
    directory = groups(shared_mount, topic)
    there = shared_mount.bash(f"cd $dir; stat -c '%A %s %n' drain {' '.join(THERE)}; ls", dir=directory)
    missing = shared_mount.bash(f"cd $dir; ls {' '.join(NOT_THERE)}", dir=directory)
    all_of_it = shared_mount.bash("cat $dir/next-99999999999999999999", dir=directory)

    assert [*(f"-rw------- 0 {name}" for name in ("drain", *THERE)), "0"] == there.stdout.splitlines()
    assert "" == missing.stdout
    assert len(NOT_THERE) == missing.stderr.count("No such file or directory")
    assert ["0", "1", "2"] == all_of_it.stdout.split()


def test_a_job_that_commits_by_its_exit_status(topic: Path, shared_mount: Mount):
    """With commit=manual, a job writes `commit` only after its command has succeeded. Other runs commit nothing."""
    fill(topic, 9)
    directory = groups(shared_mount, topic)
    (directory.parent / "config").write_text("commit=manual\n")
    ran = shared_mount.bash(
        'cd $dir; run() { exec 3<> next-3; cat <&3 && "$@" && echo commit >&3; exec 3>&-; cat 0/position; }; '
        "run false; run true; run false; run true",
        dir=directory,
    )

    # The records of each run, and then the group's position.
    assert [
        "0",
        "1",
        "2",
        "-",
        "0",
        "1",
        "2",
        "3",
        "3",
        "4",
        "5",
        "3",
        "3",
        "4",
        "5",
        "6",
    ] == ran.stdout.split()


@pytest.mark.parametrize("file", ["next-5", "drain"])
def test_a_run_does_not_wait_for_records_of_a_deleted_topic(unmounted: Mount, file: str):
    """If the topic is recreated before the first read of a run, this run ends. The next run gets the new records."""
    mount = unmounted.start(allow_delete=True)
    ran = mount.bash(
        "mkdir orders @groups/$group; seq 3 > orders/0/log; exec 3< @groups/$group/orders/$file; rmdir orders; "
        "until mkdir orders 2> /dev/null; do :; done; echo new > orders/0/log; "  # A broker may still be deleting the old topic.
        "timeout 20 cat <&3 && exec 3<&- && cat @groups/$group/orders/$file",
        file=file,
        group=f"again-{file}",
    )
    assert (0, "new\n", "") == (ran.returncode, ran.stdout, ran.stderr)
