"""A Spark standalone cluster on this machine: a master and its workers, each in its own process, on loopback.

`spark-class` of the installed pyspark starts the processes, as in docs/scaling.md. They are always ended by their
ids.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from json import loads
from pathlib import Path
from typing import NamedTuple

from testing.java import quick_start
from testing.spark_home import HOME
from tests.doubles.waiting import wait_until

ROOT = Path(__file__).parents[2]
START_TIMEOUT_SECONDS = 120
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


class Cluster(NamedTuple):
    """A running cluster."""

    url: str
    """URL of the master, for `--master`."""
    folder: Path
    """Folder of all files that the cluster's processes write."""

    def settings(self, cores: int) -> list[str]:
        """Return options of `topicfs pipeline` for small executors.

        A job begins after all its executors have registered, and Spark writes a log of the tasks.
        """
        settings = {
            "spark.cores.max": str(cores),
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": " ".join(quick_start("spark")),
            "spark.scheduler.minRegisteredResourcesRatio": "1",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "1h",
            "spark.driver.host": "127.0.0.1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": str(self.folder),
        }
        return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]

    def tasks_by_worker(self) -> Counter[str]:
        """Return the number of tasks that the executors of each worker ran, over all jobs since the start."""
        worker_of = {path.name: path.parts[-3] for path in self.folder.glob("work-*/app-*/*")}
        logs = [log.read_text() for log in self.folder.glob("app-*")]
        events = [loads(line) for log in logs for line in log.splitlines()]
        ended = [event for event in events if event["Event"] == "SparkListenerTaskEnd"]
        done = [event["Task Info"] for event in ended if event["Task End Reason"]["Reason"] == "Success"]
        return Counter(worker_of[task["Executor ID"]] for task in done)


@contextmanager
def standalone_cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """Start a master and workers of one core each; yield them once all workers are registered."""
    folder.mkdir()
    started: list[subprocess.Popen[bytes]] = []
    address = ["--host", "127.0.0.1"]
    try:
        log = folder / "master.log"
        started.append(_start(log, MASTER, *address, "--port", "0", "--webui-port", "0"))
        url = _said(started[0], log, r"Starting Spark master at (spark://\S+)")
        limits = ["--cores", "1", "--memory", "512m", "--webui-port", "0"]
        for number in range(workers):
            work = ["--work-dir", str(folder / f"work-{number}")]
            started.append(_start(folder / f"worker-{number}.log", WORKER, *address, *limits, *work, url))
        for number, worker in enumerate(started[1:]):
            _said(worker, folder / f"worker-{number}.log", r"(Successfully registered) with master")
        yield Cluster(url, folder)
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait()


def _start(log: Path, main: str, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join(quick_start("spark")),
        # Executors inherit the environment of their worker, and so find the Python packages.
        "PYTHONPATH": str(ROOT),
    }
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), main, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def _said(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """Wait until the log of a process has a match of `pattern`; return the text of the pattern's group."""
    found: list[str] = []

    def is_up() -> bool:
        assert process.poll() is None, f"ended while starting:\n{log.read_text()}"
        found.extend(re.findall(pattern, log.read_text()))
        return bool(found)

    wait_until(is_up, f"it is up; see {log}", timeout_seconds=START_TIMEOUT_SECONDS, pause_seconds=0.1)
    return found[0]
