"""The scrub: reads every byte of the logs, and rewrites what is damaged in one replica from another.

`scrubber` does all partitions, `partition` one, `segment` one segment; `verdict` judges bytes.
"""
