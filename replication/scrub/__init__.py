"""The scrub: reads every byte of the logs, and repairs damage in one replica from another replica.

`scrubber` scrubs all partitions, `partition` one partition, `segment` one segment. `verdict` finds valid batches.
"""
