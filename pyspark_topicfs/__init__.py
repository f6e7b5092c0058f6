"""The package that Spark finds by its name: it makes `format("topicfs")` known to every session."""

from topicfs.pipeline.data_source import TopicfsDataSource as DefaultSource

__all__ = ["DefaultSource"]
