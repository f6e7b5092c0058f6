"""A small interface to the disk, the names of the engine's files, and the lock of a directory.

This package knows neither batches nor indexes. Tests use a disk that crashes, fills up and fails.
"""
