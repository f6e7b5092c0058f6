"""The state of a log's producers: sequence numbers, open transactions, and snapshot files (kafka-storage.md#producers).

`state` has all producers, `entry` a single producer, `append` the checks of an append, and `snapshot` the file.
"""
