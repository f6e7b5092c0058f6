"""The tree: which names exist under the mount, and what each of them is.

`nodes` says what every directory, file and link can do, `inodes` keeps their numbers and the kernel's references.
`root`, `topics` and `partitions` are the directories, each a table of names; the files behind the names stand in
`growing`, `selected`, `topic_logs`, `follows`, `texts`, `segments` and `links`. `context` is what all of them share, and
`partition_files` what the mount knows of one partition for as long as it exists.
"""
