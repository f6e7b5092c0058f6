"""Found by Spark by its name: makes `format("topicfs")` known to every session."""

from pipeline.data_source import TopicfsDataSource as DefaultSource

__all__ = ["DefaultSource"]
