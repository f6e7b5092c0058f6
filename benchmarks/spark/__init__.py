"""Spark over the same records in four places: a directory read by topicfs, a broker, memory, and Parquet files."""
