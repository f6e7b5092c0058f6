"""Tests of the list of an archive's valid files, also of a moved archive, and of the archive's notes on topics."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")


from tests.doubles.waiting import TIMEOUT_SECONDS
from topicfs.pipeline.archiving.files import archived_files
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.jobs.archive import TopicNote, read_notes, write_notes


def put(archive, name):
    path = archive / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def listed(archive, batch, *names):
    folder = archive / "_spark_metadata"
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"path": f"file:///elsewhere/{name}", "action": "add"}) for name in names]
    (folder / batch).write_text("\n".join(["v1", *lines]))
    (folder / f".{batch}.crc").touch()


def test_only_committed_files_count(tmp_path):
    """Only the files on Spark's list are read, wherever the archive is; files of a killed run are not on the list."""
    names = [f"topic=orders/date=2026-01-0{day}/part-{day}.parquet" for day in range(1, 5)]
    files = [put(tmp_path, name) for name in names]
    listed(tmp_path, "0", names[0])
    listed(tmp_path, "1.compact", names[0], names[1])
    listed(tmp_path, "2", names[2].replace("=", "%3D"))
    assert files[:3] == archived_files(tmp_path)


def test_without_a_list_every_file_counts(tmp_path):
    """If an archive has no list of files, for example because only its folders were copied, every file is read."""
    file = put(tmp_path, "topic=orders/date=2026-01-01/part-0.parquet")
    put(tmp_path, "topic=orders/date=2026-01-01/.part-0.parquet.crc")
    assert [file] == archived_files(tmp_path)


def test_a_missing_archive_is_reported(tmp_path):
    """The error for a missing archive says how to make one. An archive of topics without records is not missing."""
    with pytest.raises(PipelineError, match="no archive there; make one: topicfs pipeline archive"):
        archived_files(tmp_path)
    (tmp_path / "_checkpoint").mkdir()
    assert [] == archived_files(tmp_path)


def test_a_missing_file_is_reported(tmp_path):
    """The error names a missing file before anything is restored from the other files."""
    name = "topic=orders/date=2026-01-01/part-0.parquet"
    listed(tmp_path, "0", name)
    with pytest.raises(PipelineError, match=f"{name}: is in the archive's list of files, but does not exist"):
        archived_files(tmp_path)


def test_notes_are_added_to(tmp_path):
    """A run adds notes on its own topics to the notes of earlier runs."""
    assert {} == read_notes(tmp_path)
    orders, clicks = TopicNote(4, {"cleanup.policy": "compact"}), TopicNote(1, {})
    write_notes(tmp_path, {"orders": TopicNote(2, {}), "clicks": clicks})
    write_notes(tmp_path, {"orders": orders})
    assert {"clicks": clicks, "orders": orders} == read_notes(tmp_path)


def test_notes_of_jobs_that_run_at_once_all_last(tmp_path):
    """No notes are lost if several jobs add notes concurrently."""
    notes = {f"topic-{number}": TopicNote(number, {}) for number in range(1, 9)}
    begin = Barrier(len(notes))

    def write(topic):
        begin.wait(TIMEOUT_SECONDS)
        write_notes(tmp_path, {topic: notes[topic]})

    with ThreadPoolExecutor(len(notes)) as threads:
        assert [None] * len(notes) == list(threads.map(write, notes))
    assert notes == read_notes(tmp_path)


@pytest.mark.parametrize(
    "content", ["", "[]", '{"orders": 4}', '{"orders": {"partitions": "x", "overrides": {}}}']
)
def test_damaged_notes_are_reported(tmp_path, content):
    """The error for damaged notes names the remedy."""
    (tmp_path / "_topics.json").write_text(content)
    with pytest.raises(PipelineError, match=r"_topics.json: .*remove the file"):
        read_notes(tmp_path)
