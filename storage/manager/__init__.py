"""The engine over a data directory: many topics, their settings, their duties.

`opening` takes a directory (locks it, reads its small files, loads its logs) and gives a
`manager.LogManager`, which implements storage.engine.Engine. What changes topics is crash-safe through
`registry`, the one file that says what is under way; `contents`, `duties` and `topics` are pure.
"""

from storage.manager.manager import LogManager
from storage.manager.opening import open_engine

__all__ = ["LogManager", "open_engine"]
