"""Fixtures: one Spark session for all tests, with Spark's Kafka connector if it can be fetched, and one broker."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    # Each query is small and runs once, so compiling it would take longer than interpreting it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings of the sessions that tests start. The command's jobs and the examples use Spark's default settings."""


@pytest.fixture(scope="session")
def connector() -> tuple[str, str]:
    """Return the jars of Spark's Kafka connector for a new session, and the reason if there are none."""
    from topicfs import pipeline
    from topicfs.pipeline.errors import PipelineError

    try:
        return pipeline.kafka_jars(), ""
    except PipelineError as error:
        return "", str(error)


@pytest.fixture(scope="session")
def broker(connector: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Run a broker for comparisons. Each test makes its own topics, and is skipped if no broker can be started."""
    from testing.broker.broker import running_broker
    from testing.broker.client import let_go
    from testing.broker.libraries import UnavailableError, find_java

    _, reason = connector
    try:
        java = find_java()
    except UnavailableError as error:
        reason = str(error)
    if reason:
        pytest.skip(f"no Kafka: {reason}")
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
    }
    home = tmp_path_factory.mktemp("kafka") / "node"
    with running_broker(home, java, settings, protocols=["SASL_PLAINTEXT"]) as running:
        yield running
    let_go()


@pytest.fixture(scope="session")
def spark(connector: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a session with two threads and filter pushdown."""
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(":"))
        patch.setenv("TZ", "UTC")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session = _start(folder, jars=connector[0])
        yield session
        _stop(session)


def _stop(session: Any) -> None:
    """Stop a session. If the session's Java process has ended, forget it, so that the next session starts a new one."""
    from pyspark import SparkContext

    context = session.sparkContext
    if context._gateway.proc.poll() is None:
        session.stop()
    else:
        context._jsc = SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None


def _start(folder: Path, *, jars: str) -> Any:
    folders = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder)}
    return start_session("local[2]", folders | ({"spark.jars": jars} if jars else {}))


def start_session(master: str, settings: Mapping[str, str]) -> Any:
    """Start Spark with the common settings and `settings`, and register the format."""
    from pyspark.sql import SparkSession

    from topicfs import pipeline

    builder = SparkSession.builder.master(master).appName("topicfs tests")
    for name, value in (SETTINGS | settings).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    pipeline.register(session)
    return session
