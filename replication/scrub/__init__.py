"""The scrub: reads every byte of the logs, and repairs damage in one replica from another.

`scrubber` scrubs all partitions, `partition` one, `segment` one segment; `verdict` judges bytes.
"""
