"""Plugins and fixtures of all tests, and the rules for skipping tests that need more than Python."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import resource
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from testing.broker.libraries import Java, UnavailableError, find_java
from testing.java import quick_start
from testing.leftover_mounts import unmounted_in_the_end
from testing.spark_home import spark_home
from testing.spark_python import spark_python
from testing.stacks import printed_if_late
from tests.doubles.strangers import NAMES

FUSE_DEVICE = Path("/dev/fuse")
# Tests import these packages only through `topicfs`, as in an installed environment.
HIDDEN = cast("ModuleType", None)
"""An entry of `sys.modules` that makes an import fail (docs.python.org, `sys.modules`)."""
sys.modules.update(dict.fromkeys(NAMES, HIDDEN))
MAX_MEMORY_BYTES = 8 << 30
"""Memory limit in bytes of each process of a run, so that a test that needs more memory fails alone."""


def pytest_configure() -> None:
    """Limit the memory of each process, prepare Spark's environment, and let programs of tests receive signals.

    With SPARK_SUBMIT_OPTS Spark starts and ends quickly. A shell's background job ignores SIGINT, and programs of
    nohup(1) ignore SIGHUP. Programs that the tests start would inherit this.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(quick_start("spark"))
    home = spark_home()
    if home is not None:
        os.environ["SPARK_HOME"] = str(home)
        os.environ["PYSPARK_PYTHON"] = spark_python()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)  # Programs that are started get the default instead.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with a reason, the tests that this machine cannot run."""
    absent = {
        "fuse": None if FUSE_DEVICE.exists() else f"{FUSE_DEVICE} is missing",
        "java": None if shutil.which("java") and shutil.which("mvn") else "java or mvn is missing",
        "spark": spark_absent(),
        "promtool": None if shutil.which("promtool") else "promtool is missing",
        "root": None if os.geteuid() == 0 else "mounting a file system needs root",
    }
    for item in items:
        for marker, reason in absent.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection.

    Ten thousand tests are some million objects. A full collection of them would take a second or more, and a run has
    hundreds of collections.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Print the stacks of Spark's processes shortly before a test that waits for them times out."""
    with printed_if_late() if item.get_closest_marker("spark") else nullcontext():
        return (yield)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Remove log handlers that a command under test installed, because their output stream is closed after the test."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    for handler in root.handlers[:]:
        if type(handler).__module__ != "_pytest.logging":
            root.removeHandler(handler)


@pytest.fixture(scope="session", autouse=True)
def no_mount_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Unmount what the tests left mounted, even if the run is killed; a run that ends by itself then fails."""
    with unmounted_in_the_end(tmp_path_factory.getbasetemp()):
        yield


def spark_absent() -> str | None:
    """Return why Spark cannot run on this machine, or None if it can."""
    for module in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "java is missing"
    return None


@pytest.fixture(scope="session")
def java() -> Java:
    """Java and its jars; skips the test with a one-line reason if they are unavailable."""
    try:
        return find_java()
    except UnavailableError as error:
        pytest.skip(f"no Kafka: {error}")
