"""Benchmarks of Spark over the same records in a directory, in a broker, in memory, and in Parquet files."""
