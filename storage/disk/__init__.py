"""The disk behind a small interface, the names of the engine's files, and the lock of a directory.

Nothing here knows what a batch or an index is. Tests swap the disk for one that crashes, fills up and fails.
"""
