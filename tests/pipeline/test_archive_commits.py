"""Tests of an archive's commits: concurrent runs, merged files, and where the next round begins."""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import UTC, datetime

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from topicfs.pipeline.archiving.files import (
    SMALL_FILES,
    FileRows,
    archived_files,
    merge,
    rows_of,
    small_groups,
    write_batches,
)
from topicfs.pipeline.archiving.iceberg import IcebergCommits
from topicfs.pipeline.archiving.parquet import COMPACT_INTERVAL, REMOVE_AFTER_SECONDS, ParquetCommits
from topicfs.pipeline.archiving.plan import matches
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.jobs.archive import ICEBERG, PARQUET, ArchiveOptions, check_archive
from topicfs.pipeline.source.query.offsets import StreamState
from topicfs.pipeline.source.query.schema import arrow_schema, full_schema
from topicfs.storage.model import TopicPartition

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
DAY_US = 86_400_000_000
SCHEMA = arrow_schema(full_schema(include_headers=True))
TOPIC = "orders-with-a-name-of-more-than-sixteen-characters"


def state(offset):
    return StreamState({TopicPartition(TOPIC, 0): offset}, {TOPIC: "id"})


def batch(first, *days, partition=0):
    """Return records with offsets from `first` on, each on a day after the new year."""
    new_year = int(NEW_YEAR.timestamp()) * 1_000_000
    rows = [
        {"value": b"v", "topic": TOPIC, "partition": partition, "offset": first + at, "timestampType": 0}
        for at in range(len(days))
    ]
    times = pa.array([new_year + day * DAY_US + 5 for day in days], pa.timestamp("us", "UTC"))
    table = pa.RecordBatch.from_pylist(rows, SCHEMA)
    return table.set_column(SCHEMA.get_field_index("timestamp"), SCHEMA.field("timestamp"), times)


def write(archive, *batches, has_topic=False):
    return list(write_batches(archive, TOPIC, batches, has_topic=has_topic))


def facts(files):
    return sorted(row[1:] for file in files for row in rows_of(file))


@pytest.fixture
def commits(tmp_path):
    return ParquetCommits(tmp_path)


@pytest.fixture
def iceberg(tmp_path):
    pytest.importorskip("pyiceberg")
    made = IcebergCommits(tmp_path)
    yield made
    made.close()


def test_records_go_to_the_folder_of_their_date(tmp_path):
    """Each date has one file, even if the records' dates are mixed, and even for dates after the year 9999."""
    far = (datetime(9999, 12, 31, tzinfo=UTC) - NEW_YEAR).days + 1
    files = write(tmp_path, batch(0, 1, 0, 1), batch(3, 0, far))
    names = {(file.parent.parent.name, file.parent.name) for file in files}
    assert {
        (f"topic={TOPIC}", f"date={date}") for date in ("2026-01-01", "2026-01-02", "+10000-01-01")
    } == names
    expected = [("+10000-01-01", 0, 4, 1), ("2026-01-01", 0, 1, 2), ("2026-01-02", 0, 0, 2)]
    assert expected == facts(files)


def test_many_dates_need_few_open_files(tmp_path):
    """If there are many dates, few files are open at a time, and the records of each date are in one or more files."""
    files = write(tmp_path, batch(0, *range(200)), batch(200, *range(200)))
    assert 400 == sum(records for *_, records in facts(files))
    assert 200 == len({file.parent for file in files})


def test_merged_files_have_the_same_rows(tmp_path):
    """A merged file has the same rows, sorted by partition and offset.

    Each of its row groups has the rows of a single partition, as the footer shows.
    """
    files = [
        file
        for first in (3, 0)
        for partition in (1, 0)
        for file in write(tmp_path, batch(first, 0, 0, 0, partition=partition))
    ]
    merged = merge(files, SCHEMA.remove(SCHEMA.get_field_index("topic")))
    assert [FileRows(TOPIC, "2026-01-01", one, 0, 6) for one in (0, 1)] == list(rows_of(merged))


def test_of_two_runs_one_commits(commits, tmp_path):
    """If two runs begin the same round, both plan the same records, and the second run's commit is refused."""
    other = ParquetCommits(tmp_path)
    assert (-1, None) == commits.last()
    assert state(3) == commits.plan(0, state(3))
    assert state(3) == other.planned(0) == other.plan(0, state(7))
    ours, theirs = write(tmp_path, batch(0, 0, 0, 0)), write(tmp_path, batch(0, 0, 0, 0))
    commits.commit(0, state(3), ours, [])
    with pytest.raises(PipelineError, match="another run archived the same records"):
        other.commit(0, state(3), theirs, [])
    assert (0, state(3)) == other.last()
    assert ours == archived_files(tmp_path)


def test_what_spark_committed_counts(commits, tmp_path):
    """If Spark's query lists a commit and is killed before it updates the checkpoint, the commit is still valid."""
    commits.plan(0, state(3))
    commits.commit(0, state(3), [], [])
    (tmp_path / "_checkpoint" / "commits" / "0").unlink()
    assert (0, state(3)) == commits.last()


def test_every_tenth_commit_has_all_files_and_merges(commits, tmp_path):
    """Every tenth commit lists all files and merges small ones. Files on no list are removed a day later."""
    for number in range(COMPACT_INTERVAL - 1):
        assert not commits.merges(number)
        commits.plan(number, state(number + 1))
        commits.commit(number, state(number + 1), write(tmp_path, batch(number, 0)), [])
    assert [] == small_groups(tmp_path)
    last = COMPACT_INTERVAL - 1
    commits.plan(last, state(last + 1))
    replaced = archived_files(tmp_path)
    young, old = write(tmp_path, batch(0, 0)), write(tmp_path, batch(0, 0))
    os.utime(old[0], (0, time.time() - REMOVE_AFTER_SECONDS - 1))
    merged = merge(replaced, SCHEMA.remove(SCHEMA.get_field_index("topic")))
    added = write(tmp_path, batch(last, 0))
    assert commits.merges(last)
    commits.commit(last, state(last + 1), [*added, merged], replaced)
    assert {merged, *added} == set(archived_files(tmp_path))
    assert (True, False) == (young[0].exists(), old[0].exists())
    assert all(file.exists() for file in replaced)
    lines = (tmp_path / "_spark_metadata" / f"{last}.compact").read_text().splitlines()
    assert ("v1", 2) == (lines[0], len([json.loads(line) for line in lines[1:]]))


def test_a_snapshot_has_its_offsets(iceberg, tmp_path):
    """The newest snapshot has the offsets where the next run begins, and only files in a snapshot are read."""
    files = write(tmp_path, batch(0, 0, 1), has_topic=True)
    assert ((-1, None), []) == (iceberg.last(), archived_files_of(iceberg, tmp_path))
    iceberg.commit(0, state(2), files, [])
    assert (0, state(2)) == iceberg.last()
    assert set(files) == set(archived_files(tmp_path))
    rows = table_of(iceberg).scan(row_filter=f"topic = '{TOPIC}'").to_arrow()
    assert [0, 1] == sorted(rows["offset"].to_pylist())


def test_a_commit_on_another_runs_snapshot_is_refused(iceberg, tmp_path):
    """If another run has added a snapshot meanwhile, a commit is refused.

    The commit is not retried, even if the table's properties allow retries.
    """
    other = IcebergCommits(tmp_path)
    with table_of(iceberg).transaction() as transaction:
        transaction.remove_properties("commit.retry.num-retries")
    for one in (iceberg, other):
        assert (-1, None) == one.last()
    ours, theirs = (write(tmp_path, batch(0, 0), has_topic=True) for _ in range(2))
    iceberg.commit(0, state(1), ours, [])
    with pytest.raises(PipelineError, match="another run archived meanwhile"):
        other.commit(0, state(1), theirs, [])
    other.close()
    assert ours == archived_files(tmp_path)


def test_other_programs_snapshots_do_not_hide_the_offsets(iceberg, tmp_path):
    """The offsets are read from the newest snapshot that has offsets.

    If all snapshots with offsets have expired, the offsets are read from the table's property.
    """
    iceberg.commit(0, state(1), write(tmp_path, batch(0, 0), has_topic=True), [])
    first = table_of(iceberg).current_snapshot().snapshot_id
    (other,) = write(tmp_path, batch(1, 0), has_topic=True)
    table_of(iceberg).add_files([f"file://{other}"])
    assert (0, state(1)) == iceberg.last()
    table_of(iceberg).maintenance.expire_snapshots().by_id(first).commit()
    assert (0, state(1)) == iceberg.last()


def test_small_files_of_a_table_are_merged(iceberg, tmp_path):
    """The snapshot that adds the next records also replaces the small files of a folder by one file."""
    for number in range(SMALL_FILES):
        iceberg.commit(number, state(number + 1), write(tmp_path, batch(number, 0), has_topic=True), [])
    (group,) = small_groups(tmp_path)
    merged, added = merge(group, SCHEMA), write(tmp_path, batch(SMALL_FILES, 0), has_topic=True)
    iceberg.commit(SMALL_FILES, state(SMALL_FILES + 1), [merged, *added], group)
    assert {merged, *added} == set(archived_files(tmp_path))
    rows = table_of(iceberg).scan().to_arrow()
    assert list(range(SMALL_FILES + 1)) == sorted(rows["offset"].to_pylist())


def test_files_of_a_table_are_merged_by_another_path_too(iceberg, tmp_path):
    """A file of the table is found by the last three parts of its path, even if the table names it by another path."""
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    for number in range(SMALL_FILES):
        iceberg.commit(number, state(number + 1), write(tmp_path, batch(number, 0), has_topic=True), [])
    other = IcebergCommits(link)
    (group,) = small_groups(link)
    other.commit(SMALL_FILES, state(SMALL_FILES), [merge(group, SCHEMA)], group)
    assert list(range(SMALL_FILES)) == sorted(table_of(other).scan().to_arrow()["offset"].to_pylist())
    other.close()


@pytest.mark.parametrize("lost", ["_checkpoint/offsets", "_spark_metadata"])
def test_an_archive_without_its_place_is_not_begun_again(commits, tmp_path, lost):
    """A run refuses an archive without its offsets or lists of files: it would archive the same records again."""
    for number in range(2):
        commits.plan(number, state(number + 1))
        commits.commit(number, state(number + 1), write(tmp_path, batch(number, 0)), [])
    shutil.rmtree(tmp_path / lost)
    with pytest.raises(PipelineError, match="is unknown which records"):
        ParquetCommits(tmp_path).last()


@pytest.mark.parametrize("lost", [0, 3, COMPACT_INTERVAL - 1])
def test_an_archive_with_a_lost_list_is_not_read(commits, tmp_path, lost):
    """An archive that lacks a list of files is not read, because the records in these files would be omitted."""
    for number in range(COMPACT_INTERVAL + 2 if lost > 3 else 5):
        commits.plan(number, state(number + 1))
        commits.commit(number, state(number + 1), write(tmp_path, batch(number, 0)), [])
    (path,) = (tmp_path / "_spark_metadata").glob(f"{lost}*")
    path.unlink()
    with pytest.raises(PipelineError, match=f"_spark_metadata/{lost}.* is missing"):
        archived_files(tmp_path)
    with pytest.raises(PipelineError, match=f"_spark_metadata/{lost}.* is missing"):
        commits.last()


def test_a_table_without_its_place_is_not_begun_again(iceberg, tmp_path):
    """A run refuses a table without offsets: a program may have removed the property after snapshots expired."""
    (other,) = write(tmp_path, batch(1, 0), has_topic=True)
    table_of(iceberg).add_files([f"file://{other}"])
    with pytest.raises(PipelineError, match="is unknown which records"):
        iceberg.last()


@pytest.mark.parametrize("kind", [PARQUET, ICEBERG])
def test_files_that_no_list_has_keep_an_archive_from_being_made(tmp_path, kind):
    """A run refuses a folder with data files but no list of files, because it would remove these files a day later."""
    before = write(tmp_path, batch(0, 0))
    with pytest.raises(PipelineError, match="files of an archive, but no list"):
        check_archive(tmp_path, ArchiveOptions(path="/d", topics=TOPIC, target=tmp_path, format=kind))
    assert before == list(tmp_path.glob("**/*.*"))


@pytest.mark.parametrize(
    ("topics", "name", "expected"),
    [
        ("orders, clicks", "clicks", True),
        ("orders-*", "orders-eu", True),
        ("orders-*", "my-orders-eu", False),
        ("orders.v1", "orders-v1", False),
    ],
)
def test_patterns_are_those_of_a_shell(topics, name, expected):
    """A shell pattern matches a whole name, and a dot in the pattern matches only a dot."""
    assert expected == matches(topics, name)


def table_of(iceberg):
    iceberg.last()
    return iceberg._table


def archived_files_of(iceberg, archive):
    del iceberg
    return archived_files(archive)
