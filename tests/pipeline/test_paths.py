"""Tests of the directories that a path names, in each form that users of Spark write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fusefs.mounted.conftest import Mount
from topicfs.pipeline.errors import InvalidOptionError, PipelineError
from topicfs.pipeline.places.paths import absolute, data_directories
from topicfs.pipeline.source.query.options import parse_source_options


@pytest.mark.parametrize(
    "form", ["file:{}", "file://{}", "file://localhost{}", "FILE:{}", "~/b 1", "~/b*", "{}/"]
)
def test_a_directory_may_be_written_as_elsewhere(tmp_path, monkeypatch, form):
    """A directory may be a URI, begin with `~`, or be a glob. A space in its name is part of the name."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "b 1").mkdir()
    assert (tmp_path / "b 1",) == data_directories(form.format(tmp_path / "b 1"))


def test_a_uri_may_be_escaped(tmp_path):
    """A URI may have escapes, because Spark escapes some URIs and not others."""
    (tmp_path / "b 1").mkdir()
    (tmp_path / "c%20d").mkdir()
    assert (tmp_path / "b 1", tmp_path / "c%20d") == data_directories(
        f"file:{tmp_path}/b%201,file:{tmp_path}/c%20d"
    )


@pytest.mark.parametrize(
    "path", ["hdfs://name/topics", "s3a://bucket/topics", "file://elsewhere/topics", "dbfs:/x"]
)
def test_places_of_other_kinds_are_reported(path):
    """A place of another kind gives a one-line error that says what a path may name."""
    with pytest.raises(
        PipelineError, match=f"^{path}: not a directory of this machine; path names local data directories"
    ):
        data_directories(path)


def test_a_list_of_paths(tmp_path):
    """The paths of `load([…])` are added to those of the option `path`."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    listed = json.dumps([f"{tmp_path}/a", f"file:{tmp_path}/b"])
    given = {"paths": listed, "path": f"{tmp_path}/c", "subscribe": "orders"}
    found = parse_source_options(given, streaming=False).directories
    assert ["c", "a", "b"] == [one.name for one in found]


@pytest.mark.parametrize("text", ["/a", "[1]", '["/a,b"]', '[""]', "5"])
def test_an_invalid_list_is_refused(text):
    """The error for an invalid list says what was expected."""
    with pytest.raises(InvalidOptionError, match="paths: expected a JSON list of data directories"):
        parse_source_options({"paths": text, "subscribe": "orders"}, streaming=False)


@pytest.mark.fuse
def test_a_path_within_a_mount_is_reported(tmp_path):
    """The error for any path within a mount names the mount's data directory."""
    mount = Mount(tmp_path)
    try:
        mount.start()
        (mount.path / "orders").mkdir()
        for path in (mount.path, mount.path / "orders"):
            with pytest.raises(
                PipelineError, match=f"{path}: is inside a topicfs mount; .* shows: {mount.data}$"
            ):
                data_directories(str(path))
    finally:
        mount.clean_up()


def test_names_of_a_table_are_absolute_and_never_the_working_directory(tmp_path, monkeypatch):
    """Relative paths become absolute; empty ones, as after a last comma, are dropped. A comma may be part of a name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b").mkdir()
    found = [absolute(text) for text in ("", " ", "a,", "x, ~/y*", "a,b", "file:/srv/c")]
    named = ["a"], ["x", Path.home() / "y*"], ["a,b"], ["/srv/c"]
    assert [(), (), *(tuple(tmp_path / one for one in names) for names in named)] == found


@pytest.mark.parametrize("text", ["", " ", ","])
def test_an_empty_path_is_not_the_working_directory(text):
    """An empty path is refused, because it names no directory."""
    with pytest.raises(PipelineError, match="the option path names no data directory"):
        data_directories(text)
