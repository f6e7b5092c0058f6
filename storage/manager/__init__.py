"""The engine over one or more data directories: many topics, their settings, their duties.

`opening` takes the directories (locks them, reads their small files, loads their logs) and gives a
`manager.LogManager`, which implements storage.engine.Engine. `directories` knows which of them serve and what stands
where; `reopening` brings back what failed. What changes topics is crash-safe through `registry`, the one file,
the same in each directory, that says what is under way; `contents`, `duties` and `topics` are pure.
"""

from storage.manager.manager import LogManager
from storage.manager.opening import open_engine

__all__ = ["LogManager", "open_engine"]
