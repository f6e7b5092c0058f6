"""Archiving in rounds: `plan` says what came since the last one, tasks write it (`files`), and one commit makes it count.

`parquet` commits in the form of Spark's file sink, `iceberg` as snapshots of an Iceberg table.
"""
