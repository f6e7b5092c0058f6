"""Tests that the directory's owner appends a submitted write, or that an error says what became of the write."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from zlib import crc32

import pytest

from tests.doubles.engines import read_lines
from tests.pipeline.crashes import left
from topicfs.pipeline.sink.commit_request import (
    CommitRequest,
    CommittedBeforeError,
    CommitTimeoutError,
    staging_area,
)
from topicfs.replication import open_engine
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.disk.names import MIRROR, WriteFileKind, WriteId, parse_write_file
from topicfs.storage.errors import NotALogDirectoryError, StorageError
from topicfs.storage.model import TopicPartition
from topicfs.storage.staging.area import StagingArea, WriteRefusedError, WriteState
from topicfs.storage.staging.committer import Committer
from topicfs.storage.staging.manifest import Content
from topicfs.storage.staging.staged_file import StagedFile

ONCE = WriteId("0d9ec173")
TIMEOUT_SECONDS = 250
"""Time limit for a step in seconds. On an idle machine a step takes only a moment."""
OWNER = """
import fcntl, sys, time
from pathlib import Path
if sys.argv[2] == "broker":  # As FileChannel.tryLock of Java.
    file = open(sys.argv[1] + "/.lock", "wb")
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("owned", flush=True)
    sys.stdin.read()
    raise SystemExit
from topicfs.storage.disk.native import system_clock
from topicfs.replication import open_engine
engine = open_engine(Path(sys.argv[1]))
if sys.argv[2] == "looks once":
    engine.maintenance(system_clock())
print("owned", flush=True)
while sys.argv[2] == "works":
    engine.maintenance(system_clock())
    time.sleep(0.02)
sys.stdin.read()
"""


@pytest.fixture
def data(tmp_path):
    """Make a data directory with a topic `orders` of two partitions."""
    with closing(open_engine(tmp_path / "data")) as engine:
        engine.create_topic("orders", partitions=2)
    return tmp_path / "data"


@pytest.fixture
def owner(data):
    """Return a function that starts another owner of the directory, which accepts requests or does not."""
    processes = []

    def start(what: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(data), what],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        processes.append(process)
        assert process.stdout is not None
        assert "owned\n" == process.stdout.readline()
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def staged(data: Path, write: WriteId = ONCE, text: str = "a\nb\n", topic: str = "orders") -> StagedFile:
    writer = staging_area([data]).stage(write, 0)
    writer.append(TopicPartition(topic, 1), encode_lines(text.encode(), timestamp=0)[0])
    return writer.finish()


def claimed(data: Path) -> tuple[StagingArea, StagedFile]:
    """Stage a write that an owner has claimed but not appended."""
    file = staged(data)
    area = staging_area([data])
    area.submit(ONCE, [file])
    assert area.claim(ONCE) is not None
    return area, file


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def lines(data: Path) -> list[str]:
    with closing(open_engine(data, read_only=True)) as engine:
        return read_lines(engine.partition("orders", 1))


def test_a_mirrors_directory_takes_no_write(data):
    """While a mirror uses the directory, no task stages files in it and no write is submitted."""
    file = staged(data)
    (data / MIRROR).write_text("{}")
    for write in (lambda: staged(data), lambda: CommitRequest([data], ONCE, [file])):
        with pytest.raises(StorageError, match="or end the copy for good: rm "):
            write()
    (data / MIRROR).unlink()
    assert [] == lines(data)


def test_without_an_owner_the_writer_owns_for_a_moment(data):
    """If there is no owner, the writer appends. On return the log has the records, and no lock or file is left."""
    CommitRequest([data], ONCE, [staged(data)]).commit(TIMEOUT_SECONDS)
    assert ["a", "b"] == lines(data)
    assert [] == left(data)
    open_engine(data).close()


def test_an_owner_that_works_appends(data, owner):
    """If the owner accepts requests, the writer waits until the owner has appended the write."""
    process = owner("works")
    CommitRequest([data], ONCE, [staged(data)]).commit(TIMEOUT_SECONDS)
    assert process.poll() is None
    assert [] == left(data)
    end(process)
    assert ["a", "b"] == lines(data)


def test_the_owner_and_the_job_wake_each_other(data, owner, monkeypatch):
    """The owner and the job wake each other, so neither of them has to wait for its own next periodic check."""
    process = owner("looks once")
    monkeypatch.setattr("topicfs.pipeline.sink.commit_request.FIRST_CHECK_PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr("topicfs.pipeline.sink.commit_request.LONGEST_CHECK_PAUSE_SECONDS", 3600.0)
    for number in range(3):
        write = WriteId("query", number)
        CommitRequest([data], write, [staged(data, write, f"{number}\n")]).commit(3600)
    assert process.poll() is None
    assert [] == left(data)
    end(process)
    assert ["0", "1", "2"] == lines(data)


def test_an_owner_that_cannot_append_is_not_asked_again_and_again(data, monkeypatch):
    """If the owner fails to append a write, the job completes its pause before it wakes the owner again."""
    rings = []
    monkeypatch.setattr("topicfs.pipeline.sink.commit_request.ring", lambda _, seconds: rings.append(seconds))
    file = staged(data)
    area = staging_area([data])
    area.submit(ONCE, [file])
    begun = time.monotonic()
    CommitRequest([data], ONCE, [file])._ring(0.05)
    assert [0.05] == rings
    assert time.monotonic() - begun >= 0.05


def test_an_owner_that_takes_nothing_is_reported_after_the_timeout(data, owner):
    """After the timeout the error names the owner's process, and the write is withdrawn and never appended."""
    process = owner("sleeps")
    with pytest.raises(CommitTimeoutError, match=f"owned by process {process.pid}.*nothing was written"):
        CommitRequest([data], ONCE, [staged(data)]).commit(0.1)
    assert [] == left(data)


def test_an_owner_that_goes_away_is_followed_by_the_writer(data, owner):
    """A waiting writer checks repeatedly whether the directory is free, and appends after the owner has ended."""
    process = owner("sleeps")
    CommitRequest([data], ONCE, [staged(data)], sleep=lambda _: end(process)).commit(TIMEOUT_SECONDS)
    assert ["a", "b"] == lines(data)


def test_a_micro_batch_that_another_withdrew_is_handed_in_again(data, owner):
    """If a killed driver's Python process withdrew a micro-batch, the next driver submits the micro-batch again."""
    process = owner("sleeps")
    write = WriteId("query", 0)

    def sleep(seconds: float) -> None:
        if process.poll() is None:
            assert staging_area([data]).withdraw(write)
            end(process)

    CommitRequest([data], write, [staged(data, write)], sleep=sleep).commit(TIMEOUT_SECONDS)
    assert ["a", "b"] == lines(data)
    assert [] == left(data)


@pytest.mark.parametrize("write", [ONCE, WriteId("query", 0)])
def test_an_interrupt_withdraws(data, owner, write):
    """An interrupt withdraws the write, so that the write is never appended."""
    owner("sleeps")

    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CommitRequest([data], write, [staged(data, write)], sleep=sleep).commit(TIMEOUT_SECONDS)
    assert [] == left(data)


def test_a_claimed_write_is_waited_for_as_long_as_its_owner_lives(data, owner):
    """A job waits for a claimed write as long as the owner lives, even beyond the timeout.

    If the job failed, it would be run again and would write its records twice.
    """
    process = owner("sleeps")
    area, file = claimed(data)
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        assert area.state(ONCE) is WriteState.CLAIMED
        assert (data / file.name).exists()
        if len(pauses) == 5:
            end(process)

    CommitRequest([data], ONCE, [file], sleep=sleep).commit(0)
    assert 5 == len(pauses)
    assert ["a", "b"] == lines(data)
    assert [] == left(data)


@pytest.mark.parametrize("write", [ONCE, WriteId("query", 0)])
def test_a_claimed_write_cannot_be_withdrawn(data, owner, monkeypatch, write):
    """If the owner claims a write just before the job withdraws it, withdrawing fails and the job goes on waiting."""
    process = owner("sleeps")
    withdraw, asked = StagingArea.withdraw, []

    def withdraw_late(area: StagingArea, write: WriteId) -> bool:
        if not asked:
            assert area.claim(write) is not None
        asked.append(withdraw(area, write))
        return asked[-1]

    monkeypatch.setattr(StagingArea, "withdraw", withdraw_late)
    CommitRequest([data], write, [staged(data, write)], sleep=lambda _: end(process)).commit(0)
    assert [False] == asked
    assert ["a", "b"] == lines(data)


def test_a_claimed_write_that_nobody_can_complete_is_an_error(data, monkeypatch):
    """A job fails if its own process owns the directory but cannot append a claimed write.

    No other process could append the write.
    """
    area, file = claimed(data)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Committer, "_append", full)
        with pytest.raises(CommitTimeoutError, match="owned by this process .*No space left.*completes it"):
            CommitRequest([data], ONCE, [file]).commit(0)
    assert area.state(ONCE) is WriteState.CLAIMED
    another = WriteId("another")
    CommitRequest([data], another, [staged(data, another, "c\n")]).commit(TIMEOUT_SECONDS)
    assert ["a", "b", "c"] == lines(data)


def test_a_broker_completes_no_write(data, owner):
    """The job does not wait for a broker that replaced the claiming owner, because a broker appends no writes."""
    area, file = claimed(data)
    process = owner("broker")
    with pytest.raises(
        CommitTimeoutError, match=f"no process can complete it now: .*owned by process {process.pid}"
    ):
        CommitRequest([data], ONCE, [file]).commit(0)
    assert area.state(ONCE) is WriteState.CLAIMED


def test_a_refused_write_says_why_and_leaves_nothing(data):
    """A write to an unknown topic is refused with the reason, and leaves no files."""
    with pytest.raises(WriteRefusedError, match="nowhere: no such topic"):
        CommitRequest([data], ONCE, [staged(data, topic="nowhere")]).commit(TIMEOUT_SECONDS)
    assert [] == left(data)


def content(text: str) -> Content:
    """Return the content of the lines of `text` as tasks compute it. The order of the lines does not matter."""
    return Content(text.count("\n"), sum(map(crc32, text.encode().splitlines())))


def commit(data, write, text="a\nb\n", **settings):
    """Commit a micro-batch as the driver does, with the content that its tasks counted."""
    file = staged(data, write, text)
    request = CommitRequest([data], write, [file], content=content(text))
    for name, value in settings.items():
        setattr(request, name, value)
    request.commit(TIMEOUT_SECONDS)


def test_a_replayed_micro_batch_is_dropped(data, caplog):
    """A repeated micro-batch is dropped with its staged files, even if its rows are reordered; a warning is logged."""
    for text in ("a\nb\n", "b\na\n"):
        commit(data, WriteId("query", 0), text)
    assert ["a", "b"] == lines(data)
    assert [] == left(data)
    said = f"topicfs: {data}: micro-batch 0 of query query was committed before: skipped 2 records"
    assert [said] == caplog.messages


def test_each_target_gets_its_own_micro_batches(data):
    """A micro-batch that was committed to one topic is appended again if the query writes to another topic.

    A topic that was deleted and created again counts as another topic.
    """
    for _ in range(2):
        with closing(open_engine(data)) as engine:
            engine.delete_topic("orders")
            target = engine.create_topic("orders", partitions=2).topic_id
        commit(data, WriteId("query", 0, target))
        assert ["a", "b"] == lines(data)
    commit(data, WriteId("query", 0))
    assert ["a", "b"] * 2 == lines(data)
    assert [] == left(data)


def test_another_topic_of_the_targets_name_is_an_error(data):
    """A write whose topic was deleted and created again is refused, and nothing is appended."""
    write = WriteId("query", 0, "1EvPSKI_SvihSIy3lMKMvg")
    with pytest.raises(WriteRefusedError, match="orders: was deleted and created again"):
        commit(data, write)
    assert [] == lines(data)
    assert [] == left(data)


def test_a_micro_batch_behind_the_last_one_is_an_error(data):
    """A micro-batch before the last committed one fails, because its rows may already be in the topic."""
    for batch in (0, 1):
        commit(data, WriteId("query", batch))
    said = "micro-batch 0 of query query is repeated with 2 records, but micro-batch 1 is committed"
    with pytest.raises(CommittedBeforeError, match=said):
        commit(data, WriteId("query", 0))
    assert ["a", "b"] * 2 == lines(data)
    assert [] == left(data)


@pytest.mark.parametrize("text", ["x\ny\nz\n", "a\nx\n", "a\na\n"])
def test_a_micro_batch_that_comes_again_with_other_rows_is_an_error(data, text):
    """A repetition of the last micro-batch with other rows fails, even if the number of rows is the same."""
    commit(data, WriteId("query", 0))
    said = (
        rf"is repeated with other rows \({len(text) // 2} records; committed: 2 records\): .*new checkpoint"
    )
    with pytest.raises(CommittedBeforeError, match=said):
        commit(data, WriteId("query", 0), text)
    assert ["a", "b"] == lines(data)
    assert [] == left(data)


def test_other_rows_are_skipped_if_the_query_is_known_to_give_them(data, caplog):
    """With failOnOtherRows=false a repetition of the last micro-batch is skipped even if it has other rows.

    A micro-batch before the last committed one is still an error.
    """
    for batch in (0, 1):
        commit(data, WriteId("query", batch))
    commit(data, WriteId("query", 1), "x\ny\nz\n", must_have_same_rows=False)
    assert caplog.messages[-1].endswith("skipped 3 records, which differ from those committed")
    with pytest.raises(CommittedBeforeError, match="but micro-batch 1 is committed"):
        commit(data, WriteId("query", 0), must_have_same_rows=False)
    assert ["a", "b"] * 2 == lines(data)


@pytest.mark.parametrize("text", ["b\na\n", "x\ny\n"], ids=["same", "others"])
def test_what_another_driver_hands_in_meanwhile_is_compared(data, owner, text):
    """If two copies of a query submit the same micro-batch, the second copy's rows are compared with the first copy's.

    The second copy fails if the rows differ.
    """
    write = WriteId("query", 0)
    process = owner("sleeps")
    staging_area([data]).submit(write, [staged(data, write, text)], content=content(text))

    second = CommitRequest(
        [data], write, [staged(data, write)], content=content("a\nb\n"), sleep=lambda _: end(process)
    )
    if text == "b\na\n":
        second.commit(TIMEOUT_SECONDS)
    else:
        with pytest.raises(CommittedBeforeError, match="is repeated with other rows"):
            second.commit(TIMEOUT_SECONDS)
    assert lines(data) == text.split()
    assert [] == left(data)


def test_abort_removes_what_was_staged(data):
    """Aborting a write removes its staged files, but not after the write was submitted.

    Another driver may have submitted the write and may wait for it.
    """
    file = staged(data)
    CommitRequest([data], ONCE, [file]).abort()
    assert [] == left(data)
    file = staged(data)
    staging_area([data]).submit(ONCE, [file])
    CommitRequest([data], ONCE, [file]).abort()
    assert sorted(parse_write_file(name).kind.value for name in left(data)) == [
        WriteFileKind.REQUESTED.value,
        WriteFileKind.STAGED.value,
    ]


def test_a_directory_that_cannot_be_opened_leaves_nothing(data):
    """If the directory cannot be opened, the engine's error is raised, and no file is left."""
    file = staged(data)
    (data / "holiday pictures").mkdir()
    with pytest.raises(NotALogDirectoryError, match="holiday pictures"):
        CommitRequest([data], ONCE, [file]).commit(TIMEOUT_SECONDS)
    assert [] == left(data)


def test_a_micro_batch_without_rows_needs_no_commit(data):
    """A micro-batch without rows needs no commit."""
    CommitRequest([data], ONCE, []).commit(0)
    assert [] == left(data)
