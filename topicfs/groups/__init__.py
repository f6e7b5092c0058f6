"""Groups for the commands: from an engine, or through the mount of the daemon that owns the directory.

`view` has the values, `engine` and `mount` are the two sources, `location` chooses one. `output` prints them in the
columns of Kafka's own tool; `scenarios` are the ways to reset positions.
"""
