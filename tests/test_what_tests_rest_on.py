"""Tests of the rules of a test run: a build machine skips no test, and every random choice can be repeated."""

from __future__ import annotations

import ast
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from testing import spark_home
from testing.broker.broker import Broker, BrokerError
from testing.broker.client import Client
from testing.broker.libraries import Java
from testing.java import archive_of, quick_start
from testing.spark_python import spark_python
from testing.stacks import printed_if_late
from tests.build_machine import is_build_machine
from tests.doubles.waiting import wait_until
from tests.scheduling import MOUNTS_OF_A_CLUSTER, SECONDS, SHARING, group_of
from topicfs.fusefs.processes.signals import look

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
SKIPS = {
    "test_mark.py": "import pytest\n@pytest.mark.skip(reason='no device')\ndef test_it(): pass\n",
    "test_fixture.py": "import pytest\n@pytest.fixture\ndef java(): pytest.skip('no device')\ndef test_it(java): pass\n",
    "test_test.py": "import pytest\ndef test_it(): pytest.skip('no device')\n",
    "test_module.py": "import pytest\npytest.importorskip('no_such_module', reason='no device')\ndef test_it(): pass\n",
}
"""Test files that skip in every possible way: by a mark, a fixture, the test itself, and the module."""
PYTEST_FAILED = 1
BUILD_MACHINE = ("tests.build_machine",)
PLUGINS = (*BUILD_MACHINE, "tests.randomness", "_hypothesis_pytestplugin")


def run(folder: Path, test: str, *arguments: str, ci: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a test file with this project's plugins."""
    (folder / "test_it.py").write_text(test)
    return run_files(folder, "test_it.py", *arguments, ci=ci)


def run_files(
    folder: Path, *arguments: str, ci: str | None, plugins: tuple[str, ...] = PLUGINS
) -> subprocess.CompletedProcess[str]:
    """Run test files with only the given plugins, because importing plugins takes time."""
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            os.devnull,
            "--rootdir",
            str(folder),
            *(word for plugin in (*plugins, "no:cacheprovider") for word in ("-p", plugin)),
            *arguments,
        ],
        cwd=folder,
        env=environment if ci is None else environment | {"CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_skip_fails_on_a_build_machine(tmp_path, monkeypatch):
    """On a build machine every kind of skip fails with its reason; elsewhere, or if CI is empty, it stays a skip."""
    for name, test in SKIPS.items():
        (tmp_path / name).write_text(test)
    failed = run_files(tmp_path, "--continue-on-collection-errors", *SKIPS, ci="true", plugins=BUILD_MACHINE)
    assert PYTEST_FAILED == failed.returncode
    lines = [line for line in failed.stdout.splitlines() if line.endswith("Skipped: no device")]
    for name in SKIPS:
        assert any(line.startswith(name) and "a build machine leaves out no test: " in line for line in lines)
    assert "skipped" not in failed.stdout
    assert f"{len(SKIPS)} skipped" in run_files(tmp_path, *SKIPS, ci=None, plugins=BUILD_MACHINE).stdout
    for ci, expected in (("", False), ("false", False), ("true", True)):
        monkeypatch.setenv("CI", ci)
        assert expected is is_build_machine()


def test_files_that_share_something_costly_are_there():
    """Each pattern in SHARING matches a file, and each name in SECONDS is a group or a file."""
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    groups = {file: group_of(file) for file in files}
    for group, patterns in SHARING.items():
        for pattern in patterns:
            assert group in {groups[file] for file in files if fnmatchcase(file, pattern)}, pattern
    assert set(SECONDS) <= {*groups.values(), MOUNTS_OF_A_CLUSTER}
    mounted = "tests/fusefs/mounted/test_errnos.py"
    assert MOUNTS_OF_A_CLUSTER == group_of(mounted, f"{mounted}::test_eperm[cluster-rename]")
    assert mounted == group_of(mounted, f"{mounted}::test_eperm[directory-rename]")
    assert "three brokers" == group_of("tests/cluster/mirror/test_three_brokers.py")
    assert "tests/pipeline/test_exactly_once.py" == group_of("tests/pipeline/test_exactly_once.py")


def test_files_that_need_three_brokers_are_one_group():
    """All files that need three brokers form one group, so that only one process of a run starts three brokers."""
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    using = {file for file in files if re.search(r"def test_.*\bthree_brokers\b", (ROOT / file).read_text())}
    assert using
    assert {"three brokers"} == {group_of(file) for file in using}


def test_what_a_group_shares_ends_with_it(tmp_path):
    """In a parallel run a session fixture ends with its group instead of with the process."""
    fixture = (
        "import pytest\n@pytest.fixture(scope='session')\ndef broker():\n    print('begins', end=' ', file=open('said', 'a'))\n"
        "    yield\n    print('ends', end=' ', file=open('said', 'a'))\n"
    )
    (tmp_path / "conftest.py").write_text(fixture)
    for name in ("test_one.py", "test_other.py"):
        (tmp_path / name).write_text("def test_a(broker): pass\ndef test_b(broker): pass\n")
    options = ("-p", "xdist", "-p", "tests.scheduling", "-n", "1", "--dist", "loadfile")
    assert 0 == run_files(tmp_path, *options, ci=None, plugins=BUILD_MACHINE).returncode
    assert "begins ends begins ends " == (tmp_path / "said").read_text()


def test_a_process_may_get_no_group(tmp_path):
    """A run passes although its first processes take all groups of tests, and no group is left for the others."""
    for number in range(4):
        (tmp_path / f"test_{number}.py").write_text("def test_it(): pass\n")
    options = ("-p", "xdist", "-p", "tests.scheduling", "-n", "4", "--dist", "loadfile")
    done = run_files(tmp_path, *options, ci=None, plugins=BUILD_MACHINE)
    assert "4 passed" in done.stdout


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_run_ends_although_a_process_of_it_dies(tmp_path, place):
    """If a process ends during a test, that test fails, and the remaining tests run in another process."""
    (tmp_path / "test_before.py").write_text("def test_it(): pass\n")
    bodies = ["pass"] * 3
    bodies[place] = "os._exit(1)"
    tests = "".join(f"def test_{number}(): {body}\n" for number, body in enumerate(bodies))
    (tmp_path / "test_dying.py").write_text(f"import os\n{tests}")
    options = ("-p", "xdist", "-p", "tests.scheduling", "-n", "1", "--dist", "loadfile")
    done = run_files(tmp_path, *options, ci=None, plugins=BUILD_MACHINE)
    assert "1 failed, 3 passed" in done.stdout


@pytest.mark.spark
def test_the_home_of_spark_follows_the_environment(monkeypatch, tmp_path):
    """Spark's home links to the present environment, even if it linked to an earlier one, and has no zip of modules."""
    monkeypatch.setattr(spark_home, "HOME", tmp_path)
    (tmp_path / "bin").symlink_to(tmp_path / "of an old environment")
    assert tmp_path == spark_home.spark_home() == spark_home.spark_home()
    assert sorted(spark_home.PARTS) == sorted(path.name for path in tmp_path.iterdir())
    assert (tmp_path / "bin" / "spark-submit").exists()


@pytest.fixture
def sockets():
    """A folder with a short path, because the path of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="spark") as folder:
        yield folder


def spark_daemon(folder, sockets, errors=subprocess.DEVNULL):
    """Start a Spark Python daemon as Spark starts it."""
    variables = {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets}
    return subprocess.Popen(
        [spark_python(), "-m", "pyspark.daemon", "pyspark.worker"],
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
    )


@pytest.mark.spark
def test_sparks_python_processes_are_forked_after_their_imports(tmp_path, sockets):
    """A process forked for a program of Spark works in the program's folder; the program ends with its own status."""
    with spark_daemon(tmp_path, sockets) as one, spark_daemon(tmp_path, sockets) as other:
        for daemon in (one, other):
            size = int.from_bytes(daemon.stdout.read(4))
            with socket.socket(socket.AF_UNIX) as worker:
                worker.connect(daemon.stdout.read(size))
                process = Path(f"/proc/{int.from_bytes(worker.recv(4))}")
                assert "testing.spark_forks" in (process / "cmdline").read_text()
                assert tmp_path == (process / "cwd").readlink()
        one.stdin.close()
        other.terminate()
        assert [b"", b""] == [daemon.stdout.read() for daemon in (one, other)]
        # A daemon exits with status 1 when its input ends.
        assert [1, -signal.SIGTERM] == [daemon.wait() for daemon in (one, other)]


@pytest.mark.spark
def test_the_forking_process_outlives_killed_programs(tmp_path, sockets):
    """The forking process survives kills of the programs at any point, even together with the forked processes."""
    for pause_seconds in (0.0, 0.03, 0.06):
        with spark_daemon(tmp_path, sockets) as ended:
            time.sleep(pause_seconds)
            ended.kill()
    with spark_daemon(tmp_path, sockets) as ended:
        size = int.from_bytes(ended.stdout.read(4))
        with socket.socket(socket.AF_UNIX) as worker:
            worker.connect(ended.stdout.read(size))
            forked = look(int.from_bytes(worker.recv(4))).parent
        forks = look(forked).parent
        os.kill(forks, signal.SIGSTOP)  # Stop the forking process until both other processes have ended.
        os.kill(forked, signal.SIGKILL)
        wait_until(lambda: look(forked) is None, "the forked process has ended")
        ended.kill()
        ended.wait()
        os.kill(forks, signal.SIGCONT)
    with spark_daemon(tmp_path, sockets) as daemon:
        assert int.from_bytes(daemon.stdout.read(4))
    assert look(forks) is not None


@pytest.mark.spark
def test_what_waits_for_spark_prints_stacks(tmp_path, sockets, capfd):
    """A test that waits too long prints the stacks of the Python processes that were forked for Spark."""
    with spark_daemon(tmp_path, sockets, errors=None) as daemon:
        daemon.stdout.read(int.from_bytes(daemon.stdout.read(4)))
        with printed_if_late(0.01):
            wait_until(lambda: "in manager" in capfd.readouterr().err, "the daemon prints its stack")
        daemon.stdin.close()


@pytest.mark.java
def test_a_class_archive_of_another_java_is_ignored(tmp_path):
    """Java ignores a class data archive of another Java version without a message."""
    (tmp_path / "other.jsa").write_bytes(b"of another Java")
    flags = [
        flag.replace(str(archive_of("kafka")), str(tmp_path / "other.jsa")) for flag in quick_start("kafka")
    ]
    done = subprocess.run(["java", *flags, "-version"], capture_output=True, text=True, check=True)
    assert "" == done.stdout
    assert "other.jsa" not in done.stderr


def test_one_rule_reads_whether_it_is_a_build_machine():
    """Only `tests/build_machine.py` reads the variable CI, so that no other code can skip tests on a build machine."""
    readers = [
        path
        for path in (ROOT / "tests").rglob("*.py")
        if re.search(r"""environ.*["']CI["']""", path.read_text())
    ]
    assert [ROOT / "tests" / "build_machine.py", Path(__file__)] == sorted(readers)


def test_the_build_script_sets_ci(tmp_path):
    """`.ci/run` sets CI=true for `make test` and the benchmarks, however `.ci/run` was started."""
    programs = tmp_path / "programs"
    python = tmp_path / "checkout" / ".venv" / "bin" / "python"
    for program in (programs / "make", python):
        program.parent.mkdir(parents=True)
        program.write_text('#!/bin/sh\necho "$(basename "$0") CI=$CI"\n')
        program.chmod(0o755)
    script = tmp_path / "checkout" / ".ci" / "run"
    script.parent.mkdir()
    shutil.copy(ROOT / ".ci" / "run", script)
    path = f"{programs}:{os.environ['PATH']}"
    done = subprocess.run([script], env={"PATH": path}, capture_output=True, text=True, check=True)
    assert ["make CI=true", "python CI=true"] == done.stdout.splitlines()


DRAWS = "def test_it(chance):\n    assert chance is None, [chance.randrange(1000) for _ in range(3)]\n"


def drawn(done: subprocess.CompletedProcess[str]) -> str:
    return re.findall(r"AssertionError: (\[.*\])", done.stdout)[0]


def test_a_failure_prints_the_seed_that_makes_it_again(tmp_path):
    """Each run draws a new seed; the printed seed repeats the numbers, and another seed gives other numbers."""
    first = run(tmp_path, DRAWS)
    (option,) = re.findall(r"have it again with (--random-seed=\d+)", first.stdout)
    assert drawn(first) == drawn(run(tmp_path, DRAWS, option))
    assert drawn(first) != drawn(run(tmp_path, DRAWS))


@pytest.mark.parametrize("ci", [None, "true"])
def test_hypothesis_prints_how_to_have_its_example_again(tmp_path, ci):
    """Hypothesis prints how to repeat a failing example; build machines also get new examples and no time limits."""
    test = (
        "from hypothesis import given, settings, strategies as st\n"
        "@given(st.integers())\n"
        "def test_it(n):\n"
        "    assert (False, None) == (settings().derandomize, settings().deadline)\n"
        "    assert n < 1000\n"
    )
    failed = run(tmp_path, test, ci=ci).stdout
    assert "assert 1000 < 1000" in failed
    assert "@reproduce_failure" in failed


DRAWS_OF_ITS_OWN = {"choice", "random", "randbytes", "randint", "randrange", "sample", "shuffle", "uniform"}


def unseeded(source: str) -> list[str]:
    """Return the calls in `source` that draw random numbers, or make a generator, without a seed."""
    tree = ast.parse(source)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    own = [
        call.func
        for call in calls
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
    ]
    drawn = [
        func.attr for func in own if func.value.id == "random" in imported and func.attr in DRAWS_OF_ITS_OWN
    ]
    bare = [ast.unparse(call) for call in calls if not call.args and not call.keywords]
    return drawn + [call for call in bare if call in {"Random()", "random.Random()"}]


def test_no_test_draws_numbers_that_cannot_be_drawn_again():
    """Tests give every `random.Random` a seed, and do not use the functions of the module `random`."""
    assert ["randrange", "Random()"] == unseeded("import random\nrandom.randrange(3)\nRandom(1)\nRandom()\n")
    found = [path for path in (ROOT / "tests").rglob("*.py") if unseeded(path.read_text())]
    # This program draws a seed if none is given, and prints the seed.
    assert [ROOT / "tests" / "soak" / "queries.py"] == found


def plain(node: ast.expr) -> bool:
    """Return whether an expression has only constants, names in capitals, and collections of these."""
    if isinstance(node, ast.Name):
        return node.id.isupper()
    if not isinstance(
        node, ast.Constant | ast.List | ast.Tuple | ast.Set | ast.Dict | ast.UnaryOp | ast.BinOp
    ):
        return False
    return all(plain(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


def compared(test: ast.expr) -> list[ast.Compare]:
    """Return the comparisons that an assertion makes itself, without those in nested expressions."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [found for value in test.values for found in compared(value)]
    return [test] if isinstance(test, ast.Compare) else []


def actual_first(source: str) -> list[str]:
    """Return the assertions in `source` whose expected value is on the right of the comparison."""
    asserted = [node.test for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]
    return [
        ast.unparse(one)
        for test in asserted
        for one in compared(test)
        if isinstance(one.ops[0], ast.Eq) and plain(one.comparators[0]) and not plain(one.left)
    ]


def test_the_expected_value_comes_first():
    """In every assertion a literal expected value comes first, so that all failures can be read the same way."""
    assert ["f(x) == [1, None]", "a == -A"] == actual_first(
        "assert f(x) == [1, None]\nassert 1 == b and a == -A\n"
    )
    for path in sorted((ROOT / "tests").rglob("*.py")):
        assert [] == actual_first(path.read_text()), path


def test_a_broker_is_started_by_the_main_thread(tmp_path):
    """A broker refuses to start in a pool's thread, because the kernel would kill the broker when the thread ends."""
    broker = Broker(tmp_path, Java("java", tmp_path))
    with ThreadPoolExecutor(1) as threads, pytest.raises(BrokerError, match="start it in the main thread"):
        threads.submit(broker.start).result()
    assert not broker.running


@pytest.mark.parametrize("passing", ["_DESTROY_BROKER", "_NOENT", "LEADER_NOT_AVAILABLE"])
def test_requests_are_repeated_while_brokers_come_and_go(passing, monkeypatch):
    """The tests' client repeats a request if its broker goes away, or if no partition has a leader yet."""
    answers = [KafkaException(KafkaError(getattr(KafkaError, passing))), SimpleNamespace(offset=42)]

    def answer(_seconds: float) -> SimpleNamespace:
        if isinstance(one := answers.pop(0), KafkaException):
            raise one
        return one

    admin = SimpleNamespace(
        list_offsets=lambda asked: {place: SimpleNamespace(result=answer) for place in asked}
    )
    monkeypatch.setattr(Client, "admin", admin)
    assert 42 == Client("127.0.0.1:1").offset_for("orders")


@pytest.mark.parametrize("turn", ["first", "second"])
def test_logs_go_nowhere_after_a_test(turn):
    """Log handlers and levels that a command has set are reset before the next test."""
    assert logging.WARNING == logging.getLogger().level
    assert logging.NullHandler not in map(type, logging.getLogger().handlers)
    logging.basicConfig(handlers=[logging.NullHandler()], level=logging.DEBUG, force=True)
