"""The ground the engine stands on: a disk behind a small interface, the names of its files, and who owns them.

Nothing here knows what a batch or an index is. Tests swap the disk for one that crashes, fills up and fails.
"""
