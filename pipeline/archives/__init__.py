"""An archive of topics as files: which of its Parquet files count, found without Spark."""
