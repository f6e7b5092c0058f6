"""`topicfs serve` and `topicfs mount --listen`, run from the command line."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import topicfs
from tests.doubles.waiting import wait_until
from tests.listener.daemon import PROGRAM, TIMEOUT_SECONDS, Daemon, mounted
from tests.listener.serving import RawClient
from tests.listener.test_clients import kcat
from topicfs.main import run


def test_serve(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """`topicfs serve` starts in an empty directory and ends cleanly. The next start has the records of the first."""
    for expected in ([], ["hello"]):
        server = daemon()
        with closing(RawClient(server.address)) as client:
            client.topic("t")
        assert expected == kcat("-C", "-b", server.address, "-t", "t", "-e", "-q").splitlines()
        kcat("-P", "-b", server.address, "-t", "t", lines=["hello"])
        assert 0 == server.end()
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_the_topics_of_a_served_directory(tmp_path: Path) -> None:
    """A command that would change a served directory is refused; the error names the option that uses the listener."""
    with topicfs.serve(tmp_path / "data") as server:
        for words, said in (
            ("topics create t", "or through its listener: --data kafka://HOST:PORT"),
            (
                "transactions abort --topic t --partition 0 --start-offset 0",
                "go through its listener: kafka-transactions --bootstrap-server HOST:PORT abort",
            ),
        ):
            command = [PROGRAM, *words.split(), "--data"]
            refused = subprocess.run(
                [*command, "data"], capture_output=True, text=True, cwd=tmp_path, check=False
            )
            assert f"in use by process {os.getpid()}; go " in refused.stderr
            assert refused.stderr.endswith(f"{said}\n")
        command = [PROGRAM, "topics", "create", "t", "--data", f"kafka://{server.bootstrap_servers}"]
        subprocess.run(command, check=True, timeout=TIMEOUT_SECONDS)


def test_metrics(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """`topicfs serve --metrics` serves the listener's metrics, and refuses a port that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [PROGRAM, "serve", "data", "--listen", "127.0.0.1:0", "--metrics", str(port)]
        refused = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert 1 == refused.returncode
    assert f"--metrics 127.0.0.1:{port}: Address already in use" in refused.stderr
    assert not (tmp_path / "data").exists()
    server = daemon("--metrics", "0")
    metrics = f"http://{server.read_address()}/metrics"
    with (
        closing(RawClient(server.address)),
        urllib.request.urlopen(metrics, timeout=TIMEOUT_SECONDS) as answer,
    ):
        assert b"\ntopicfs_listener_connections 1.0\n" in answer.read()
    assert 0 == server.end()


def test_settings_that_are_reloaded(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """After SIGHUP new topics get the reloaded settings."""
    file = tmp_path / "server.properties"
    file.write_text("auto.create.topics.enable=false\n")
    server = daemon("--config", "server.properties")
    with closing(RawClient(server.address)) as client:
        assert 3 == client.topic("t")["errorCode"]
        file.write_text("num.partitions=3\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: 0 == client.topic("t")["errorCode"], "the settings are reloaded")
        assert 3 == len(client.topic("t")["partitions"])
    assert 0 == server.end()


def test_a_hangup_without_a_file_of_settings(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """If there is no --config, SIGHUP ends the listener cleanly."""
    assert 0 == daemon().end(signal.SIGHUP)
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "data"], "--listen 127.0.0.1:9092"),
        (["serve", "data", "--listen", "9092"], "not an address"),
        (["serve", "data", "--listen", "0.0.0.0:0"], "--listen-any"),
        (
            ["serve", "data", "--listen", "localhost:0", "--advertise", "foo"],
            "'--advertise': foo: not an address",
        ),
        (["mount", "data", "mnt", "--advertise", "a:1"], "--listen HOST:PORT"),
        (
            ["serve", "data", "--listen-users", "users"],
            "--listen-users: also give an address with --listen HOST:PORT",
        ),
        (["serve", "data", "--listen", "127.0.0.1:0", "--tls-key", "key"], "--tls-certificate FILE"),
        (["serve", "data", "--listen", "127.0.0.1:0", "--tls-certificate", "none"], "none: No such file"),
        (["serve", "data", "--listen", "127.0.0.1:0", "--listen-users", "none"], "none: cannot read"),
        (["listener-user", "#alice"], "not a user's name"),
        (["mount", "kafka://a:1", "mnt", "--listen", "127.0.0.1:0"], "a cluster has its own brokers"),
    ],
)
def test_what_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    """An invalid command line prints a one-line error with the reason."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert 0 != run(arguments)
    assert said in capsys.readouterr().err


def test_a_password_is_one_line() -> None:
    """`listener-user` refuses a second line of standard input, which is not a part of the password."""
    command = [PROGRAM, "listener-user", "bob"]
    done = subprocess.run(command, input="one\ntwo\n", capture_output=True, text=True, check=False)
    assert (1, "") == (done.returncode, done.stdout)
    assert "standard input has more than one line; give the password alone" in done.stderr


@pytest.mark.fuse
def test_a_mount_and_clients(tmp_path: Path) -> None:
    """A client reads what a shell appends, a shell reads what a client produces, and the mount ends cleanly."""
    with mounted(tmp_path, "--listen", "127.0.0.1:0") as address:
        os.mkdir(tmp_path / "mnt" / "t")
        with (tmp_path / "mnt" / "t" / "0" / "log").open("a") as log:
            log.write("from a shell\n")
        assert ["from a shell"] == kcat("-C", "-b", address, "-t", "t", "-e", "-q").splitlines()
        kcat("-P", "-b", address, "-t", "t", lines=["from kcat"])
        assert "from a shell\nfrom kcat\n" == (tmp_path / "mnt" / "t" / "0" / "log").read_text()
        kcat("-P", "-b", address, "-t", "new", lines=["on demand"])
        assert "on demand\n" == (tmp_path / "mnt" / "new" / "0" / "log").read_text()
        with closing(RawClient(address)) as client:
            client.topic("t")
            lines = (tmp_path / "mnt" / "@status").read_text().splitlines()
            assert any(line.startswith("client connections 1 requests 1 errors 0 ") for line in lines)
            top = [PROGRAM, "top", "--json", "--interval", "0.1", "mnt"]
            shown = subprocess.run(
                top, check=True, cwd=tmp_path, timeout=TIMEOUT_SECONDS, capture_output=True
            )
            [row] = json.loads(shown.stdout)["clients"]
            assert ("test", "", 1, 0) == tuple(
                row[name] for name in ("client", "software", "connections", "requests_per_second")
            )
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
