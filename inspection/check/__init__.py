"""Checks every byte of a data directory: each finding has file, position and cause. Nothing is changed or locked."""
