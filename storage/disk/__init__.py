"""A small interface to the disk, the names of the engine's files, and the lock of a directory.

This package knows neither batches nor indexes. Tests replace the disk by one that crashes, fills up and fails.
"""
