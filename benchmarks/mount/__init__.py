"""Benchmarks of the mount: the same system calls on topicfs, on an empty filesystem and on plain files."""
