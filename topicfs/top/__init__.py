"""The screen of `topicfs top`: topics with their rates, sizes and lag, as they change.

`samples` are the values and what two of them say, `engine_source` and `mount_source` take them, `screen` is the table, its
order and its filter, and `terminal_keys` reads single keys.
"""
