"""Real mounts for tests, each with a separate daemon; at the end of a test they are unmounted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from testing.broker.broker import Broker, running_broker
from testing.broker.client import Client, let_go
from testing.broker.libraries import find_java
from tests.doubles.forks import COMMAND, FORKS, MOUNT, Forked
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from tests.fusefs.mounted.over_a_cluster import DIFFERENT, DIRECTORY_ALONE

SERVE = Path(__file__).with_name("serve.py")
ROOT = Path(__file__).parents[3]
TOPICFS = Path(sys.executable).with_name("topicfs")
"""The command, as installed."""
OWN_NAMESPACE = "unshare --mount --propagation private bash"
"""The interpreter of scripts that mount in a mount namespace of their own."""


def is_mounted(path: Path) -> bool:
    """Return whether the table of mounts contains `path`.

    The table is used because a system call on a dead mountpoint would fail.
    """
    return any(
        line.split(" ")[4] == str(path) for line in Path("/proc/self/mountinfo").read_text().splitlines()
    )


class Mount:
    """A mounted topicfs and its daemon."""

    def __init__(self, base: Path, topics_in: Client | None = None, **options: Any) -> None:
        """With `topics_in`, mount a cluster; `clean_up` then deletes the topics that were created after this call."""
        self.base = base
        self.topics_in = topics_in
        self._topics_of_others = topics_in.topics() if topics_in else frozenset[str]()
        self.data = base / "data"
        self.path = base / "mnt"
        self.log_file = base / "daemon.log"
        self.said = base / "daemon.said"
        """The file that gets standard output and error of the daemons."""
        self.faults = base / "faults"
        """The control file for faults of the disk (`tests/fusefs/mounted/faults.py`)."""
        self.options = options
        self.daemon: Forked | subprocess.Popen[bytes] | None = None
        self.path.mkdir(exist_ok=True)

    def start(self, *, python_path: Path | None = None, **changed: Any) -> Mount:
        """Mount in the foreground of a new process, and wait until it is mounted.

        With `python_path`, the daemon can import the modules in that directory.
        """
        self.options |= changed
        cluster = {"cluster": f"kafka://{self.topics_in.bootstrap_server}"} if self.topics_in else {}
        asked = {
            "directories": str(self.data),
            **cluster,
            "mountpoint": str(self.path),
            "log_file": str(self.log_file),
            "foreground": True,
            **self.options,
        }
        environment = {**os.environ, "TOPICFS_TEST_FAULTS": str(self.faults)}
        if python_path is None:
            with self.said.open("ab") as said:
                files = (None, said.fileno(), said.fileno())
                self.daemon = FORKS.start(MOUNT, json.dumps(asked), files=files, environment=environment)
        else:
            self.daemon = subprocess.Popen(
                [sys.executable, str(SERVE), json.dumps(asked)],
                cwd=ROOT,
                env={**environment, "PYTHONPATH": f"{ROOT}:{python_path}"},
                stdin=subprocess.DEVNULL,
            )
        wait_until(lambda: self.is_serving() or self.daemon.poll() is not None, "the mount is there")
        assert self.daemon.poll() is None, self.log
        return self

    def is_serving(self) -> bool:
        return is_mounted(self.path) and "mounted at" in self.log

    def works(self) -> bool:
        """Return whether the daemon runs and the kernel has the mount, without a request to the daemon."""
        return self.daemon is not None and self.daemon.poll() is None and is_mounted(self.path)

    @property
    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    @property
    def pid(self) -> int:
        return self.daemon.pid

    def stop(self) -> int:
        """End the daemon with SIGTERM, as a user does, and return its exit status."""
        self.daemon.send_signal(signal.SIGTERM)
        status = self.daemon.wait(TIMEOUT_SECONDS)
        self.log_file.rename(self.log_file.with_suffix(f".{self.daemon.pid}.log"))
        return status

    def kill(self) -> None:
        """Kill the daemon, as a crash does; the mountpoint stays in the table of mounts, but is dead."""
        self.daemon.kill()
        self.daemon.wait(TIMEOUT_SECONDS)
        self.log_file.unlink()

    def umount(self) -> subprocess.CompletedProcess[str]:
        """Run `topicfs umount`."""
        done = FORKS.run(COMMAND, "umount", str(self.path))
        return subprocess.CompletedProcess("umount", done.status, done.output.decode(), done.errors.decode())

    def clean_up(self) -> None:
        """Unmount, and end the daemon, even if the mount or the daemon is dead."""
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.terminate()
            try:
                self.daemon.wait(10)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait(10)
        if is_mounted(self.path):
            subprocess.run(["umount", "-l", str(self.path)], check=False)
            if is_mounted(self.path) and shutil.which("fusermount3"):
                subprocess.run(["fusermount3", "-u", "-z", str(self.path)], check=False)
        if self.topics_in is not None:
            self.topics_in.delete_topics(self.topics_in.topics() - self._topics_of_others)

    @property
    def status(self) -> str:
        return (self.path / "@status").read_text()

    def shown(self, name: str) -> str:
        """Return the word after `name` in `@status`."""
        return next(line.split()[1] for line in self.status.splitlines() if line.startswith(f"{name} "))

    def bash(self, script: str, **names: object) -> subprocess.CompletedProcess[str]:
        """Run a shell script in the mount's directory, without input and with a time limit."""
        return shell("bash", script, self.path, **names)


def status(directory: Path) -> dict[str, str]:
    """Return the values in the file `status` of a directory, by name."""
    return dict(line.split(" ", 1) for line in (directory / "status").read_text().splitlines())


def shell(interpreter: str, script: str, cwd: Path, **names: object) -> subprocess.CompletedProcess[str]:
    """Run a script, with the environment variables `names`; return the ended process.

    PYTHONDEVMODE is off, because with it Python prints a warning for each file that a script leaves open.
    """
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "PYTHONDEVMODE": ""}
    environment |= {name: str(value) for name, value in names.items()}
    return subprocess.run(
        [*interpreter.split(), "-c", script],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@contextmanager
def running(script: str, cwd: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a script in its own process group during the block, and kill the group at the end."""
    with subprocess.Popen(["bash", "-c", script], cwd=cwd, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _no_surprises(mount: Mount) -> None:
    """Fail the test if a daemon's log has a traceback, because an unexpected exception becomes EIO and a traceback."""
    logs = "".join(path.read_text() for path in mount.base.glob("daemon*.log"))
    assert "Traceback" not in logs, logs


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test of a mount over a data directory, and over a cluster unless `over_a_cluster` excludes it."""
    if "topics_in" not in metafunc.fixturenames:
        return
    places: list[object] = ["directory"]
    module = metafunc.module.__name__.rpartition(".")[2]
    if not DIRECTORY_ALONE.keys() & {module, f"{module}::{metafunc.function.__name__}"}:
        places.append(pytest.param("cluster", marks=pytest.mark.java))
    metafunc.parametrize("topics_in", places, indirect=True, scope="module")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests for which `over_a_cluster` says that they must fail over a cluster."""
    for item in items:
        if isinstance(item, pytest.Function) and "[cluster" in item.name:
            module = item.module.__name__.rpartition(".")[2]
            whole, one = f"{module}::{item.originalname}", f"{module}::{item.name.replace('[cluster-', '[')}"
            if reason := DIFFERENT.get(whole) or DIFFERENT.get(one):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker whose topics the tests mount."""
    keeps = {"log.retention.check.interval.ms": "3600000"}  # Keep all records, even with timestamps of 1970.
    with running_broker(tmp_path_factory.mktemp("kafka") / "node", find_java(), keeps) as broker:
        yield broker


@pytest.fixture(scope="session")
def client(broker: Broker) -> Iterator[Client]:
    """A client of the broker."""
    yield Client(broker.bootstrap_server)
    let_go()


@pytest.fixture(scope="module")
def topics_in(request: pytest.FixtureRequest) -> Client | None:
    """The cluster that has the mount's topics, or None for a data directory."""
    found: Client | None = request.getfixturevalue("client") if request.param == "cluster" else None
    return found


@pytest.fixture
def unmounted(tmp_path: Path, topics_in: Client | None) -> Iterator[Mount]:
    """A mount that is not mounted yet; the test starts it."""
    mount = Mount(tmp_path, topics_in)
    try:
        yield mount
    finally:
        mount.clean_up()
    _no_surprises(mount)


@pytest.fixture
def mount(unmounted: Mount) -> Mount:
    """A mount without topics."""
    return unmounted.start()


@pytest.fixture(scope="module")
def shared_mount(tmp_path_factory: pytest.TempPathFactory, topics_in: Client | None) -> Iterator[Mount]:
    """One mount for all tests of a module; each test uses a different topic."""
    mount = Mount(tmp_path_factory.mktemp("mount"), topics_in)
    try:
        yield mount.start()
    finally:
        mount.clean_up()
    _no_surprises(mount)


@pytest.fixture
def topic(shared_mount: Mount, request: pytest.FixtureRequest) -> Path:
    """A topic of one partition on the shared mount, only for this test."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]
    path = shared_mount.path / name
    path.mkdir()
    return path
