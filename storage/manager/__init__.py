"""The engine as a whole: many topics over one or more data directories.

`startup` takes the directories (locks them, reads their small files, has their logs loaded) and returns a
`manager.LogManager`, which implements storage.engine.LogEngine. What stands on the logs extends the class
(`replication.embedded_engine`), and so does the engine of one directory of several that replicate.
"""

from topicfs.storage.manager.manager import LogManager
from topicfs.storage.manager.startup import Machine, open_engine, open_logs

__all__ = ["LogManager", "Machine", "open_engine", "open_logs"]
