"""The engine as a whole: many topics over one or more data directories.

`startup` locks the directories, has their logs loaded, and returns a `manager.LogManager` or an instance of a subclass.
"""

from topicfs.storage.manager.manager import LogManager
from topicfs.storage.manager.startup import Machine, open_engine, open_logs

__all__ = ["LogManager", "Machine", "open_engine", "open_logs"]
