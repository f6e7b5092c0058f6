"""Threads for calls that wait for the disk or for a remote engine. The event loop does not wait for such calls."""
