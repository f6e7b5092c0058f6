"""An archive of topics as files, read without Spark: which of its Parquet files count, and its records by their offsets."""
