"""Tests of `topicfs append --producer` while a daemon owns the directory: lines are stored once, even after a kill."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.waiting import wait_until
from tests.topicfs.conftest import TOPICFS
from topicfs.storage.disk.lock import find_holder

pytestmark = pytest.mark.fuse


def test_a_named_producer_goes_on_through_the_mount(orders, mnt, directory):
    """Through a mount, the daemon stores the producer's progress. Runs after the unmount use this progress as well."""
    Path("lines").write_text("four\n")
    once = ("append", "--producer", "p", "orders/0", "lines")
    assert "p: 1 records appended to orders/0/log" in orders(*once).text
    Path("lines").write_text("four\nfive\n")
    assert "p: 1 records appended to orders/0/log" in orders(*once).text
    kept = json.loads((directory / "topicfs.producers").read_text())["producers"]["p"]
    assert [{"0": {"end_offset": 5, "ahead": 0, "sequence": 1}}] == [
        one["partitions"] for one in kept.values()
    ]
    assert "p: 0 records appended to orders/0/log" in orders(*once).text
    assert "one two three four five" == " ".join((mnt / "orders/0/log").read_text().split())
    assert (mnt / "@producers").read_text().startswith(f"p 10 2 {Path('lines').absolute()} > orders/0/log@")
    subprocess.run([TOPICFS, "umount", str(mnt)], check=True)
    assert "p: 0 records appended to orders/0/log" in orders(*once).text
    subprocess.run([TOPICFS, "mount", str(directory), str(mnt)], check=True)
    assert "p: 0 records appended to orders/0/log" in orders(*once).text


def test_a_named_producer_that_was_killed_appends_nothing_twice(orders, mnt):
    """If a run was killed before its progress was stored, the next run finds the appended records in the log."""
    assert 0 == orders("topics", "create", "keyed", "--partitions", "3").status
    lines = [f"k{number % 7}\t{number}" for number in range(20_000)]
    Path("lines").write_text("\n".join(lines))
    once = ("append", "--producer", "p", "keyed/log.kv", "lines")
    killed = [
        "import os, signal",
        "from topicfs.main import main",
        "from topicfs.storage.idempotence.producer import NamedProducer",
        "NamedProducer._save = lambda *_: os.kill(os.getpid(), signal.SIGKILL)",
        "main()",
    ]
    ran = subprocess.run([sys.executable, "-c", "\n".join(killed), *once], check=False)
    assert -signal.SIGKILL == ran.returncode
    assert len(lines) == len((mnt / "keyed/log.kv").read_text().splitlines())
    with Path("lines").open("a") as file:
        file.write("\nk8\tlast\n")
    assert f"p: 1 records appended to keyed/log.kv, {len(lines)} were there already" in orders(*once).text
    assert sorted([*lines, "k8\tlast"]) == sorted((mnt / "keyed/log.kv").read_text().splitlines())


def test_a_named_producer_goes_on_after_its_daemon_was_killed(orders, mnt, directory):
    """If the daemon was killed before it stored the progress, the next run appends no line twice."""
    lines = "".join(f"{number}\n" for number in range(20_000))
    Path("lines").write_text(lines)
    once = ("append", "--producer", "p", "orders/0", "lines")
    holder = find_holder(directory)
    assert holder is not None
    killed = [
        "import os, signal",
        "from topicfs.main import main",
        "from topicfs.storage.idempotence.producer import NamedProducer",
        "save = NamedProducer._save",
        "def last(*arguments):",
        f"    os.kill({holder.pid}, signal.SIGKILL)",
        "    save(*arguments)",
        "NamedProducer._save = last",
        "main()",
    ]
    ran = subprocess.run([sys.executable, "-c", "\n".join(killed), *once], capture_output=True, check=False)
    assert 1 == ran.returncode, ran.stderr
    subprocess.run(["umount", "-l", str(mnt)], check=True)
    subprocess.run([TOPICFS, "mount", str(directory), str(mnt)], check=True)
    assert (mnt / "@producers").read_text().startswith("p 0 0 ")
    assert "p: 0 records appended to orders/0/log, 20000 were there already" in orders(*once).text
    assert f"one\ntwo\nthree\n{lines}" == (mnt / "orders/0/log").read_text()


def test_runs_of_a_named_producer_through_a_mount_wait_for_each_other(mnt):
    """A run waits until other runs of its producer have ended, and only then looks for missing records."""
    Path("lines").write_text("four\nfive\n")
    words = ("append", "--producer", "p", "orders/0", "lines")
    slow = [
        "import sys",
        "from topicfs.main import main",
        "from topicfs.storage.idempotence.producer import NamedProducer",
        "append_file = NamedProducer.append_file",
        "def slowly(*arguments):",
        "    print('begun', flush=True)",
        "    sys.stdin.read()",
        "    return append_file(*arguments)",
        "NamedProducer.append_file = slowly",
        "main()",
    ]
    waits = [sys.executable, "-c", "\n".join(slow), *words]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert "begun\n" == first.stdout.readline()
        with subprocess.Popen([TOPICFS, *words], stdout=subprocess.PIPE, text=True) as second:
            asked = re.compile(rf"-> FLOCK .* {second.pid} ")
            wait_until(
                lambda: second.poll() is not None or asked.search(Path("/proc/locks").read_text()),
                "the second run waits, or has ended",
            )
            first.stdin.close()
            assert "p: 0 records appended" in second.stdout.read()
    assert "one two three four five" == " ".join((mnt / "orders/0/log").read_text().split())


def test_an_invalid_line_of_producers_is_refused(orders, mnt, directory):
    """An invalid line written to `@producers` fails with EMSGSIZE, or with EINVAL and a reason; nothing is stored."""
    Path("lines").write_text("four\n")
    assert 0 == orders("append", "--producer", "p", "orders/0", "lines").status
    stored = (directory / "topicfs.producers").read_bytes()
    ((source, right),) = json.loads(stored)["producers"]["p"].items()
    right = {"name": "p", "input": source, **right}
    place = {"end_offset": 4, "ahead": 0, "sequence": 1}
    wrong = [
        {"position": "6"},
        {"position": True},
        {"records": -1},
        {"records": {}},
        {"producer_id": 2**63},
        {"epoch": 2**15},
        {"name": 5},
        {"input": "lines > orders/0/log@unknown"},
        {"partitions": {"0": {}}},
        {"partitions": {"7": place}},
        {"partitions": {"0": {**place, "sequence": 2**31}}},
        {"partitions": {"0": {**place, "end_offset": "4"}}},
    ]
    lines = [json.dumps(right | one) for one in wrong]
    for line in [*lines, '{"name": "p"}', "[" * 100_000]:
        with pytest.raises(OSError, match="Invalid argument"), (mnt / "@producers").open("ab", 0) as file:
            file.write(f"{json.dumps(right | {'records': 9})}\n{line}\n".encode())
        assert "@producers: not a producer's progress" in (mnt / "@status").read_text()
    with pytest.raises(OSError, match="Message too long"):
        (mnt / "@producers").write_text(json.dumps(right | {"name": "x" * 10_000_000}) + "\n")
    assert stored == (directory / "topicfs.producers").read_bytes()
