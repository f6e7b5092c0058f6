"""Tests that `topicfs append --producer` appends each line once, however often the command runs."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress

import pytest

from tests.topicfs.conftest import TOPICFS, assert_refused

pytestmark = pytest.mark.slow


def test_a_second_run_appends_nothing(topicfs, tmp_path):
    """A second run appends only new lines, and prints the position in the file up to which all lines are appended."""
    source = tmp_path / "events.txt"
    source.write_bytes(b"a\nb\n")
    topicfs("topics", "create", "orders")
    first = topicfs("append", "--producer", "nightly", "orders/0", str(source))
    assert "nightly: 2 records appended to orders/0/log" in first.text
    source.write_bytes(b"a\nb\nc\n")
    again = topicfs("append", "--producer", "nightly", "orders/0", str(source))
    assert "1 records appended" in again.text
    assert "is in up to byte 6" in again.text
    assert b"a\nb\nc\n" == topicfs("cat", "orders/0").output


def test_a_topic_that_was_created_again_gets_all_lines(topicfs, tmp_path):
    """After a topic was deleted and created again, a run appends all lines, even if the new topic has records."""
    source = tmp_path / "events.txt"
    source.write_bytes(b"a\nb\nc\n")
    for before in (b"", b"x\ny\nz\nother\n"):
        topicfs("topics", "create", "orders")
        topicfs("append", "orders/0", stdin=before)
        for appended in (3, 0):
            ran = topicfs("append", "--producer", "nightly", "orders/0", str(source))
            assert f"nightly: {appended} records appended" in ran.text
        assert before + b"a\nb\nc\n" == topicfs("cat", "orders/0").output
        topicfs("topics", "delete", "orders", "--with-records")


def test_a_file_for_a_whole_topic_is_appended_once(topicfs, tmp_path):
    """If a file is appended to a whole topic twice, the second run appends nothing."""
    source = tmp_path / "events.kv"
    source.write_bytes(b"".join(b"k%d\tv%d\n" % (n % 5, n) for n in range(50)))
    topicfs("topics", "create", "orders", "--partitions", "3")
    for _ in range(2):
        assert 0 == topicfs("append", "--producer", "p", "orders/log.kv", str(source)).status
    lines = b"".join(topicfs("cat", f"orders/{n}/log.kv").output for n in range(3)).splitlines()
    assert sorted(lines) == sorted(source.read_bytes().splitlines())


def test_another_file_under_the_same_path_is_refused(topicfs, tmp_path):
    """If the path now leads to another file, the run is refused with the remedy."""
    source = tmp_path / "events.txt"
    source.write_bytes(b"a\nb\n")
    topicfs("topics", "create", "orders")
    topicfs("append", "--producer", "p", "orders/0", str(source))
    source.write_bytes(b"x\ny\nz\n")
    ran = topicfs("append", "--producer", "p", "orders/0", str(source))
    assert_refused(ran, "append a new file under another --producer name")


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.15])
def test_kill_9_at_any_moment_adds_no_line_twice(topicfs, tmp_path, directory, seconds):
    """After kill -9 at any moment, the next run appends the missing lines, and no line is stored twice."""
    source = tmp_path / "numbers.txt"
    source.write_bytes(b"".join(b"%d\n" % n for n in range(300_000)))
    topicfs("topics", "create", "orders")
    log = directory / "orders-0" / ("0" * 20 + ".log")
    process = subprocess.Popen([TOPICFS, "append", "--producer", "p", "orders/0", str(source)])
    try:
        # The kill may come at any moment after the first records are stored.
        while process.poll() is None and not (log.exists() and log.stat().st_size):
            time.sleep(0.001)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=seconds)
    finally:
        process.kill()
        process.wait()
    assert 0 == topicfs("append", "--producer", "p", "orders/0", str(source)).status
    assert topicfs("cat", "orders/0").output == source.read_bytes()
