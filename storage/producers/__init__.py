"""The state of a log's producers: sequence numbers, open transactions, and snapshot files (kafka-storage.md#producers).

`state` has all producers, `entry` one of them, `append` the checks of an append, `snapshot` the file.
"""
