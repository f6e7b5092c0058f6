"""Archiving in rounds, each of which adds what came since the last one.

`plan` finds those records, tasks write them (`files`), and one commit adds them to the archive: `parquet` in the form of
Spark's file sink, `iceberg` as a snapshot of an Iceberg table.
"""
