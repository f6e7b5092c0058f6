"""Metrics of a real mount: in the file `@metrics`, over HTTP, at the end of the mount and after a kill."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException

import pytest
from prometheus_client.parser import text_string_to_metric_families

from testing.ports import reserve_ports
from tests.doubles.forks import FORKS, MOUNT
from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount

pytestmark = pytest.mark.fuse


def scraped(text: str) -> dict[tuple[str, ...], float]:
    """Return the samples by name and labels."""
    return {
        (one.name, *(one.labels[label] for label in sorted(one.labels))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def answered(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def metrics(mount: Mount) -> dict[tuple[str, ...], float]:
    return scraped((mount.path / "@metrics").read_text())


def test_requests_are_counted_whoever_answers_them(unmounted: Mount):
    """Requests, bytes and errors are counted, whether the request loop or pyfuse3 answers the request."""
    unmounted.start()
    unmounted.bash(
        "mkdir orders; echo one >> orders/0/log; cat orders/0/0; cat orders/0/99; sync orders/0/log; :"
    )
    found = metrics(unmounted)
    name = "topicfs_request_duration_seconds_count"
    counts = {key[1]: value for key, value in found.items() if key[0] == name}
    assert {"mkdir": 1, "write": 1, "fsync": 1} == {
        kind: counts[kind] for kind in ("mkdir", "write", "fsync")
    }
    assert counts["lookup"] >= 6
    assert counts["read"] >= 1
    assert 1 <= found["topicfs_request_errors_total", "ENOENT", "lookup"]
    assert (4, 3) == (found["topicfs_mount_written_bytes_total",], found["topicfs_mount_read_bytes_total",])
    assert 1 == found["topicfs_appended_records_total", "orders"]


def test_reads_that_wait_are_counted_apart(unmounted: Mount):
    """Reads that wait for records are counted as `follow`, not as `read`."""
    unmounted.start()
    unmounted.bash("mkdir orders")
    with subprocess.Popen(
        ["head", "-n", "1", str(unmounted.path / "orders/0/follow")], stdout=subprocess.PIPE
    ) as head:
        wait_until(lambda: metrics(unmounted)["topicfs_waiting_reads",] == 1, "the read waits")
        unmounted.bash("echo one >> orders/0/log")
        assert b"one\n" == head.communicate(timeout=60)[0]
    found = metrics(unmounted)
    assert 1 <= found["topicfs_request_duration_seconds_count", "follow"]


def test_prometheus_gets_the_text_of_the_metrics_file(unmounted: Mount):
    """With port 0, the server listens on a free port of the loopback interface, and serves the text of `@metrics`."""
    unmounted.start(metrics="0")
    unmounted.bash("mkdir orders; echo one >> orders/0/log")
    url = unmounted.shown("metrics")
    assert url.startswith("http://127.0.0.1:")
    over_http = scraped(answered(url))
    assert 1 == over_http["topicfs_appended_records_total", "orders"]
    assert over_http.keys() <= metrics(unmounted).keys()


@pytest.mark.promtool
def test_promtool_finds_nothing(unmounted: Mount):
    """promtool accepts the metrics even if they contain hostile names."""
    unmounted.start(metrics="0")
    unmounted.bash(
        r"""mkdir orders a.b_c-d; echo one >> orders/0/log; mkdir "@groups/a\"b\\c{}='"; cat orders/0/0 orders/0/7; :"""
    )
    for text in (answered(unmounted.shown("metrics")), (unmounted.path / "@metrics").read_text()):
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_a_port_in_use_prevents_the_mount(unmounted: Mount):
    """If the port is in use, the mount fails with a one-line error and creates nothing."""
    with socket.create_server(("127.0.0.1", port := reserve_ports(1)[0])):
        asked = {
            "directories": str(unmounted.data),
            "mountpoint": str(unmounted.path),
            "metrics": f"127.0.0.1:{port}",
        }
        done = FORKS.run(MOUNT, json.dumps(asked))
    expected = f"topicfs: --metrics 127.0.0.1:{port}: Address already in use; another program uses this port: choose another one\n"
    assert (1, "", expected) == (done.status, done.output.decode(), done.errors.decode())
    assert not unmounted.data.exists()
    unmounted.start(metrics=f"127.0.0.1:{port}")


def test_a_killed_daemon_leaves_its_port_free(unmounted: Mount):
    """After a daemon was killed, the next daemon can use the port immediately, and counts the recovered logs."""
    unmounted.start(metrics=str(port := reserve_ports(1)[0]))
    unmounted.bash("mkdir orders; echo one >> orders/0/log")
    url = unmounted.shown("metrics")
    with socket.create_connection(("127.0.0.1", port)):
        answered(url)
        unmounted.kill()
        subprocess.run(["fusermount3", "-u", "-z", str(unmounted.path)], check=True)
        unmounted.start(metrics=str(port))
    found = scraped(answered(url))
    assert 1 == found["topicfs_log_recoveries_total",]
    assert 0 == found["topicfs_appended_records_total", "orders"]


def test_scrapes_do_not_hold_up_the_end(unmounted: Mount):
    """Neither running scrapes nor a silent connection delays the end of a mount."""
    unmounted.start(metrics="0")
    unmounted.bash("mkdir orders; echo one >> orders/0/log")
    url, ended = unmounted.shown("metrics"), threading.Event()
    port = int(url.rpartition(":")[2].partition("/")[0])

    def scrape(_: int) -> int:
        count = 0
        while not ended.is_set():
            with suppress(OSError, HTTPException):  # The server is ending, or is busy.
                assert "topicfs_appends_total" in answered(url)
                count += 1
        return count

    with socket.create_connection(("127.0.0.1", port)) as silent, ThreadPoolExecutor(3) as threads:
        silent.send(b"GET /metrics HT")
        scrapes = [threads.submit(scrape, number) for number in range(3)]
        wait_until(lambda: "topicfs_appends_total" in answered_or_nothing(url), "a scrape is answered")
        os.kill(unmounted.pid, signal.SIGTERM)
        try:
            assert 0 == unmounted.daemon.wait(60)
        finally:
            ended.set()
        for one in scrapes:
            one.result()
    assert (unmounted.data / ".kafka_cleanshutdown").exists()


def answered_or_nothing(url: str) -> str:
    try:
        return answered(url)
    except (OSError, urllib.error.URLError):
        return ""


def test_deleted_topics_share_a_series(unmounted: Mount):
    """The counts of deleted topics are added to one series, so that no sum goes back."""
    unmounted.start(allow_delete=True)
    unmounted.bash("mkdir orders clicks; echo x >> orders/0/log; seq 3 >> clicks/0/log; rmdir clicks")
    found = metrics(unmounted)
    appended = {key[1]: value for key, value in found.items() if key[0] == "topicfs_appended_records_total"}
    assert {"orders": 1, "@others": 3} == appended
    assert 1 == found["topicfs_topics",]
