"""Durable, Kafka-compatible topics as plain files.

Programs call `topicfs.open` (docs/api.md), and `topicfs.spark` for Spark. All other modules are private. The modules in
this folder implement the command. The engine, the mount and other parts have their own folders, linked here.
"""

from typing import TYPE_CHECKING

__all__ = [
    "Appended",
    "Group",
    "Member",
    "Partition",
    "Record",
    "Server",
    "Topic",
    "TopicPartition",
    "Topics",
    "errors",
    "open",
    "serve",
]

if TYPE_CHECKING:
    from topicfs import errors
    from topicfs.api.group import Group, Member
    from topicfs.api.records import Appended, Record
    from topicfs.api.server import Server, serve
    from topicfs.api.topic import Partition, Topic
    from topicfs.api.topics import Topics
    from topicfs.api.topics import open_topics as open  # noqa: A004 - its name for users is `topicfs.open`
    from topicfs.storage.model import TopicPartition

    __version__: str
else:
    _HOMES = {
        "Appended": "api.records",
        "Group": "api.group",
        "Member": "api.group",
        "Partition": "api.topic",
        "Record": "api.records",
        "Server": "api.server",
        "Topic": "api.topic",
        "TopicPartition": "storage.model",
        "Topics": "api.topics",
        "serve": "api.server",
    }

    def __getattr__(name: str) -> object:
        """Import public names on first use, so that `import topicfs` takes only a millisecond."""
        from importlib import import_module

        if name == "open":
            return import_module("topicfs.api.topics").open_topics
        if name == "errors":
            return import_module("topicfs.errors")
        if name == "__version__":
            return import_module("importlib.metadata").version("topicfs")
        if name in _HOMES:
            return getattr(import_module(f"topicfs.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
