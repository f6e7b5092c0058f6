"""Tests of a mount of three brokers, in which four shells append and two programs follow while leaders fail."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from testing.broker.broker import Broker
from testing.broker.client import Client
from testing.processes import started
from tests.doubles.broker_away import away
from tests.doubles.cluster_mount import bash, mounted_cluster
from tests.doubles.waiting import wait_until
from topicfs.cluster.place import cluster_address

pytestmark = [pytest.mark.java, pytest.mark.fuse]

WRITERS = ("a", "b", "c", "d")
APPEND = """
    number=0
    until [ -e ../stop ]; do
        line="$NAME $number"
        if echo "$line" >> "$TOPIC/0/log"; then echo "$line" >> "../acknowledged-$NAME"; else echo "$line" >> ../refused; fi
        number=$((number + 1))
        read -rt 0.02 # Nothing comes: it rests for that long, and starts no program.
    done
"""


@contextmanager
def programs(mountpoint: Path, topic: str) -> Iterator[None]:
    """Run four appending shells and two followers; after the `with` block all shells have ended."""
    with ExitStack() as stack:
        for name, command in {
            "followed": f"exec cat {topic}/0/follow",
            "tailed": f"exec tail -c +1 -f -s 0.1 {topic}/0/log",
        }.items():
            output = stack.enter_context((mountpoint.parent / name).open("wb"))
            stack.enter_context(started(("bash", "-c", command), cwd=mountpoint, stdout=output))
        wait_until(
            lambda: "waiting_reads 1 of" in (mountpoint / "@status").read_text(),
            "the reader of follow waits",
        )
        shells = [
            stack.enter_context(
                started(
                    ("bash", "-c", APPEND),
                    cwd=mountpoint,
                    env={"NAME": name, "TOPIC": topic, "PATH": "/bin"},
                    stdin=subprocess.PIPE,
                )
            )
            for name in WRITERS
        ]
        yield
        (mountpoint.parent / "stop").touch()
        for shell in shells:
            shell.wait(120)
        end = (mountpoint / topic / "0/log").read_bytes()
        for name in ("followed", "tailed"):
            wait_until(lambda name=name: lines(mountpoint, name) == end.splitlines(), f"all lines are {name}")


def lines(mountpoint: Path, name: str) -> list[bytes]:
    path = mountpoint.parent / name
    return path.read_bytes().splitlines() if path.exists() else []


def wait_for_more(mountpoint: Path) -> None:
    """Wait until each shell has five more successful lines and both followers have printed new ones."""
    files = [*(f"acknowledged-{name}" for name in WRITERS), "followed", "tailed"]
    before = [len(lines(mountpoint, name)) for name in files]
    wait_until(
        lambda: all(len(lines(mountpoint, name)) > had + 5 for name, had in zip(files, before, strict=True)),
        "all shells and followers continue",
        timeout_seconds=120,
    )


@pytest.mark.parametrize("how", ["stopped", "killed", "standing still", "cut off"])
def test_no_line_is_lost_or_doubled(three_brokers: Mapping[int, Broker], tmp_path: Path, how: str):
    """Each acknowledged line is stored and followed once and in order, and other requests are answered meanwhile."""
    client = Client(three_brokers[1].bootstrap_server)
    topic = f"shells-{how.replace(' ', '-')}"
    client.create_topic(topic, replicas=(2, 3, 1), settings={"min.insync.replicas": "2"})
    with mounted_cluster(cluster_address(f"kafka://{client.bootstrap_server}"), tmp_path) as mountpoint:
        wait_until((mountpoint / topic / "0/log").exists, "the topic shows")
        with programs(mountpoint, topic):
            wait_for_more(mountpoint)
            with away(three_brokers[2], how):
                listing = f"ls {topic}/0; stat -c %n {topic}/0/log; cat {topic}/0/start; cat @status"
                with ThreadPoolExecutor(1) as meanwhile:
                    listed = meanwhile.submit(bash, mountpoint, listing)
                    if how in {"standing still", "cut off"}:
                        # These brokers return only after the log has reported the waiting calls.
                        warning = f"warning {topic}-0: no answer for"
                        wait_until(
                            lambda: warning in (mountpoint / "@status").read_text(),
                            "the log reports the waiting calls",
                        )
                assert "" == listed.result().errors
                wait_for_more(mountpoint)
            wait_for_more(mountpoint)
    followed = lines(mountpoint, "followed")
    # A resumed broker may briefly answer as the old leader, with an earlier end.
    wait_until(lambda: len(client.records(topic)) >= len(followed), "a broker has all followed records")
    written = [record.value for record in client.records(topic)]
    for name in WRITERS:
        mine = [line for line in written if line is not None and line.startswith(name.encode())]
        assert mine == lines(mountpoint, f"acknowledged-{name}")
    assert [] == lines(mountpoint, "refused")
    assert written == followed == lines(mountpoint, "tailed")
