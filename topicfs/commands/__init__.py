"""The sub-commands, one module for each. `topicfs/main.py` has the table of their names."""
