"""Tests of the topics that SQL tables read and write, whichever table the rows come from."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles.engines import append_lines, read_lines
from topicfs.replication import open_engine

pytestmark = pytest.mark.spark

REFUSED = "this write's target is not known"


@pytest.fixture
def tables(spark, tmp_path):
    """Make a topic `z` and two tables: `source` reads and writes `x`; `target` reads `x` and writes `y`."""
    with closing(open_engine(tmp_path / "data")) as engine:
        for name in "xyz":
            engine.create_topic(name)
        append_lines(engine.partition("x", 0), "a\nb\n")
    for name, topic in (("source", "x"), ("target", "y")):
        spark.sql(
            f"CREATE TABLE {name} USING topicfs OPTIONS ({place(tmp_path)}, subscribe 'x', topic '{topic}')"
        )
    yield spark
    for name in ("source", "target", "made"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def place(tmp_path):
    return f"path '{tmp_path / 'data'}'"


def written(tmp_path):
    """Return the lines of each topic."""
    with closing(open_engine(tmp_path / "data", read_only=True)) as engine:
        return {name: read_lines(engine.partition(name, 0)) for name in "xyz"}


@pytest.mark.parametrize(
    "insert",
    [
        "INSERT INTO target SELECT * FROM source",
        "INSERT INTO target (key, value) SELECT key, value FROM source",
        "INSERT INTO target BY NAME SELECT value FROM source",
        "INSERT INTO target (value) VALUES (X'61'), (X'62')",
    ],
)
def test_an_insert_writes_to_its_own_table(tables, tmp_path, insert):
    """An insert writes to its own table's topic, although the rows have the columns of another table."""
    tables.sql(insert)
    assert {"x": ["a", "b"], "y": ["a", "b"], "z": []} == written(tmp_path)


@pytest.mark.parametrize("columns", ["*", "key, value"])
def test_a_table_made_of_another_tables_rows_is_refused(tables, tmp_path, columns):
    """CREATE TABLE AS SELECT is refused, because Spark passes no options to it. No record and no table is left."""
    options = f"{place(tmp_path)}, subscribe 'z', topic 'z'"
    with pytest.raises(Exception, match=REFUSED):
        tables.sql(f"CREATE TABLE made USING topicfs OPTIONS ({options}) AS SELECT {columns} FROM source")
    assert {"x": ["a", "b"], "y": [], "z": []} == written(tmp_path)
    assert not tables.catalog.tableExists("made")


def test_a_dataframe_of_a_table_needs_a_target(tables, tmp_path):
    """A write of a table's DataFrame requires the options for topic and path. The table's own options are not used."""
    rows = tables.table("target").select("key", "value").write.format("topicfs").mode("append")
    with pytest.raises(Exception, match="no topic to write to"):
        rows.option("path", str(tmp_path / "data")).save()
    rows.options(path=str(tmp_path / "data"), topic="z").save()
    assert {"x": ["a", "b"], "y": [], "z": ["a", "b"]} == written(tmp_path)


def test_a_stream_into_a_table_is_refused(tables, tmp_path):
    """`toTable` is refused, and the error says what to write instead."""
    sink = tables.readStream.table("source").writeStream.option(
        "checkpointLocation", str(tmp_path / "progress")
    )
    query = sink.trigger(availableNow=True).toTable("target")
    with pytest.raises(Exception, match=REFUSED):
        query.awaitTermination()
    assert {"x": ["a", "b"], "y": [], "z": []} == written(tmp_path)


def test_a_tables_relative_path_is_made_absolute(spark, tmp_path):
    """A table's relative path is stored as an absolute one, because the next session may run elsewhere."""
    from topicfs.pipeline.source.query.schema import full_schema
    from topicfs.pipeline.sql_tables import METADATA, with_options

    given = {"provider": "topicfs", "path": "data, ~/b*", "option.subscribe": "x"}
    schema = with_options(full_schema(include_headers=False), given)
    (noted,) = [field.metadata[METADATA] for field in schema.fields if field.metadata]
    assert {"subscribe": "x", "path": f"{Path.cwd()}/data,{Path.home()}/b*"} == json.loads(noted)
