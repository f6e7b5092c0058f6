"""Tests that broken shared fixtures are repaired, and that a failed run prints how to repeat each failure."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from testing.broker.broker import running_cluster
from testing.broker.libraries import find_java
from testing.ports import FIRST_PORT, reserve_ports
from tests import repairs
from tests.doubles.waiting import wait_until

ROOT = Path(__file__).parents[1]
SHARED = """
import pytest

class Broker:
    def __init__(self):
        self.running = True
    def works(self):
        return self.running

@pytest.fixture(scope="session")
def broker():
    print("starts", file=open("events", "a"))
    yield Broker()
    print("ends", file=open("events", "a"))

@pytest.fixture(scope="module")
def client(broker):
    print("connects", file=open("events", "a"))
    return broker
"""
PLUGINS = ("tests.randomness", "tests.repairs", "_hypothesis_pytestplugin")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tests in a folder with the pytest plugins that this module tests."""
    plugins = [word for plugin in (*PLUGINS, "no:cacheprovider") for word in ("-p", plugin)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(folder), *plugins, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_broker_that_a_test_stopped_is_started_for_the_next_one(tmp_path):
    """A stopped broker and the fixtures that depend on it are set up again; only the test that stopped it fails."""
    (tmp_path / "conftest.py").write_text(SHARED)
    (tmp_path / "test_it.py").write_text(
        "def test_a(client):\n    client.running = False\n    assert client.running\n"
        "def test_b(client): assert client.running\ndef test_c(client): assert client.running\n"
    )
    done = run(tmp_path)
    assert "1 failed, 2 passed" in done.stdout, done.stdout
    expected = ["starts", "connects", "ends", "starts", "connects", "ends"]
    assert expected == (tmp_path / "events").read_text().split()


@pytest.mark.slow
def test_a_fixture_that_failed_once_is_set_up_again(tmp_path):
    """A fixture whose setup failed is set up once more, and not again for each test that needs it."""
    (tmp_path / "conftest.py").write_text(
        "import pytest, pathlib\n@pytest.fixture(scope='session')\ndef broker():\n"
        "    tries = pathlib.Path('tries')\n    tries.write_text((tries.read_text() if tries.exists() else '') + 'x')\n"
        "    assert len(tries.read_text()) == pathlib.Path('works_at').stat().st_size\n"
        "    return type('Broker', (), {'works': lambda self: True})()\n"
    )
    (tmp_path / "test_it.py").write_text("".join(f"def test_{n}(broker): pass\n" for n in range(4)))
    (tmp_path / "works_at").write_text("xx")
    assert "3 passed, 1 error" in run(tmp_path).stdout
    (tmp_path / "works_at").write_text("x" * 100)
    (tmp_path / "tries").unlink()
    assert "4 errors" in run(tmp_path).stdout
    assert "xx" == (tmp_path / "tries").read_text()


@pytest.mark.slow
def test_a_failed_run_ends_with_the_command_that_repeats_each_failure(tmp_path):
    """After its summary a failed run prints, for each failure, a command with the seed that repeats the failure."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.parametrize('what', ['a b', \"it's\"])\n"
        "def test_it(chance, what): assert 0, chance.randrange(1 << 30)\ndef test_fine(): pass\n"
    )
    done = run(tmp_path)
    lines = done.stdout.splitlines()
    commands = [line for line in lines if line.startswith(".venv/bin/python -m pytest --random-seed=")]
    assert 2 == len(commands), done.stdout
    assert lines[-3:-1] == commands
    assert any("test_it.py::test_it[a b]" in command for command in commands)
    again = [command.replace(".venv/bin/python -m pytest", "").strip() for command in commands]
    for arguments in again:
        option, nodeid = subprocess.run(
            ["bash", "-c", f"printf '%s\\n' {arguments}"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        repeated = run(tmp_path, option, nodeid)
        [reason] = [line for line in repeated.stdout.splitlines() if line.startswith("E   AssertionError")]
        assert reason in done.stdout


def test_a_reserved_port_is_given_once(tmp_path):
    """Reserved ports are unique, even across processes, and are below the kernel's ephemeral ports."""
    ports = reserve_ports(20)
    assert 20 == len(set(ports))
    assert all(FIRST_PORT <= port < 32_768 for port in ports)
    code = f"import random, sys\nfrom testing import ports\nports.random.Random = lambda _: Fixed()\nclass Fixed:\n    def sample(self, *_): return {ports}\ntry:\n    ports.reserve_ports(1)\nexcept ports.NoPortError: print('none left')"
    other = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "none left\n" == other.stdout
    with socket.create_server(("127.0.0.1", ports[0])):
        pass


@pytest.mark.java
@pytest.mark.slow
def test_brokers_that_are_dead_paused_or_fenced_do_not_work(tmp_path):
    """A shared cluster with a dead, paused or fenced broker counts as broken."""
    with running_cluster(tmp_path, find_java()) as brokers:
        works = repairs.CHECKS["three_brokers"]
        assert works(brokers)
        with brokers[2].paused():
            assert not works(brokers)
        assert works(brokers)
        brokers[3].kill()
        assert not works(brokers)
        brokers[3].start()
        wait_until(lambda: works(brokers), "all three brokers are listed again")


@pytest.mark.spark
@pytest.mark.slow
def test_a_spark_session_whose_java_was_killed_does_not_work(tmp_path):
    """A Spark session whose Java process was killed counts as broken."""
    code = """
import os, signal, sys, pathlib
from tests.pipeline.conftest import _start, _stop
from tests import repairs
works = repairs.CHECKS["spark"]
one = _start(pathlib.Path(sys.argv[1]), jars="")
assert works(one)
process = one.sparkContext._gateway.proc
process.kill()
process.wait()
assert not works(one)
_stop(one)
other = _start(pathlib.Path(sys.argv[1]), jars="")
assert works(other) and 3 == other.range(3).count()
other.stop()
assert not works(other)
print("two sessions")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "two sessions\n" == done.stdout, done.stderr
