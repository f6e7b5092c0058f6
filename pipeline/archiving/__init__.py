"""Archiving in rounds: each round adds the records that arrived since the previous round.

`plan` finds the new records, tasks write them to files (`files`), and one commit adds the files to the archive:
`parquet` in the format of Spark's file sink, `iceberg` as a snapshot of an Iceberg table.
"""
