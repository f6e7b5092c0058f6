"""The scrub: reads every byte of the logs; `repair` overwrites a damaged batch with the bytes of another replica.

`scrubber` scrubs all partitions, `partition` one partition, `segment` one segment. `verdict` finds valid batches.
"""
