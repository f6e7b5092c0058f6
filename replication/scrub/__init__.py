"""The scrub: reads every byte of the logs, and rewrites what is damaged in one replica from another.

`scrubber` goes through all partitions, `partition` through one, `segment` through the `copies` of a segment;
`verdict` judges bytes, `indexes` and `small_files` look after the other files. What was found is a value
(`findings`).
"""
