"""The sub-commands, one module each. `topicfs/main.py` has the table of their names."""
