"""Groups for the commands: from an engine, or through the mount of the daemon that owns the directory.

`view` has the values, `engine` and `mount` are the two sources of groups, and `location` chooses between them.
`output` prints groups in the columns of Kafka's own tool; `scenarios` are the ways to reset positions.
"""
