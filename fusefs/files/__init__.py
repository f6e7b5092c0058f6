"""The files of the mount, one module for each kind: what a read shows, and what a write does.

`partition_files` and `topic_files` hold the mount's state of a partition and of a topic. Each other module defines a
kind of file. These modules import nothing from each other except the common bases (`text_file`, `log_handle`).
"""
