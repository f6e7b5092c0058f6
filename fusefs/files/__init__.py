"""The files of the mount, one module for each kind: what a read shows, and what a write does.

`partition_files` and `topic_files` hold the mount's state of a partition and of a topic. Each other module is a kind
of file; these modules import only common bases (`text_file`, `log_handle`) of each other.
"""
