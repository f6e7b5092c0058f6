"""The sub-commands, one module each: a list of siblings. `topicfs/main.py` has the table of their names."""
