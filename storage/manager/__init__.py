"""The engine as a whole: many topics over one or more data directories.

`startup` takes the directories (locks them, reads their small files, has their logs loaded) and returns a
`manager.LogManager`, which implements storage.engine.Engine. `member` is such an engine over one directory of several
that replicate; `groups` makes the groups that it serves.
"""

from topicfs.storage.manager.manager import LogManager
from topicfs.storage.manager.startup import Machine, open_engine

__all__ = ["LogManager", "Machine", "open_engine"]
