"""Tests of schemas as files in a directory."""

from __future__ import annotations

import json
import os
from uuid import UUID

import pytest

from tests.schemas.examples import ORDER
from topicfs.schemas.schema import Kind, PayloadSchema, SchemaError, SchemaReference
from topicfs.schemas.sources import directory
from topicfs.schemas.sources.directory import DirectorySource


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "12.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "13.proto").write_text(
        'syntax = "proto3"; import "common/money.proto"; message M { Money m = 1; }'
    )
    (tmp_path / "14.json").write_text('{"type":"object"}')
    (tmp_path / "common").mkdir()
    (tmp_path / "common/money.proto").write_text('syntax = "proto3"; message Money { int64 cents = 1; }')
    (tmp_path / f"{UUID(int=5)}.avsc").write_text('"int"')
    (tmp_path / "orders-value.avsc").symlink_to("12.avsc")
    return tmp_path


def test_a_file_is_named_by_its_id_and_its_language(folder):
    """A file's name is the id or GUID of its schema, and its suffix is the schema's language."""
    source = DirectorySource(folder)
    assert PayloadSchema(Kind.AVRO, json.dumps(ORDER), (), 12) == source.by_id(12)
    assert Kind.JSON is source.by_id(14).kind
    assert '"int"' == source.by_id(UUID(int=5)).text
    assert source.by_id(99) is None


def test_imports_are_files_below_it(folder):
    """Imports are read only from files below the directory."""
    source = DirectorySource(folder)
    assert (SchemaReference("common/money.proto", "common/money.proto", 0),) == source.by_id(13).references
    assert "Money" in source.referenced(source.by_id(13).references[0]).text
    for name in ("missing.proto", "../outside.proto", "/etc/passwd", "a\0b"):
        assert source.referenced(SchemaReference(name, name, 0)) is None


def test_a_link_says_which_schema_of_a_subject_is_the_newest(folder):
    """A symbolic link names the newest schema of a subject; the name of the link's target is the schema's id."""
    source = DirectorySource(folder)
    assert 12 == source.newest("orders-value").number
    for subject in ("12", "missing", "a/b", "a\0b"):
        assert source.newest(subject) is None


def test_a_file_that_cannot_be_read_is_an_error_and_not_a_missing_one(folder):
    """A schema file that is too large or is a directory raises an error, and does not count as missing."""
    (folder / "15.avsc").write_bytes(b" " * (2**20 + 1))
    (folder / "16.avsc").mkdir()
    for number in (15, 16):
        with pytest.raises(SchemaError, match=f"{number}.avsc"):
            DirectorySource(folder).by_id(number)


def test_the_stamp_changes_with_the_directory(folder, monkeypatch):
    """The stamp changes when the directory changes or disappears. The directory is checked once a second."""
    monkeypatch.setattr(directory, "STAMP_SECONDS", 0.0)
    source = DirectorySource(folder)
    before = source.stamp()
    assert before == source.stamp()
    (folder / "20.avsc").write_text('"int"')
    os.utime(folder, ns=(1, 1))
    after = source.stamp()
    assert before != after
    folder.rename(folder.with_name("elsewhere"))
    assert after != source.stamp()
