"""The screen of `topicfs top`: topics with their rates, sizes and lag, as they change.

`samples` has the values and computes rates from two samples, `engine_source` and `mount_source` take samples,
`screen` is the table with its order and filter, and `terminal_keys` reads single keys.
"""
