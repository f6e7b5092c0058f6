"""The files of the mount, one module for each kind: what a read shows, and what a write does.

`partition_files` and `topic_files` are what the mount knows of a partition and of a topic for as long as it exists; all
other modules are kinds of files, and know nothing of each other but for their common bases (`text_file`).
"""
