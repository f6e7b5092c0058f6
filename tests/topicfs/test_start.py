"""Tests of the start of the command: which modules are imported, and the lines of the help."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from topicfs.main import COMMANDS, cli

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HEAVY = (
    "trio._core",
    "crc32c",
    "outcome",
    "cramjam",
    "lz4",
    "isal",
    "zlib_ng",
    "zstandard",
    "ssl",
    "http",
    "topicfs.cluster.protocol",
    "topicfs.storage.log.appending",
    "topicfs.storage.log.replacer",
    "topicfs.storage.segment.trace",
    "click.shell_completion",
    "concurrent.futures.thread",
    "topicfs.fusefs.tree.groups",
    "topicfs.fusefs.tree.queues",
    "topicfs.coordination.membership",
    "topicfs.coordination.share_groups",
    "topicfs.storage.directories.cluster_metadata",
    "topicfs.storage.compaction",
    "topicfs.coordination.groups",
    "topicfs.replication.embedded_services",
    "topicfs.replication.scrub",
    "topicfs.coordination.shares",
    "topicfs.storage.staging",
    "topicfs.replication.replicas.engine",
)


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (
            "--help",
            (
                "topicfs.storage",
                "topicfs.coordination",
                "topicfs.replication",
                "topicfs.fusefs",
                "topicfs.cluster",
                "topicfs.schemas",
                "topicfs.commands",
                "logging",
            ),
        ),
        ("cat orders/0/1", HEAVY),
        ("cat orders/0/status orders/log.json", HEAVY),
    ],
)
def test_a_command_imports_what_it_needs(orders, directory, words, unwanted):
    """The help imports no subcommand; `cat` imports neither an event loop nor code that writes."""
    del orders
    program = (
        "import atexit, sys; from topicfs.main import main; "
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *words.split()],
        cwd=directory.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout
    assert [] == sorted(set(unwanted) & set(ran.stderr.split()))


SERVER = """
import sys
from contextlib import closing
from pathlib import Path
from topicfs.listener.address import Endpoint
from topicfs.listener.listener import Listener, ListenerOptions
from topicfs.replication import open_directories
from topicfs.storage.config.broker import EngineConfig

with (
    closing(open_directories([Path(sys.argv[1])])) as engine,
    closing(Listener(ListenerOptions(endpoint=Endpoint("127.0.0.1", 0)))) as listener,
):
    listener.serve(engine, EngineConfig())
    print(*sys.modules)
"""


def test_a_server_imports_what_it_needs(tmp_path):
    """A listener imports no code of TLS, users, groups, transactions or duties before it needs this code."""
    command = [sys.executable, "-c", SERVER, tmp_path / "data"]
    imported = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "topicfs.listener.requests.table" in imported
    unneeded = {
        "ssl",
        "hmac",
        "json",
        "random",
        "encodings.idna",
        "trio",
        "pyfuse3",
        "topicfs.coordination.groups",
        "topicfs.coordination.transactions",
        "topicfs.listener.requests.fetch",
        "topicfs.listener.security.users",
        "topicfs.storage.compaction",
        "topicfs.storage.staging.area",
    }
    assert [] == sorted(unneeded & {*imported})


def test_each_command_has_a_short_line_in_the_help(topicfs):
    """The short help of each command fits into 80 columns, and the manual has the same text."""
    listed, width = topicfs("--help").text, max(map(len, COMMANDS))
    for name, (_, short_help) in COMMANDS.items():
        assert f"  {name:{width}}  {short_help}\n" in listed
        assert short_help == cli.get_command(click.Context(cli), name).get_short_help_str(limit=64)
