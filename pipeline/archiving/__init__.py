"""Archiving in rounds: each round adds the records that arrived since the last one.

`plan` finds those records, tasks write them (`files`), and one commit adds them to the archive: `parquet` in the form of
Spark's file sink, `iceberg` as a snapshot of an Iceberg table.
"""
