"""Checks every byte of a data directory, without changing or locking a file.

Each finding has a file, a position and a cause.
"""
