"""Calls that may block, run in threads: for the disk, and for a remote engine. The event loop never waits for them."""
