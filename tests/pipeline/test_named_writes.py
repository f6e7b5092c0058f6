"""Tests that a write named by application and version happens once, and that a forgotten query raises an error."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.doubles.engines import read_lines
from tests.pipeline.crashes import left
from topicfs.pipeline.sink.commit_request import CommitRequest, CommittedBeforeError, staging_area
from topicfs.replication import open_engine
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.disk.names import WriteId
from topicfs.storage.model import ProducerId, TopicPartition
from topicfs.storage.staging.area import StagingArea, WriteState
from topicfs.storage.staging.manifest import Content
from topicfs.storage.staging.record import RETENTION_MS, CommittedQuery

APPLICATION = "com.acme.orders_v2"


@pytest.fixture
def data(tmp_path):
    """Make a data directory with the topics `orders` and `copies`."""
    with closing(open_engine(tmp_path / "data")) as engine:
        engine.create_topic("orders")
        engine.create_topic("copies")
    return tmp_path / "data"


def topic_id(data, topic="orders"):
    with closing(open_engine(data, read_only=True)) as engine:
        return engine.topic(topic).topic_id


def lines(data, topic="orders"):
    with closing(open_engine(data, read_only=True)) as engine:
        return read_lines(engine.partition(topic, 0))


def write(data, version, text, *, topic="orders", query=False):
    """Commit a write as the driver does; an empty `text` is a write without rows."""
    write_quietly(data, version, text, topic=topic, query=query)
    assert [] == left(data)


def write_quietly(data, version, text, *, topic="orders", query=False):
    """Call `write` while other jobs run. Files of those jobs may exist afterwards."""
    name = WriteId("9b1d-query" if query else APPLICATION, version, topic_id(data, topic))
    files = []
    if text:
        writer = staging_area([data]).stage(name, 0)
        writer.append(TopicPartition(topic, 0), encode_lines(f"{text}\n".encode(), timestamp=0)[0])
        files.append(writer.finish())
    digest = int.from_bytes(text.encode().ljust(8)[:8])
    request = CommitRequest([data], name, files, content=Content(len(files), digest))
    request.is_version = not query
    request.commit(250)


def test_a_version_is_appended_once(data, caplog):
    """A repeated or earlier version appends nothing and succeeds. A later version is appended."""
    for version in (5, 5, 3, 0, 7, 5, 6, 7, 2**63 - 1, 2**63 - 1):
        write(data, version, f"v{version}")
    assert ["v5", "v7", f"v{2**63 - 1}"] == lines(data)
    assert f"version 3 of application {APPLICATION} was committed before: skipped 1 records" in caplog.text


def test_each_topic_has_versions_of_its_own(data):
    """Versions are recorded by the topic's id, so a topic that is created again has no versions."""
    write(data, 5, "a")
    write(data, 4, "b", topic="copies")
    with closing(open_engine(data)) as engine:
        engine.delete_topic("orders")
        engine.create_topic("orders")
    write(data, 5, "c")
    assert (["c"], ["b"]) == (lines(data), lines(data, "copies"))


def test_the_last_version_with_other_rows_is_an_error(data):
    """A repetition of the last version with other rows fails. The rows of earlier versions are no longer known."""
    write(data, 5, "a")
    said = rf"version 5 of application {APPLICATION} is repeated with other rows .* write them under another txnAppId"
    with pytest.raises(CommittedBeforeError, match=said) as caught:
        write(data, 5, "b")
    assert "\n" not in str(caught.value)
    write(data, 4, "b")
    assert ["a"] == lines(data)
    assert [] == left(data)


def test_two_jobs_that_submit_one_version_at_the_same_moment_are_compared(data, monkeypatch):
    """If two jobs submit the same version at the same time, only the job whose rows were appended succeeds."""
    name = WriteId(APPLICATION, 5, topic_id(data))
    writer = staging_area([data]).stage(name, 0)
    writer.append(TopicPartition("orders", 0), encode_lines(b"theirs\n", timestamp=0)[0])
    request = CommitRequest([data], name, [writer.finish()], content=Content(1, 1))
    request._is_ours = request._submit()
    state, seen = StagingArea.state, []

    def state_before(area, name):
        seen.append(name)
        return state(area, name) if len(seen) > 1 else WriteState.UNKNOWN

    monkeypatch.setattr(StagingArea, "state", state_before)
    write(data, 5, "ours")
    request._wait(250)
    with pytest.raises(CommittedBeforeError, match="is repeated with other rows"):
        request._compare()
    assert ["ours"] == lines(data)


@pytest.mark.parametrize("same", [True, False], ids=["same rows", "other rows"])
def test_jobs_that_write_the_same_versions_at_once_write_each_once(data, same):
    """Four jobs, with no owner running, write each version once. No row is duplicated, missing, or from two jobs."""

    def job(number):
        failures = 0
        for version in range(3):
            text = f"{version} {'' if same else number}"
            try:
                write_quietly(data, version, text)
            except CommittedBeforeError:
                failures += 1
        return failures

    with ThreadPoolExecutor(4) as pool:
        failures = sum(pool.map(job, range(4)))
    found = lines(data)
    assert [f"{version}" for version in range(3)] == [line.split()[0] for line in found]
    assert [] == left(data)
    assert not (same and failures)


def test_a_version_without_a_row_is_a_version(data):
    """A version without rows is recorded: repeating it with rows fails, and earlier versions append nothing."""
    write(data, 5, "")
    write(data, 5, "")
    write(data, 4, "a")
    with pytest.raises(CommittedBeforeError, match="1 records; committed: 0 records"):
        write(data, 5, "a")
    assert [] == lines(data)


def forget(data):
    """Write the file of committed writes with the note that an entry of a query of `orders` was removed."""
    area, at = staging_area([data]), WriteId("idle", 3, topic_id(data))
    entries = {f"@{at.target}": CommittedQuery(0, ProducerId(0), 0)}
    area.record.write_copy(data, entries)


def test_a_query_that_may_have_been_forgotten_is_reported(data):
    """A query fails if its entry may have been removed, because its micro-batch may already be in the topic.

    A write that is named by application and version does not fail.
    """
    forget(data)
    with pytest.raises(
        CommittedBeforeError, match="micro-batch 3 of query .* has committed nothing here for a year"
    ):
        write(data, 3, "a", query=True)
    assert [] == lines(data)
    assert [] == left(data)
    write(data, 3, "b", topic="copies", query=True)
    write(data, 3, "c")
    assert (["c"], ["b"]) == (lines(data), lines(data, "copies"))


def test_a_query_whose_first_micro_batches_have_no_row_is_known(data):
    """Micro-batches without rows are recorded, so that a query's late first row does not look forgotten."""
    forget(data)
    for batch, text in enumerate(("", "", "a", "", "b")):
        write(data, batch, text, query=True)
    assert ["a", "b"] == lines(data)


def test_a_query_is_forgotten_after_a_year_by_the_owners_clock(data, monkeypatch):
    """A query's entry is removed a year after its last commit, by the owner's clock.

    The commit of another query then rewrites the file without this entry.
    """
    monkeypatch.setattr("topicfs.storage.staging.record._SPARE_LINES", 0)
    write(data, 0, "a", query=True)
    area, name = staging_area([data]), WriteId("9b1d-query", 0, topic_id(data))
    known = area.committed(name)
    assert known is not None
    area.record.write_copy(data, {name.series: known._replace(time_ms=known.time_ms - RETENTION_MS - 1)})
    for version in range(4):
        write(data, version, "b")
    with pytest.raises(CommittedBeforeError, match="has committed nothing here for a year"):
        write(data, 1, "c", query=True)
    assert ["a", *"bbbb"] == lines(data)
