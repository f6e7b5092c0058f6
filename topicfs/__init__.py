"""The command `topicfs`: it parses what was typed, calls the engine or the mount, and prints what came back.

No decision about topics is taken here, and nothing imports this package.
"""
