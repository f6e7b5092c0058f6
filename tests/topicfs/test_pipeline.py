"""Tests of `topicfs pipeline` if Spark is not installed, and of errors that are found before Spark starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.topicfs.conftest import assert_refused
from topicfs.jobs import run
from topicfs.jobs.places import found, parse_place
from topicfs.jobs.run import cause as cause_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
JOBS = [
    "archive orders parquet",
    "restore .",
    "replay orders copy",
    "aggregate orders copy --window=1h",
    "verify",
    "report",
]
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(",")))
from topicfs.main import main
main()
"""


@pytest.mark.parametrize(
    ("missing", "named", "words"),
    [
        *((missing, "Spark", words) for missing in ("pyspark", "pyspark,pyarrow") for words in JOBS),
        ("matplotlib", "matplotlib", "report"),
    ],
)
def test_without_the_extra_one_line_says_how_to_get_it(orders, missing, named, words):
    """If a library that a job needs is missing, the job prints one line that says how to install it."""
    assert 0 == orders("topics", "create", "copy").status
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing, "pipeline", *words.split()],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    remedy = f"topicfs: {named} is not installed here; get it with: pip install 'topicfs[spark]'\n"
    assert (1, b"", remedy) == (ran.returncode, ran.stdout, ran.stderr.decode())


def test_a_missing_directory_is_reported_before_spark_starts(topicfs):
    """A missing data directory is an error before Spark starts."""
    assert_refused(topicfs("pipeline", "replay", "orders", "copy"), "no such directory")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("archive nosuch a", "nosuch: no such topic; there are orders"),
        ("archive orders,nosuch a", "nosuch: no such topic; there are orders"),
        ("replay nosuch orders", "nosuch: no such topic; there are orders"),
        ("replay orders nosuch", "nosuch: no such topic; make it first: topicfs topics create nosuch"),
        ("aggregate nosuch orders --window=1h", "nosuch: no such topic; there are orders"),
        ("aggregate orders nosuch --window=1h", "nosuch: no such topic; make it first"),
        ("report nosuch", "nosuch: no such topic; there are orders"),
    ],
)
def test_a_missing_topic_is_reported_before_spark_starts(orders, monkeypatch, words, message):
    """If a topic is missing, one line of error is printed before Spark starts, and no folder is created."""
    monkeypatch.setattr(run, "job_session", None)
    ran = orders("pipeline", *words.split())
    assert (1, 1) == (ran.status, len(ran.errors.splitlines()))
    assert message in ran.errors.decode()
    assert ["data"] == [path.name for path in Path().iterdir()]


def test_a_job_with_a_checkpoint_goes_on_without_a_deleted_topic(orders):
    """A job with a checkpoint continues even if its source topic has been deleted."""
    assert "no such topic" in orders("pipeline", "archive", "nosuch", "a").errors.decode()
    checkpoint = Path("a") / "_checkpoint"
    checkpoint.mkdir(parents=True)
    place = parse_place("data")
    assert str(Path("data").absolute()) == found(place, "nosuch", checkpoint=checkpoint).path


def test_a_broker_without_its_scheme_is_no_directory_of_a_job(topicfs):
    """A broker's address without kafka:// is a usage error, and no directory is created."""
    Path("archive").mkdir()
    ran = topicfs("pipeline", "restore", "archive", "--data", "localhost:9092")
    assert_refused(ran, "is a broker's address; write a cluster as kafka://localhost:9092", status=2)
    assert ["archive"] == [path.name for path in Path().iterdir()]


@pytest.mark.parametrize("job", [job.split()[0] for job in JOBS])
def test_every_job_says_where_spark_may_run(topicfs, job):
    """The help of each job describes --master, --conf and --json."""
    text = topicfs("pipeline", job, "--help").text
    assert "--master URL" in text
    assert "--conf NAME=VALUE" in text
    assert "--json" in text


def test_an_invalid_setting_is_reported_before_spark_starts(orders):
    """An invalid --conf is a usage error, which is reported before Spark starts."""
    orders("topics", "create", "copy")
    for setting in ("spark.executor.memory", "cores=2"):
        ran = orders("pipeline", "replay", "orders", "copy", "--conf", setting)
        assert_refused(ran, f"--conf: expected spark.NAME=VALUE, got {setting}", status=2)


def test_a_missing_archive_is_reported_before_spark_starts(topicfs):
    """A missing archive is an error before Spark starts."""
    ran = topicfs("pipeline", "restore", "./nothing")
    assert_refused(ran, "nothing: no archive there; make one: topicfs pipeline archive TOPIC nothing")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[TABLE_OR_VIEW_NOT_FOUND] no such thing\n  at line 1\n", "[TABLE_OR_VIEW_NOT_FOUND] no such thing"),
        (
            "[PYTHON_DATA_SOURCE_ERROR] Failed: x.TopicfsException: [TOPICFS_UNKNOWN_TOPIC] t: no such topic\n SQLSTATE: 38000",
            "t: no such topic",
        ),
        (
            "An error occurred while calling o1.save.\n: java.lang.IllegalStateException: full\n\tat x.y(z)",
            "java.lang.IllegalStateException: full",
        ),
    ],
)
def test_an_error_of_spark_is_reduced_to_one_line(text, cause):
    """One line of a Spark error is printed: topicfs's own line if there is one, else the first line with a cause."""
    assert cause == cause_of(Exception(text))
