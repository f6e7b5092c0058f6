"""Groups for the commands: from an engine, or through the mount of the daemon that owns the directory.

`view` are the values, `engine` and `mount` the two places that give them, `location` chooses. `output` shows them in the
columns of Kafka's own tool, `scenarios` are the words with which positions are reset.
"""
