"""Calls that wait, in threads: for the disk, and for a remote engine. The event loop's thread never waits itself."""
