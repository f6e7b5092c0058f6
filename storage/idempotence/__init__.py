"""Named producers: their progress survives crashes, so that nothing is appended twice.

`registry` is the file of names, ids, epochs and positions; it also finds out what of an input
is in the log already. `producer` appends the rest. It builds on the engine's protocol alone.
"""
