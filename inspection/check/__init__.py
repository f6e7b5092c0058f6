"""Checks every byte of a data directory. Each finding has a file, a position and a cause. Changes and locks no file."""
