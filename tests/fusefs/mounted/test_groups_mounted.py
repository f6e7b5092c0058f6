"""Groups from shells: which records members get, what is committed, and how members join, leave and die."""

from __future__ import annotations

import collections
import errno
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount, running, status

pytestmark = pytest.mark.fuse

MEMBER = re.compile(r"^member \S+ reader (.*) topics \S+ partitions (\S+)$", re.MULTILINE)


def readers(group: Path) -> dict[str, list[str]]:
    """Return the partitions of each member, by the name of its reader."""
    found = MEMBER.findall((group / "status").read_text())
    return {who: [] if partitions == "-" else partitions.split(",") for who, partitions in found}


def is_stable(group: Path, members: int) -> bool:
    now = status(group)
    return ("Stable" if members else "Empty", str(members)) == (now["state"], now["members"])


def groups(mount: Mount, topic: Path, name: str = "g") -> Path:
    """Create a group, and return the topic's directory in the group."""
    group = mount.path / "@groups" / f"{topic.name}-{name}"
    group.mkdir()
    return group / topic.name


def fill(topic: Path, count: int, partitions: int = 1) -> list[str]:
    """Append the records `0` to `count` - 1, spread over `partitions` partitions."""
    for number in range(partitions):
        (topic / str(number)).mkdir(exist_ok=True)
        lines = "".join(f"{n}\n" for n in range(number, count, partitions))
        (topic / str(number) / "log").write_text(lines)
    return [str(n) for n in range(count)]


def test_members_share_partitions_while_they_come_and_go(mount: Mount):
    """Each partition has at most one reader at a time, and members that are not killed get each record once."""
    topic, count = mount.path / "orders", 100_000
    topic.mkdir()
    (topic / "5").mkdir()
    group = (
        mount.path / "@groups" / "comers"
    )  # No other test uses this name: a cluster keeps groups that were used.
    group.mkdir()
    doubled: list[dict[str, list[str]]] = []
    watching = threading.Event()

    def watch() -> None:
        while not watching.wait(0.01):
            now = readers(group)
            held = [partition for partitions in now.values() for partition in partitions]
            if len(held) != len(set(held)):
                doubled.append(now)

    def write(first: int, last: int, partitions: int) -> None:
        for number in range(partitions):
            with (topic / str(number) / "log").open("a") as log:
                log.writelines(f"{n}\n" for n in range(first + number, last, partitions))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ExitStack() as stack:
        stack.callback(watching.set)
        outputs = [mount.base / f"out{number}" for number in range(4)]
        shells = []

        def join(number: int) -> None:
            shells.append(stack.enter_context(running(f"exec cat log > {outputs[number]}", group / "orders")))

        for number in range(3):
            join(number)
        wait_until(lambda: is_stable(group, 3), "three members read")
        write(0, 30_000, 6)
        join(3)
        write(30_000, 50_000, 6)
        wait_until(
            lambda: is_stable(group, 4) and outputs[1].stat().st_size > 0,
            "four members read, and the second one has lines",
        )
        shells[1].send_signal(signal.SIGKILL)
        write(50_000, 70_000, 6)
        (topic / "6").mkdir()
        write(70_000, count, 7)
        wait_until(lambda: is_stable(group, 3) and status(group)["lag"] == "0", "all records were read")
        watching.set()
        watcher.join()
        generation = int(status(group)["generation"])
        assert 7 == sum(map(len, readers(group).values()))
    lines = [collections.Counter(output.read_text().splitlines()) for output in outputs]
    alive = lines[0] + lines[2] + lines[3]

    assert [] == doubled
    assert set(map(str, range(count))) == set(alive) | set(lines[1])
    assert {1} == set(alive.values())
    assert all(len(one) > 0 for one in lines)
    if mount.topics_in is None:  # In a cluster, the group coordinator logs this.
        assert generation >= 4
        assert "Stabilized group comers generation" in mount.log
        assert "Preparing to rebalance group comers in state" in mount.log


def test_two_groups_are_independent(topic: Path, shared_mount: Mount):
    """Two groups each get every record once; in the group of three members, each key goes to one member."""
    (topic / "2").mkdir()
    one, three = (groups(shared_mount, topic, name) for name in ("one", "three"))
    with (topic / "log.kv").open("a") as log:
        log.writelines(f"k{n % 3}\t{n}\n" for n in range(300))
    outputs = [shared_mount.base / f"{topic.name}-{n}" for n in range(4)]
    for output in outputs:
        output.touch()

    def printed() -> int:
        return sum(len(output.read_text().splitlines()) for output in outputs)

    with ExitStack() as stack:
        for directory, output in zip((one, three, three, three), outputs, strict=True):
            stack.enter_context(running(f"exec cat log.kv > {output}", directory))
        wait_until(lambda: printed() >= 600, "both groups have read all records")
    lines = [output.read_text().splitlines() for output in outputs]
    keys = [{line.split("\t")[0] for line in some} for some in lines[1:]]

    assert sorted(lines[0]) == sorted(line for some in lines[1:] for line in some)
    assert 300 == len(set(lines[0]))
    assert sum(map(len, keys)) == len(set().union(*keys)) == 3


def test_a_worker_that_dies_leaves_its_record(topic: Path, shared_mount: Mount):
    """If a worker dies, its record and the records after it are read again, but finished records are not."""
    fill(topic, 10)
    directory = groups(shared_mount, topic)
    died = shared_mount.bash(
        'while IFS= read -r job; do [ "$job" = 4 ] && kill -9 $$; echo "$job"; done < $dir/log', dir=directory
    )
    again = shared_mount.bash(
        "cat $dir/drain; echo --; cat $dir/drain; cat $dir/0/position $dir/0/lag", dir=directory
    )

    assert ["0", "1", "2", "3"] == died.stdout.split()
    assert ["4", "5", "6", "7", "8", "9", "--", "10", "0"] == again.stdout.split()


PROGRAMS = {
    "cat": "cat drain",
    "cat pipe": "cat drain | jq -r .",
    "head": "exec 3< drain; while head -n 5 <&3 | grep .; do :; done",
    "bash": 'while IFS= read -r job; do echo "$job"; done < drain',
    "xargs": "xargs -P 4 -n 1 echo < drain",
    "xargs -a": "xargs -P 4 -n 3 -a drain printf '%s\\n'",
    "parallel": "parallel -j 4 echo < drain",
    "python": "python3 -c \"for line in open('drain'): print(line, end='', flush=True)\"",
    "python bytes": "python3 -c \"import os; f = os.open('drain', os.O_RDONLY)\nwhile d := os.read(f, 7): os.write(1, d)\"",
    "awk": "awk '{print}' drain",
    "sed -u": "sed -u p -n drain",
    "dd": "dd if=drain bs=10 status=none",
    "tail": "tail -n +1 drain",
    "grep": "grep . drain",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_get_each_record_once(topic: Path, shared_mount: Mount, program: str):
    """Programs get each record once, whether they read blocks or bytes, or seek back."""
    expected = fill(topic, 200)
    directory = groups(shared_mount, topic)
    ran = subprocess.run(
        ["bash", "-c", PROGRAMS[program]],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert sorted(expected) == sorted(ran.stdout.split()), ran.stderr
    assert "0\n" == (directory / "0" / "lag").read_text()


WORKERS = {
    "head": "exec 3< log; while true; do head -n 5 <&3; sleep 0.01; done",
    "bash": 'while IFS= read -r job; do sleep 0.01; echo "$job"; done < log',
    "python": "exec python3 -uc \"import time\nfor line in open('log'): time.sleep(0.01); print(line, end='')\"",
    "xargs": "exec xargs -P 4 -n 1 sh -c 'sleep 0.01; echo $0' < log",
    "parallel": "exec parallel -u -j 4 'sleep 0.01; echo' < log",
}


@pytest.mark.parametrize("worker", WORKERS)
def test_killed_workers_lose_nothing(topic: Path, shared_mount: Mount, worker: str):
    """Records that a killed worker had not finished are read again."""
    expected = fill(topic, 100)
    directory, output = groups(shared_mount, topic), shared_mount.base / topic.name
    output.touch()
    with running(f"{WORKERS[worker]} >> {output}", directory) as process:
        wait_until(lambda: len(output.read_text().split()) > 20, "some records were done")
        if worker in {"xargs", "parallel"}:
            process.kill()  # Kill only the program; its background jobs continue.
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # If a running job still has the file open, the member keeps its partition.
        wait_until(lambda: is_stable(directory.parent, 0), "the group has no members")
        rest = shared_mount.bash("cat $dir/drain", dir=directory).stdout.split()
        wait_until(
            lambda: set(expected) == {*output.read_text().split(), *rest}, "jobs that had begun have ended"
        )


def test_children_share_a_membership(topic: Path, shared_mount: Mount):
    """Child processes share the membership of their parent; it ends with the last close(2) of the file."""
    fill(topic, 4)
    directory = groups(shared_mount, topic)
    ran = shared_mount.bash(
        "exec 3< $dir/log; head -n 1 <&3; (head -n 1 <&3); grep ^members $dir/../status; exec 3<&-; grep ^members $dir/../status; "
        "cat $dir/0/position",
        dir=directory,
    )

    assert ["0", "1", "members", "1", "members", "0", "1"] == ran.stdout.split()


def test_positions_are_files(topic: Path, shared_mount: Mount):
    """A position can be written as an offset, step, end or time; while a member reads, the write fails with EBUSY."""
    with (topic / "0" / "log.json").open("a") as log:
        log.writelines(f'{{"payload":"{n}","ts":{1000 * n}}}\n' for n in range(1, 6))
    directory = groups(shared_mount, topic)
    position = directory / "0" / "position"
    for text in ("-1", "1.5", "soon", "@never", "99999999999999999999"):
        with pytest.raises(OSError, match="Invalid argument"):
            position.write_text(f"{text}\n")
    seen = [position.read_text()]
    for text in ("2", "+1", "-2", "-100", "latest", "earliest", "@4000", "99"):
        position.write_text(f"{text}\n")
        seen.append(position.read_text())
    assert ["-\n", "2\n", "3\n", "1\n", "0\n", "5\n", "0\n", "3\n", "5\n"] == seen
    assert "99 is outside the log: the position is now 5" in shared_mount.status
    with running("exec cat log", directory, stdout=subprocess.DEVNULL):
        wait_until(lambda: is_stable(directory.parent, 1), "one member reads")
        with pytest.raises(OSError, match=os.strerror(errno.EBUSY)):
            position.write_text("0\n")


def test_groups_are_made_and_removed(topic: Path, shared_mount: Mount):
    """mkdir(2) creates a group, and rmdir(2) removes a group that has neither readers nor positions."""
    fill(topic, 1)
    directory = groups(shared_mount, topic)
    ran = shared_mount.bash(
        "mkdir $g; cat $g/nothere/log; cat @groups/none/$topic/log; ls @groups | grep -c $topic; exec 3< $g/$topic/log; rmdir $g; exec 3<&-; "
        "cat $g/$topic/drain; rmdir $g; mkdir @groups/${topic}2 && rmdir @groups/${topic}2; ls @groups | grep -c $topic",
        g=directory.parent,
        topic=topic.name,
    )

    assert ["1", "0", "1"] == ran.stdout.split()
    assert [
        "File exists",
        "No such file or directory",
        "No such file or directory",
        "Device or resource busy",
        "Directory not empty",
    ] == [line.rpartition(": ")[2] for line in ran.stderr.splitlines()]


def test_settings_of_a_group(topic: Path, shared_mount: Mount):
    """Writing a line to `config` changes a setting of the group; an invalid line is refused with the reason."""
    directory = groups(shared_mount, topic)
    config = directory.parent / "config"
    with config.open("a") as lines:
        lines.write("assignor=range\nauto.offset.reset=latest\n")
    assert ["assignor=range", "auto.offset.reset=latest"] == config.read_text().splitlines()[:2]
    with pytest.raises(OSError, match="Invalid argument"):
        config.write_text("assignor=fair\n")
    assert "assignor=fair" in shared_mount.status


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_every_assignor_shares_out_and_loses_nothing(topic: Path, shared_mount: Mount, assignor: str):
    """With each assignor, members that read `drain` at the same time get each record once."""
    expected = fill(topic, 3000, 5)
    directory = groups(shared_mount, topic)
    (directory.parent / "config").write_text(f"assignor={assignor}\n")
    ran = shared_mount.bash(
        "for n in 1 2 3; do dd if=$dir/drain bs=100 status=none & sleep 0.05; done; wait", dir=directory
    )

    assert sorted(expected) == sorted(ran.stdout.split())


def test_several_topics_and_patterns(mount: Mount):
    """A group can read a list of topics, or a pattern that also matches topics created later."""
    for name in ("orders", "clicks"):
        (mount.path / name).mkdir()
        (mount.path / name / "0" / "log").write_text(f"{name}\n")
    ran = mount.bash(
        "mkdir @groups/g @groups/h; cat @groups/g/orders,clicks/drain | sort; cat '@groups/h/ord*/log' > $out & "
        "while ! grep -qs orders $out; do sleep 0.01; done; mkdir ordinary; echo new >> ordinary/0/log; "
        "while ! grep -q new $out; do sleep 0.01; done; kill $!",
        out=mount.base / "out",
    )

    assert ["clicks", "orders"] == ran.stdout.split()
    assert ["orders", "new"] == (mount.base / "out").read_text().split()


def test_positions_and_settings_survive(unmounted: Mount):
    """Positions and settings survive the end of a mount and the kill of its daemon."""
    mount = unmounted.start()
    mount.bash(
        "mkdir orders @groups/g; seq 5 > orders/0/log; echo commit=manual > @groups/g/config; echo 3 > @groups/g/orders/0/position"
    )
    mount.stop()
    mount.start()
    mount.bash("echo +1 > @groups/g/orders/0/position")
    mount.kill()
    mount.clean_up()
    mount.start()

    assert "4\n" == (mount.path / "@groups/g/orders/0/position").read_text()
    assert "commit=manual" in (mount.path / "@groups/g/config").read_text()


def test_reading_all_there_is_ends(mount: Mount, tmp_path: Path):
    """Files that wait or change positions are not listed, so that tools that read all files end."""
    mount.bash(
        "mkdir orders @groups/g; seq 5 > orders/0/log; head -n 2 @groups/g/orders/log > /dev/null; echo 2 > @groups/g/orders/0/position"
    )
    copy = tmp_path / "copy"
    ran = mount.bash(
        "cp -a @groups $copy && tar cf - @groups | tar tf - | wc -l && grep -rc . @groups | wc -l && rsync -a @groups/ $copy.rsync/ && cat @groups/g/orders/0/position",
        copy=copy,
    )

    assert (0, "2") == (ran.returncode, ran.stdout.split()[-1]), ran.stderr
    assert "2\n" == (copy / "g/orders/0/position").read_text()


def test_more_waiting_members_than_the_bound(unmounted: Mount):
    """A member beyond the limit of waiting reads gets EMFILE; the other members keep waiting."""
    mount = unmounted.start(max_waiting=2)
    mount.bash("mkdir orders @groups/g")
    group = mount.path / "@groups/g"
    script = "head -n 1 log & head -n 1 log & wait"
    with running(script, group / "orders", stdout=subprocess.PIPE) as members:
        wait_until(lambda: "waiting_reads 2 of" in mount.status, "both members wait")
        assert "Too many open files" in mount.bash("cat @groups/g/orders/log").stderr
        (mount.path / "orders/0/log").write_text("a\n")
        assert b"a\n" == members.stdout.readline()
    wait_until(lambda: is_stable(group, 0), "all members have left")


MANY = 2000
READERS = f"""
import os, resource, select, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({MANY} + 100, {MANY} + 100))
poll = select.epoll()
for _ in range({MANY}):
    poll.register(os.open("@groups/g/orders/log", os.O_RDONLY | os.O_NONBLOCK), select.EPOLLIN)
print("open", flush=True)
while True:
    for descriptor, _ in poll.poll():
        try:
            print(os.read(descriptor, 100).decode(), end="", flush=True)
        except BlockingIOError:
            pass  # Its partition went to another one meanwhile.
"""


@pytest.mark.slow
def test_thousands_of_members_wait_in_one_program(unmounted: Mount):
    """Thousands of members in one program share the partitions, are woken, and leave the group together."""
    mount = unmounted.start()
    mount.bash("mkdir orders orders/7 @groups/g")
    group = mount.path / "@groups/g"
    process = subprocess.Popen(
        [sys.executable, "-c", READERS], cwd=mount.path, stdout=subprocess.PIPE, text=True
    )
    with process, ExitStack() as stack:
        stack.callback(process.kill)
        assert "open\n" == process.stdout.readline()
        wait_until(lambda: is_stable(group, MANY), "all programs are members")
        held = [one for _, one in MEMBER.findall((group / "status").read_text()) if one != "-"]
        assert [f"orders-{number}" for number in range(8)] == sorted(held)
        for number in range(8):
            (mount.path / "orders" / str(number) / "log").write_text(f"{number}\n")
        given = [process.stdout.readline() for _ in range(8)]
        assert [f"{number}\n" for number in range(8)] == sorted(given)
    wait_until(lambda: is_stable(group, 0), "all members have left")
