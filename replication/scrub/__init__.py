"""The scrub: reads every byte of the logs, and rewrites what is damaged in one replica from another.

`verdict` says of bytes how far they are sound batches: a pure function. `copies` are the copies of a segment in several
logs, read and mended; `segment` goes through the copies of a segment side by side, `indexes` compares and rebuilds
what leads to its batches, `small_files` looks after the files beside them, and `partition` goes through all of a
partition. What was found is a value (`findings`). `scrubber` does it little by little.
"""
