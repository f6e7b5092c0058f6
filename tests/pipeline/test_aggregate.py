"""Tests of aggregates over windows of time, from topic to topic: in one run, and incrementally with a checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from tests.doubles.waiting import wait_until
from tests.pipeline.conftest import ROOT
from topicfs.replication import open_engine
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.records import decode, encode
from topicfs.storage.errors import DirectoryLockedError
from topicfs.storage.model import Offset, Record, Timestamp

pytestmark = pytest.mark.spark

NEW_YEAR = 1_767_225_600_000
MINUTE = 60_000


@pytest.fixture
def data(tmp_path):
    """Make `orders` with records of twelve minutes, and topics for the results."""
    with contextlib.closing(open_engine(tmp_path / "data")) as engine:
        for topic in ("orders", "counts"):
            engine.create_topic(topic)
    put(
        tmp_path / "data",
        (0, b"a", b"x"),
        (1, b"b", b"yy"),
        (4, b"a", None),
        (5, None, b"z"),
        (11, b"a", b'{"user": "ada"}'),
    )
    return tmp_path / "data"


def put(data, *rows):
    """Append records; each row's time is in minutes after the new year."""
    records = [
        Record(Offset(index), Timestamp(NEW_YEAR + minute * MINUTE), key, value)
        for index, (minute, key, value) in enumerate(rows)
    ]
    with contextlib.closing(open_engine(data)) as engine:
        engine.partition("orders", 0).append(encode(records))


def results(data):
    """Return the key, value and time (in minutes) of every result.

    The records are read from the segment's file, because another process may own the directory.
    """
    octets = (data / "counts-0" / "00000000000000000000.log").read_bytes()
    records = [record for columns in decode(octets[: scan(octets).stop]) for record in columns]
    return [(one.key, json.loads(one.value), (one.timestamp - NEW_YEAR) // MINUTE) for one in records]


def at(minute):
    return f"2026-01-01T00:{minute:02}:00.000Z"


def brief(data):
    """Return start, key and count of every result."""
    return [(minute, key, value["count"]) for key, value, minute in results(data)]


def aggregate(spark, data, **options):
    from topicfs.pipeline.jobs.aggregate import AggregateOptions
    from topicfs.pipeline.jobs.aggregate import aggregate as run

    given = {"window": "5 minutes", **options}
    found = run(spark, AggregateOptions(path=str(data), source="orders", target="counts", **given))
    return [tuple(row) for row in found.collect()]


def test_one_run_writes_every_window(spark, data):
    """Each window and group yields a record.

    The key is the group, the time is the window's start, and the value is JSON.
    """
    told = aggregate(spark, data, group="key", aggregates=("sum(length(value)) AS bytes",))
    assert [("orders", "counts", 4)] == told
    assert [
        (b"a", {"start": at(0), "end": at(5), "group": "a", "count": 2, "bytes": 1}, 0),
        (b"b", {"start": at(0), "end": at(5), "group": "b", "count": 1, "bytes": 2}, 0),
        (None, {"start": at(5), "end": at(10), "group": None, "count": 1, "bytes": 1}, 5),
        (b"a", {"start": at(10), "end": at(15), "group": "a", "count": 1, "bytes": 15}, 10),
    ] == results(data)


def test_windows_may_overlap_and_records_be_left_out(spark, data):
    """`slide` makes windows overlap, and `where` leaves records out. Without a group each window has one count."""
    aggregate(spark, data, window="10 minutes", slide="5 minutes", where="key IS NOT NULL")
    assert [(-5, None, 3), (0, None, 3), (5, None, 1), (10, None, 1)] == brief(data)
    user = "get_json_object(string(value), '$.user')"
    aggregate(spark, data, window="1 hour", group=user, where=f"{user} IS NOT NULL")
    assert (0, b"ada", 1) == brief(data)[-1]
    aggregate(spark, data, window="1 hour", group="length(value)", where="key = 'b'")
    key, value, _ = results(data)[-1]
    assert (b"2", 2) == (key, value["group"])


def test_with_a_checkpoint_a_window_is_written_once(spark, data, tmp_path, caplog):
    """A window is written after a record arrives that is later than the window's end plus the delay.

    `close` writes the windows that are still open. Late records are dropped.
    """
    options = {"group": "key", "delay": "1 minute", "checkpoint": str(tmp_path / "progress")}
    over = [(0, b"a", 2), (0, b"b", 1), (5, None, 1)]
    assert [("orders", "counts", 3)] == aggregate(spark, data, **options)
    assert over == sorted(brief(data), key=str)
    put(data, (2, b"a", b"late"), (10, b"b", b"in time"), (17, b"a", b""))
    assert not caplog.messages
    assert [("orders", "counts", 2)] == aggregate(spark, data, **options)
    (told,) = caplog.messages
    assert told.startswith("topicfs: at least 1 late records were left out: ")
    assert [("orders", "counts", 0)] == aggregate(spark, data, **options)
    over = [*over, (10, b"a", 1), (10, b"b", 1)]
    assert sorted(over, key=str) == sorted(brief(data), key=str)
    for windows in (1, 0):
        assert [("orders", "counts", windows)] == aggregate(spark, data, close=True, **options)
    put(data, (18, b"a", b"late"), (30, b"a", b""), (40, b"a", b""))
    assert [("orders", "counts", 1)] == aggregate(spark, data, **options)
    assert sorted([*over, (15, b"a", 1), (30, b"a", 1)], key=str) == sorted(brief(data), key=str)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"continuous": True}, "name a checkpoint"),
        ({"close": True}, "closing windows needs a checkpoint and a run that ends"),
        ({"aggregates": ("sum(length(value))",)}, r"sum\(length\(value\)\): give it a name"),
        ({"aggregates": ("max(offset) AS end",)}, "end is a field of every result"),
        ({"window": "five minutes"}, "five minutes"),
        ({"where": "nothing = 1"}, "nothing"),
    ],
)
def test_bad_options_are_reported(spark, data, options, reason):
    """An invalid option raises an error of the job or of Spark, and nothing is written."""
    from pyspark.errors import PySparkException

    from topicfs.pipeline.errors import InvalidOptionError

    with pytest.raises((InvalidOptionError, PySparkException), match=reason):
        aggregate(spark, data, **options)
    assert [] == results(data)


class Command:
    """`topicfs pipeline aggregate … --continuous` in a child process; its JVM is in the same process group."""

    def __init__(self, data, checkpoint):
        words = ["aggregate", "orders", "counts", "--window", "5 minutes", "--interval", "1 second"]
        words += [
            "--continuous",
            "--checkpoint",
            str(checkpoint),
            "--data",
            str(data),
            "--master",
            "local[2]",
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from topicfs.main import main; main()", "pipeline", *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def wait_for(self, condition):
        def is_so():
            assert self.process.poll() is None, "the command ended by itself"
            return condition()

        wait_until(is_so, "the job has come so far", timeout_seconds=900)

    def interrupt(self):
        """Send SIGINT to the command, but not to its JVM: Spark protects the JVM from a terminal's SIGINT."""
        self.process.send_signal(signal.SIGINT)
        output, _ = self.process.communicate()
        return output, self.process.returncode

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


@pytest.mark.timeout(900)  # two sessions, on a busy machine
def test_a_continuous_run_survives_kills_and_ends_at_an_interrupt(data, tmp_path):
    """A continuous run counts new records and writes each window once, even after a kill. ^C ends it cleanly."""
    first = Command(data, tmp_path / "progress")
    try:
        first.wait_for(lambda: len(brief(data)) >= 2)
        put_beside(data, (17, b"a", b""))
    finally:
        first.kill()
    second = Command(data, tmp_path / "progress")
    try:
        second.wait_for(lambda: len(brief(data)) >= 3)
        put_beside(data, (22, b"a", b""))
        second.wait_for(lambda: len(brief(data)) >= 4)
        output, status = second.interrupt()
    finally:
        second.kill()
    assert [(0, None, 3), (5, None, 1), (10, None, 1), (15, None, 1)] == sorted(brief(data))
    assert (0, ["orders", "counts"]) == (status, output.split("\t")[:2])


def put_beside(data, row):
    """Append a record; retry while another process briefly owns the directory."""

    def is_put():
        with contextlib.suppress(DirectoryLockedError):
            put(data, row)
            return True
        return False

    wait_until(is_put, "nobody owns the directory")
